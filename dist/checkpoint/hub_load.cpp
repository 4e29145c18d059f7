// From files of Hugging Face's form into an engine's weights.

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/dist/checkpoint/hub_weights.h"
#include "keel/dist/comm/agreement.h"
#include "keel/kernels/elementwise.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

constexpr const char* kHubSection = "weights";

// Tensors that are there twice, as a tied head is in some files, must agree; else nobody knows which one counts.
void check_equal(const ExtentReader& reader, const Manifest& manifest, const HubMatch& match,
                 const std::string& folder) {
  if (match.twice.empty()) return;
  const Context host = Context::create({.threads = 1});
  constexpr std::int64_t kStep = kExtentBytes / static_cast<std::int64_t>(sizeof(float));
  const auto shape_of = [&](const std::string& name) -> const Dims& {
    return std::ranges::find(manifest.tensors, name, &StoredTensor::name)->shape;
  };
  for (const auto& [first, second] : match.twice) {
    const Dims& shape = shape_of(first);
    for (std::int64_t begin = 0, all = product(shape); begin < all; begin += kStep) {
      const std::int64_t count = std::min(kStep, all - begin);
      const TensorPart a{first, shape, begin, empty(host, {count}, DType::f32, Purpose::workspace)};
      const TensorPart b{second, shape, begin, empty(host, {count}, DType::f32, Purpose::workspace)};
      reader.fill(kHubSection, TensorParts{a, b});
      KEEL_CHECK(std::memcmp(a.values.raw(), b.values.raw(), a.values.bytes()) == 0, "'", folder, "' has '",
                 printable(first, 128), "' and '", printable(second, 128),
                 "' with different numbers, and they are one parameter of the model");
    }
  }
}

// Rows [row, row + rows) by columns [column, column + columns) of a matrix.
struct MatrixBlock {
  std::int64_t row, rows, column, columns;
};

// Elements [begin, end) of a matrix with so many columns: what is left of a row, whole rows, the beginning of one.
std::vector<MatrixBlock> blocks_between(std::int64_t begin, std::int64_t end, std::int64_t columns) {
  std::vector<MatrixBlock> blocks;
  for (std::int64_t at = begin; at < end; at += blocks.back().rows * blocks.back().columns) {
    const std::int64_t row = at / columns, column = at % columns;
    if (column == 0 && end - at >= columns) blocks.push_back({row, (end - at) / columns, 0, columns});
    else blocks.push_back({row, 1, column, std::min(columns - column, end - at)});
  }
  return blocks;
}

// Fills a part of a parameter (out, in) from a tensor (in, out), by as many of its rows at a time as an extent has room
// for.
void fill_turned(const ExtentReader& reader, const HubTensor& tensor, DType dtype, const TensorPart& part) {
  const Context& context = part.values.context();
  std::int64_t done = 0;
  for (const MatrixBlock& block : blocks_between(part.begin, part.end(), tensor.shape[0])) {
    const Tensor target =
        part.values.slice(0, done, done + block.rows * block.columns).view({block.rows, block.columns});
    done += block.rows * block.columns;
    const std::int64_t step =
        std::max<std::int64_t>(1, kExtentBytes / (block.rows * static_cast<std::int64_t>(size_of(dtype))));
    for (std::int64_t begin = 0; begin < block.columns; begin += step) {
      const std::int64_t count = std::min(step, block.columns - begin);
      const Tensor values = empty(context.host(), {count, block.rows}, dtype, Purpose::workspace);
      const TensorBlock rows{tensor.name, tensor.shape, {block.column + begin, block.row}, values};
      reader.fill(kHubSection, std::span(&rows, 1));
      kernels::copy_into(target.slice(1, begin, begin + count), kernels::to(values, context).transpose(0, 1));
      context.synchronize();  // before the values go
    }
  }
}

// What of a part lies in the tensor, as a part of that one; nothing where none does.
std::optional<TensorPart> inside(const HubTensor& tensor, const TensorPart& part) {
  const std::int64_t row =
      tensor.shape.empty() ? 1 : product(tensor.shape) / std::max<std::int64_t>(tensor.shape[0], 1);
  const std::int64_t first = tensor.first_row * row, last = first + product(tensor.shape);
  const std::int64_t begin = std::max(part.begin, first), end = std::min(part.end(), last);
  if (begin >= end) return std::nullopt;
  return TensorPart{tensor.name, tensor.shape, begin - first,
                    part.values.slice(0, begin - part.begin, end - part.begin)};
}

}  // namespace

std::vector<std::string> load_hub_weights(const std::string& folder, const Manifest& manifest, const HubNames& names,
                                          Sharded& engine, Communicator& ranks) {
  const ExtentReader reader(folder, manifest);
  HubMatch match;
  together(ranks, [&] {
    match = match_hub_tensors(manifest, names, folder);
    if (ranks.rank() == 0) check_equal(reader, manifest, match, folder);
  });
  std::multimap<std::string, const HubTensor*> tensors;  // by parameter
  for (const HubTensor& each : match.tensors) tensors.emplace(each.parameter, &each);
  TensorParts straight;
  std::vector<std::pair<const HubTensor*, TensorPart>> turned;
  for (const TensorPart& part : engine.weights()) {
    if (part.numel() == 0) continue;
    const auto [begin, end] = tensors.equal_range(part.name);
    for (auto each = begin; each != end; ++each) {
      if (each->second->transposed) turned.emplace_back(each->second, part);
      else if (std::optional<TensorPart> own = inside(*each->second, part)) straight.push_back(*std::move(own));
    }
  }
  std::map<std::string_view, DType> dtypes;
  for (const StoredTensor& each : manifest.tensors) dtypes.emplace(each.name, each.dtype);
  engine.wait_until_released();
  reader.fill_among(kHubSection, straight, ranks);
  together(ranks, [&] {
    for (const auto& [tensor, part] : turned) fill_turned(reader, *tensor, dtypes.at(tensor->name), part);
  });
  engine.adopt_weights();
  engine.restart_groups();
  return match.notes;
}

}  // namespace keel
