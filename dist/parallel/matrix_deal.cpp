#include "keel/dist/parallel/matrix_deal.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "keel/dist/comm/deal_by_cost.h"

namespace keel {

ParameterGroup group_of(const GroupRule& groups, const Segment& segment) {
  ParameterGroup group = groups(segment.name, segment.shape);
  group.matrices = segment.matrices;
  return group;
}

MatrixDeal::MatrixDeal(std::span<const FlatBuffer* const> layout, const Optimizer& optimizer, const GroupRule& groups,
                       int ranks, bool sharded, DType dtype, MatrixWork work)
    : ranks_(ranks), sharded_(sharded && ranks > 1), dtype_(optimizer.matrix_dtype(dtype)), work_(work) {
  std::int64_t before = 0;
  for (std::size_t unit = 0; unit < layout.size(); ++unit) {
    padded_.push_back(layout[unit]->padded);
    before_.push_back(before);
    if (!layout[unit]->trainable) continue;
    before += layout[unit]->numel;
    const std::vector<Segment>& segments = layout[unit]->segments;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      std::int64_t begin = segments[i].offset;
      for (const std::int64_t rows : optimizer.matrices(segments[i].shape, group_of(groups, segments[i]))) {
        const std::int64_t columns = segments[i].shape[1], end = begin + rows * columns;
        if (begin < end)
          matrices_.push_back({.unit = unit, .segment = i, .place = {begin, end}, .rows = rows, .columns = columns});
        begin = end;
      }
    }
  }
  units_ = {0, static_cast<std::int64_t>(layout.size())};
  deal();
}

void MatrixDeal::deal() {
  std::vector<std::int64_t> costs;  // of products: about proportional to the time of a transformation
  for (const DealtMatrix& matrix : matrices_)
    costs.push_back(matrix.rows * matrix.columns * std::min(matrix.rows, matrix.columns));
  const std::vector<int> owners = deal_by_cost(costs, ranks_);
  for (std::size_t i = 0; i < matrices_.size(); ++i) matrices_[i].owner = owners[i];
}

MatrixDeal MatrixDeal::of_units(Span units) const {
  MatrixDeal some = *this;
  some.units_ = units;
  std::erase_if(some.matrices_, [&](const DealtMatrix& matrix) {
    const auto unit = static_cast<std::int64_t>(matrix.unit);
    return unit < units.begin || unit >= units.end;
  });
  some.deal();
  return some;
}

std::vector<MatrixDeal> MatrixDeal::in_batches(std::int64_t elements) const {
  std::vector<std::int64_t> most(padded_.size());  // by unit, that a rank owns
  for (const DealtMatrix& matrix : matrices_) most[matrix.unit] += matrix.place.count();
  std::vector<MatrixDeal> batches;
  std::int64_t begin = 0, held = 0;
  for (std::size_t unit = 0; unit < most.size(); ++unit) {
    if (sharded_) most[unit] = std::min(most[unit], padded_[unit] / ranks_);
    if (held > 0 && most[unit] > 0 && held + most[unit] > elements) {
      const auto end = static_cast<std::int64_t>(unit);
      batches.push_back(of_units({std::exchange(begin, end), end}));
      held = 0;
    }
    held += most[unit];
  }
  batches.push_back(of_units({begin, units_.end}));
  return batches;
}

Span MatrixDeal::piece(const DealtMatrix& matrix, int rank) const {
  if (!sharded_) return matrix.place;
  return overlap(part({0, padded_[matrix.unit]}, ranks_, rank), matrix.place);
}

bool MatrixDeal::transforms(int rank, const DealtMatrix& matrix) const {
  return by_everyone() ? piece(matrix, rank).count() > 0 : matrix.owner == rank;
}

std::int64_t MatrixDeal::owned(int rank) const {
  std::int64_t count = 0;
  for (const DealtMatrix& matrix : matrices_) count += piece(matrix, rank).count();
  return count;
}

std::int64_t MatrixDeal::dealt(int rank) const {
  std::int64_t count = 0;
  for (const DealtMatrix& matrix : matrices_) count += transforms(rank, matrix) ? matrix.place.count() : 0;
  return count;
}

std::int64_t MatrixDeal::most_dealt() const {
  std::int64_t most = 0;
  for (int rank = 0; rank < ranks_; ++rank) most = std::max(most, dealt(rank));
  return most;
}

std::int64_t MatrixDeal::exchanged(int from, int to) const {
  std::int64_t count = 0;
  for (const DealtMatrix& matrix : matrices_) count += transforms(to, matrix) ? piece(matrix, from).count() : 0;
  return count;
}

std::int64_t MatrixDeal::sent(int from) const {
  std::int64_t count = 0;
  for (int to = 0; to < ranks_; ++to) count += exchanged(from, to);
  return count;
}

std::int64_t MatrixDeal::operations(const Optimizer& optimizer, int rank) const {
  std::int64_t operations = 0;
  for (const DealtMatrix& matrix : matrices_)
    if (transforms(rank, matrix)) operations += optimizer.transform_operations(matrix.rows, matrix.columns);
  return operations;
}

std::vector<MatrixDeal> deal_matrices(std::span<const FlatBuffer* const> layout, const Optimizer& optimizer,
                                      const ShardedOptions& options, int ranks) {
  if (!optimizer.requirements().matrices) return {};
  const ShardingOptions& sharding = options.sharding;
  const DType wide = options.policy.master_dtype();
  const MatrixDeal all(layout, optimizer, options.groups, ranks, kShardingStages[sharding.stage].optimizer, wide,
                       sharding.matrices);
  return all.in_batches(sharding.pages() ? sharding.offload_budget / width_of(wide)
                                         : std::numeric_limits<std::int64_t>::max() / 2);
}

}  // namespace keel
