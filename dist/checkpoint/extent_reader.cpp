#include "keel/dist/checkpoint/extent_reader.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <tuple>

#include "keel/dist/checkpoint/block_runs.h"
#include "keel/dist/checkpoint/parallel_reads.h"
#include "keel/dist/checkpoint/visibility.h"
#include "keel/dist/comm/schedule.h"
#include "keel/kernels/elementwise.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

bool lies_before(const Extent* a, const Extent* b) {
  return std::pair(a->file, a->offset) < std::pair(b->file, b->offset);
}

}  // namespace

// What is to be filled, and from where.
struct ExtentReader::Wish {
  std::uint32_t tensor;
  BlockRuns runs;
  Tensor values;  // in one row
};

// Elements [begin, end) of a tensor that lie in one extent, and hold elements [first, last) of a wish.
struct ExtentReader::Piece {
  const Extent* extent;
  std::int64_t begin, end;
  const Wish* wish = nullptr;
  std::int64_t first = 0, last = 0;

  void take(std::span<const std::byte> bytes, DType dtype) const {
    const Tensor target = wish->values.slice(0, first, last);
    const std::int64_t run = wish->runs.run_length();
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    const auto source_of = [&](std::int64_t index) {
      return bytes.data() + (wish->runs.place_of(index) - begin) * size;
    };
    const auto gather = [&](std::byte* to) {
      for (std::int64_t index = first, next = 0; index < last; index = next) {
        next = std::min(last, (index / run + 1) * run);
        std::memcpy(to + (index - first) * size, source_of(index), static_cast<std::size_t>((next - index) * size));
      }
    };
    if (target.device().type == DeviceType::cpu && target.dtype() == dtype) {
      gather(target.raw());
      target.mark_written();
    } else if (first / run == (last - 1) / run) {
      copy_numbers(source_of(first), dtype, target);
    } else {
      std::vector<std::byte> together(static_cast<std::size_t>((last - first) * size));
      gather(together.data());
      copy_numbers(together.data(), dtype, target);
    }
  }
};

void ExtentReader::copy_numbers(const std::byte* source, DType dtype, const Tensor& target) {
  const Context& context = target.context();
  // kernels read it only.
  const Tensor read = from_external(context.host(), const_cast<std::byte*>(source), target.shape(),
                                    dense_strides(target.shape()), dtype);
  kernels::copy_across(target, read);
  context.synchronize();  // before the bytes go
}

ExtentReader::ExtentReader(std::string folder, const Manifest& manifest)
    : folder_(std::move(folder)), manifest_(manifest) {
  for (std::uint32_t t = 0; t < manifest.tensors.size(); ++t)
    places_.emplace(Name(manifest.tensors[t].section, manifest.tensors[t].name), t);
}

std::string ExtentReader::path_of(const Extent& extent) const {
  return concat(folder_, '/', manifest_.files[extent.file].name);
}

void ExtentReader::check(std::string_view section, const TensorParts& parts, std::string_view complaint) const {
  check_tensors(manifest_.tensors_of(section), parts, complaint);
}

std::uint32_t ExtentReader::place_of(std::string_view section, std::string_view name) const {
  const auto found = places_.find(Name(section, name));
  KEEL_CHECK(found != places_.end(), "'", folder_, "' has no ", section, " tensor ", name);
  return found->second;
}

ReadCount ExtentReader::fill(std::string_view section, const TensorParts& parts) const {
  std::vector<Wish> wishes;
  for (const TensorPart& part : parts)
    if (part.numel() > 0)
      wishes.push_back(
          {place_of(section, part.name), BlockRuns(product(part.shape), part.begin, part.numel()), part.values});
  return fill(wishes);
}

ReadCount ExtentReader::fill(std::string_view section, std::span<const TensorBlock> blocks) const {
  std::vector<Wish> wishes;
  for (const TensorBlock& block : blocks) {
    const std::uint32_t place = place_of(section, block.name);
    const Dims &shape = manifest_.tensors[place].shape, &count = block.values.shape();
    KEEL_CHECK(block.shape == shape, "'", folder_, "' has ", block.name, ' ', shape, " instead of ", block.shape);
    bool is_inside = block.begin.size() == shape.size() && count.size() == shape.size();
    for (int d = 0; is_inside && d < shape.size(); ++d)
      is_inside = block.begin[d] >= 0 && count[d] <= shape[d] && block.begin[d] <= shape[d] - count[d];
    KEEL_CHECK(is_inside, "a block ", count, " at ", block.begin, " is no part of ", block.name, ' ', shape);
    if (block.values.numel() > 0)
      wishes.push_back({place, BlockRuns(shape, block.begin, count), block.values.flatten()});
  }
  return fill(wishes);
}

ReadCount ExtentReader::fill(const std::vector<Wish>& wishes) const {
  std::vector<Piece> pieces;
  for (const Wish& wish : wishes) add_pieces(wish, pieces);
  ReadCount count{.bytes = 0, .pieces = pieces.size()};
  read(std::move(pieces), [&](const Piece& piece, std::span<const std::byte> bytes) {
    piece.take(bytes, manifest_.tensors[piece.extent->tensor].dtype);
    count.bytes += bytes.size();
  });
  return count;
}

void ExtentReader::add_pieces(const Wish& wish, std::vector<Piece>& pieces) const {
  const std::int64_t run = wish.runs.run_length(),
                     gap = static_cast<std::int64_t>(kGapBytes / size_of(manifest_.tensors[wish.tensor].dtype));
  const Extent* before = nullptr;
  for (const Extent& extent : manifest_.extents_of(wish.tensor)) {
    if (before != nullptr && is_repeated(*before, extent)) continue;
    before = &extent;
    const std::int64_t first = wish.runs.before(extent.begin), last = wish.runs.before(extent.end);
    if (first == last) continue;
    if (manifest_.has_hashes) {
      pieces.push_back({&extent, extent.begin, extent.end, &wish, first, last});
      continue;
    }
    for (std::int64_t index = first, next = 0; index < last; index = next) {
      next = std::min(last, (index / run + 1) * run);
      const std::int64_t begin = wish.runs.place_of(index), end = begin + next - index;
      if (index > first && begin - pieces.back().end <= gap) {
        pieces.back().end = end;
        pieces.back().last = next;
      } else {
        pieces.push_back({&extent, begin, end, &wish, index, next});
      }
    }
  }
}

void ExtentReader::read(std::vector<Piece> pieces,
                        const std::function<void(const Piece&, std::span<const std::byte>)>& use) const {
  // As a disk likes it.
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tuple(a.extent->file, a.extent->offset, a.begin) <
           std::tuple(b.extent->file, b.extent->offset, b.begin);
  });
  read_sorted(pieces, kThreads, PieceOrder::any, use);
}

void ExtentReader::read_extents(std::span<const Extent* const> extents,
                                const std::function<void(std::span<const std::byte>)>& use) const {
  std::vector<Piece> pieces;
  for (const Extent* extent : extents) pieces.push_back({extent, extent->begin, extent->end});
  // One extent less, as another one arrives meanwhile.
  read_sorted(pieces, kThreads - 1, PieceOrder::ascending,
              [&](const Piece&, std::span<const std::byte> bytes) { use(bytes); });
}

void ExtentReader::read_sorted(std::span<const Piece> pieces, int threads, PieceOrder order,
                               const std::function<void(const Piece&, std::span<const std::byte>)>& use) const {
  const auto place = [&](std::size_t i) {
    const Piece& piece = pieces[i];
    const auto size = size_of(manifest_.tensors[piece.extent->tensor].dtype);
    return PieceOfFile{path_of(*piece.extent),
                       piece.extent->offset + static_cast<std::uint64_t>(piece.begin - piece.extent->begin) * size,
                       static_cast<std::size_t>(piece.end - piece.begin) * size};
  };
  const auto check_hash = [&](std::size_t i, std::span<const std::byte> bytes) {
    const Extent& extent = *pieces[i].extent;
    KEEL_CHECK(!manifest_.has_hashes || xxh3(bytes) == extent.hash, "'", path_of(extent),
               "' has changed since it was written: the hash of elements ", extent.begin, " to ", extent.end, " of ",
               manifest_.tensors[extent.tensor].name, " differs");
  };
  read_pieces(pieces.size(), threads, order, place, check_hash,
              [&](std::size_t i, std::span<const std::byte> bytes) { use(pieces[i], bytes); });
}

TensorParts ExtentReader::read(std::string_view section, const Context& host) const {
  TensorParts parts;
  for (const StoredTensor& tensor : manifest_.tensors)
    if (tensor.section == section)
      parts.push_back(
          {tensor.name, tensor.shape, 0, empty(host, {product(tensor.shape)}, tensor.dtype, Purpose::workspace)});
  fill(section, parts);
  return parts;
}

void ExtentReader::verify_heads(int index, int count, const Progress& progress) const {
  const Span share = part({0, static_cast<std::int64_t>(manifest_.files.size())}, count, index);
  for (std::int64_t i = share.begin; i < share.end; ++i) {
    const StoredFile& stored = manifest_.files[static_cast<std::size_t>(i)];
    if (stored.head == 0) continue;
    const auto file = open_when_visible(concat(folder_, '/', stored.name));
    Xxh3 hash;
    std::vector<std::byte> piece(std::min<std::uint64_t>(stored.head, kExtentBytes));
    for (std::uint64_t done = 0; done < stored.head; done += piece.size()) {
      const auto here = std::span(piece).first(std::min<std::uint64_t>(piece.size(), stored.head - done));
      file->read(done, here);
      hash.add(here);
      if (progress) progress(here.size());
    }
    KEEL_CHECK(hash.hash() == stored.hash, "'", file->path(), "' has changed since it was written (its hash differs)");
  }
}

void ExtentReader::verify_extents(std::vector<const Extent*> extents, int index, int count,
                                  const Progress& progress) const {
  if (!manifest_.has_hashes) return;
  std::sort(extents.begin(), extents.end(), lies_before);
  const Span share = part({0, static_cast<std::int64_t>(extents.size())}, count, index);
  std::vector<Piece> pieces;
  for (std::int64_t i = share.begin; i < share.end; ++i) {
    const Extent* extent = extents[static_cast<std::size_t>(i)];
    pieces.push_back({extent, extent->begin, extent->end});
  }
  read(std::move(pieces), [&](const Piece&, std::span<const std::byte> bytes) {
    if (progress) progress(bytes.size());
  });
}

void ExtentReader::verify(int index, int count, const Progress& progress) const {
  verify_heads(index, count, progress);
  std::vector<const Extent*> all;
  for (const Extent& extent : manifest_.extents) all.push_back(&extent);
  verify_extents(std::move(all), index, count, progress);
}

std::uint64_t ExtentReader::bytes_with_hash() const {
  std::uint64_t sum = 0;
  for (const StoredFile& file : manifest_.files) sum += file.head;
  if (manifest_.has_hashes)
    for (const Extent& extent : manifest_.extents) sum += manifest_.bytes_of(extent);
  return sum;
}

void ExtentReader::verify_rest(int index, int count) const {
  verify_heads(index, count, {});
  std::vector<const Extent*> again;
  for (std::size_t i = 1; i < manifest_.extents.size(); ++i)
    if (is_repeated(manifest_.extents[i - 1], manifest_.extents[i])) again.push_back(&manifest_.extents[i]);
  verify_extents(std::move(again), index, count, {});
}

}  // namespace keel
