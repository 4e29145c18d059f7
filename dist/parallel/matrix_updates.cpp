#include "keel/dist/parallel/matrix_updates.h"

#include <algorithm>
#include <utility>

#include "keel/kernels/elementwise.h"
#include "keel/runtime/stopwatch.h"

namespace keel {

MatrixUpdates::MatrixUpdates(const Optimizer& optimizer, MatrixDeal deal, std::span<const ParameterRange> ranges,
                             const RanksSite& site)
    : optimizer_(optimizer), deal_(std::move(deal)), site_(site), ranks_(site.ranks) {
  for (const DealtMatrix& matrix : deal_.matrices()) {
    pieces_.emplace_back();
    const Span mine = deal_.piece(matrix, ranks_.rank());
    if (mine.count() == 0) continue;
    const std::int64_t first = deal_.number_of(matrix.unit, mine.begin);
    const auto behind = std::ranges::upper_bound(ranges, first, {}, &ParameterRange::first);
    KEEL_CHECK(behind != ranges.begin(), "nobody updates a matrix of unit ", matrix.unit);
    const auto range = behind - 1;
    const std::int64_t begin = first - range->first;
    pieces_.back() = {static_cast<std::size_t>(range - ranges.begin()), {begin, begin + mine.count()}};
  }
}

void MatrixUpdates::begin(std::span<ParameterRange> ranges) const {
  for (const OwnPiece& piece : pieces_) {
    ParameterRange& range = ranges[piece.range];
    if (piece.place.count() == 0 || range.matrix.defined()) continue;
    const DType wide = range.parameter.dtype() == DType::f64 ? DType::f64 : DType::f32;
    range.matrix = zeros(site_.context, range.parameter.shape(), wide, Purpose::bucket);
  }
}

void MatrixUpdates::end(std::span<ParameterRange> ranges) const {
  for (ParameterRange& range : ranges) range.matrix = Tensor();
}

void MatrixUpdates::run(std::span<const ParameterRange> ranges) {
  if (deal_.sharded()) run_sharded(ranges);
  else if (ranks_.size() > 1 && !deal_.by_everyone()) run_whole(ranges);
  else run_alone(ranges);
}

Tensor MatrixUpdates::own_piece(std::size_t matrix, std::span<const ParameterRange> ranges) const {
  const OwnPiece& piece = pieces_[matrix];
  return ranges[piece.range].matrix.slice(0, piece.place.begin, piece.place.end);
}

Tensor MatrixUpdates::buffer(std::int64_t count, Purpose purpose) const {
  return empty(site_.context, {count}, deal_.dtype(), purpose);
}

// The numbers of a whole matrix, flat.
Tensor MatrixUpdates::transform(const DealtMatrix& matrix, const Tensor& numbers) const {
  return optimizer_.transform(numbers.view({matrix.rows, matrix.columns})).flatten();
}

void MatrixUpdates::run_alone(std::span<const ParameterRange> ranges) {
  for (std::size_t i = 0; i < deal_.matrices().size(); ++i) {
    const Tensor own = own_piece(i, ranges);
    kernels::copy_into(own, transform(deal_.matrices()[i], kernels::cast(own, deal_.dtype())));
  }
}

// Where everybody has all elements: the matrices of each owner lie one behind the other, in equal shards.
void MatrixUpdates::run_whole(std::span<const ParameterRange> ranges) {
  const std::int64_t most = deal_.most_dealt();
  const Tensor all = zeros(site_.context, {ranks_.size(), most}, deal_.dtype(), Purpose::bucket);
  const auto for_dealt = [&](int owner, const auto& call) {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < deal_.matrices().size(); ++i) {
      const DealtMatrix& matrix = deal_.matrices()[i];
      if (matrix.owner != owner) continue;
      const std::int64_t from = std::exchange(at, at + matrix.place.count());
      call(matrix, own_piece(i, ranges), all.select(0, owner).slice(0, from, at));
    }
  };
  for_dealt(ranks_.rank(), [&](const DealtMatrix& matrix, const Tensor& own, const Tensor& place) {
    kernels::copy_into(place, own);
    kernels::copy_into(place, transform(matrix, place));
  });
  {
    const Stopwatch watch(site_.waited_ms);
    const Tensor there = kernels::to(all, site_.collectives, Purpose::bucket);
    ranks_.all_gather(there.select(0, ranks_.rank()), there.flatten()).wait();
    if (site_.collectives != site_.context) kernels::copy_across(all, there);
  }
  for (int owner = 0; owner < ranks_.size(); ++owner)
    for_dealt(owner,
              [](const DealtMatrix&, const Tensor& own, const Tensor& result) { kernels::copy_into(own, result); });
}

// What goes to a rank lies in the order of its matrices, and so does what comes from each rank.
void MatrixUpdates::run_sharded(std::span<const ParameterRange> ranges) {
  const std::vector<DealtMatrix>& matrices = deal_.matrices();
  const Tensor mine = buffer(deal_.sent(ranks_.rank()), Purpose::bucket),
               dealt = buffer(deal_.dealt(ranks_.rank()), Purpose::bucket);
  const auto for_pieces = [&](const auto& call) {
    std::int64_t at = 0;
    for (int to = 0; to < ranks_.size(); ++to)
      for (std::size_t i = 0; i < matrices.size(); ++i) {
        const std::int64_t count = pieces_[i].place.count();
        if (!deal_.transforms(to, matrices[i]) || count == 0) continue;
        call(own_piece(i, ranges), mine.slice(0, at, at + count));
        at += count;
      }
  };
  for_pieces([](const Tensor& own, const Tensor& sent) { kernels::copy_into(sent, own); });
  exchange(mine, dealt, /*back=*/false);
  transform_pieces(dealt, ranges);
  if (deal_.by_everyone()) return;
  exchange(mine, dealt, /*back=*/true);
  for_pieces([](const Tensor& own, const Tensor& sent) { kernels::copy_into(own, sent); });
}

// Replaces the pieces of this rank's matrices, which have come from all ranks, by those of the results; where everyone
// transforms, the rank takes its own pieces of them instead.
void MatrixUpdates::transform_pieces(const Tensor& received, std::span<const ParameterRange> ranges) const {
  std::vector<std::int64_t> at(1, 0);  // by rank, where its next piece begins
  for (int rank = 0; rank < ranks_.size(); ++rank) at.push_back(at.back() + deal_.exchanged(rank, ranks_.rank()));
  for (std::size_t i = 0; i < deal_.matrices().size(); ++i) {
    const DealtMatrix& matrix = deal_.matrices()[i];
    if (!deal_.transforms(ranks_.rank(), matrix)) continue;
    const Tensor whole = buffer(matrix.place.count(), Purpose::workspace);
    std::vector<std::pair<Tensor, Span>> pieces;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const Span piece = deal_.piece(matrix, rank);
      if (piece.count() == 0) continue;
      std::int64_t& begin = at[static_cast<std::size_t>(rank)];
      const std::int64_t from = std::exchange(begin, begin + piece.count());
      pieces.emplace_back(received.slice(0, from, from + piece.count()),
                          Span{piece.begin - matrix.place.begin, piece.end - matrix.place.begin});
    }
    for (const auto& [piece, span] : pieces) kernels::copy_into(whole.slice(0, span.begin, span.end), piece);
    const Tensor result = transform(matrix, whole);
    if (deal_.by_everyone()) {
      const Span mine = deal_.piece(matrix, ranks_.rank());
      kernels::copy_into(own_piece(i, ranges),
                         result.slice(0, mine.begin - matrix.place.begin, mine.end - matrix.place.begin));
      continue;
    }
    for (const auto& [piece, span] : pieces) kernels::copy_into(piece, result.slice(0, span.begin, span.end));
  }
}

// Pieces go to the owners of matrices, or come back from there.
void MatrixUpdates::exchange(const Tensor& mine, const Tensor& dealt, bool back) {
  std::vector<std::int64_t> to_owners, from_ranks;
  for (int other = 0; other < ranks_.size(); ++other) {
    to_owners.push_back(deal_.exchanged(ranks_.rank(), other));
    from_ranks.push_back(deal_.exchanged(other, ranks_.rank()));
  }
  const Stopwatch watch(site_.waited_ms);
  const Tensor there = kernels::to(back ? dealt : mine, site_.collectives, Purpose::bucket);
  const Tensor& target = back ? mine : dealt;
  const bool apart = site_.collectives != site_.context;
  const Tensor arriving = apart ? empty(site_.collectives, target.shape(), target.dtype(), Purpose::bucket) : target;
  ranks_.all_to_all_v(there, arriving, back ? from_ranks : to_owners, back ? to_owners : from_ranks).wait();
  if (apart) kernels::copy_across(target, arriving);
}

}  // namespace keel
