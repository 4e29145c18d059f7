#include <algorithm>
#include <numeric>
#include <set>

#include "keel/data/safetensors.h"
#include "keel/data/safetensors_format.h"
#include "keel/runtime/json.h"

namespace keel {
namespace {

namespace format = safetensors;

// A view that is not dense is copied in pieces of about this size.
constexpr std::int64_t kPieceBytes = 1 << 20;

std::string_view written_name(DType dtype) {
  for (const format::DTypeName& row : format::kDTypeNames)
    if (row.dtype == dtype) return row.name;
  throw Error(concat("safetensors has no name for ", dtype), ErrorKind::unsupported);
}

std::vector<std::size_t> order_of(std::span<const NamedTensor> tensors, SafetensorsOrder order) {
  std::vector<std::size_t> indices(tensors.size());
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  if (order == SafetensorsOrder::given) return indices;
  std::sort(indices.begin(), indices.end(), [&](std::size_t a, std::size_t b) {
    const std::size_t width_a = size_of(tensors[a].second.dtype()), width_b = size_of(tensors[b].second.dtype());
    return width_a != width_b ? width_a > width_b : tensors[a].first < tensors[b].first;
  });
  return indices;
}

std::string header_of(std::span<const NamedTensor> tensors, const std::vector<std::size_t>& order,
                      const Metadata& metadata) {
  std::string text = "{";
  const auto add = [&text](std::string_view key, const Json& value) {
    text += text.size() > 1 ? "," : "";
    text += Json(key).dump() + ":" + value.dump();
  };
  try {
    Json texts;
    for (const auto& [key, value] : metadata) texts[key] = value;
    if (!metadata.empty()) add(format::kMetadataKey, texts);
    std::size_t offset = 0;
    for (const std::size_t i : order) {
      const auto& [name, tensor] = tensors[i];
      const std::vector<std::int64_t> shape(tensor.shape().begin(), tensor.shape().end());
      const std::size_t end = offset + tensor.bytes();
      add(name,
          {{"data_offsets", Json::array({offset, end})}, {"dtype", written_name(tensor.dtype())}, {"shape", shape}});
      offset = end;
    }
  } catch (const JsonError&) { throw Error("a tensor's name or the metadata are not valid UTF-8"); }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  KEEL_CHECK(text.size() <= format::kMaxHeaderBytes, "the header would have ", text.size(), " bytes, more than the ",
             format::kMaxHeaderBytes, " that the format allows");
  return text;
}

void write_numbers(AtomicFile& file, const Tensor& tensor) {
  const std::int64_t rows = tensor.rank() == 0 ? 1 : tensor.dim(0);
  if (tensor.numel() == 0) return;
  if (tensor.is_contiguous() && tensor.device().type == DeviceType::cpu) {
    file.write({tensor.raw(), tensor.bytes()});
    return;
  }
  const std::int64_t piece = std::max<std::int64_t>(1, kPieceBytes * rows / static_cast<std::int64_t>(tensor.bytes()));
  for (std::int64_t begin = 0; begin < rows; begin += piece) {
    const Tensor part = tensor.rank() == 0 ? tensor : tensor.slice(0, begin, std::min(rows, begin + piece));
    visit_dtype(part.dtype(), [&](auto tag) {
      const auto values = part.to_vector<typename decltype(tag)::type>();
      file.write(std::as_bytes(std::span(values)));
    });
  }
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors, const Metadata& metadata,
                       SafetensorsOrder order) {
  const auto check = [&](bool holds, std::string_view name, std::string_view reason) {
    KEEL_CHECK(holds, "'", path, "' is not written: ", reason, " '", name, "'");
  };
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    check(tensor.defined(), name, "there are no numbers in tensor");
    check(names.insert(name).second, name, "two tensors have the name");
    check(name != format::kMetadataKey, name, "the format reserves the name");
  }
  const std::vector<std::size_t> indices = order_of(tensors, order);
  const std::string header = header_of(tensors, indices, metadata);
  AtomicFile file(path);
  const std::uint64_t length = header.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const std::size_t i : indices) write_numbers(file, tensors[i].second);
  file.commit();
}

}  // namespace keel
