#include <algorithm>
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

std::string json_of(const std::vector<SafetensorsEntry>& entries, const Metadata& metadata) {
  std::string text = "{";
  const auto add = [&text](std::string_view key, const Json& value) {
    text += text.size() > 1 ? "," : "";
    text += Json(key).dump() + ":" + value.dump();
  };
  try {
    Json texts;
    for (const auto& [key, value] : metadata) texts[key] = value;
    if (!metadata.empty()) add(format::kMetadataKey, texts);
    for (const SafetensorsEntry& entry : entries) {
      const std::vector<std::int64_t> shape(entry.shape.begin(), entry.shape.end());
      add(entry.name, {{"data_offsets", Json::array({entry.offset, entry.offset + entry.bytes})},
                       {"dtype", written_name(entry.dtype)},
                       {"shape", shape}});
    }
  } catch (const JsonError&) { throw Error("a tensor's name or the metadata are not valid UTF-8"); }
  return text + "}";
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

SafetensorsLayout lay_out_safetensors(std::vector<SafetensorsEntry> tensors, const Metadata& metadata,
                                      SafetensorsOrder order, std::size_t alignment) {
  std::set<std::string_view> names;
  for (const SafetensorsEntry& entry : tensors) {
    KEEL_CHECK(names.insert(entry.name).second, "two tensors have the name '", entry.name, "'");
    KEEL_CHECK(entry.name != format::kMetadataKey, "the format reserves the name '", entry.name, "'");
  }
  if (order == SafetensorsOrder::sorted)
    std::sort(tensors.begin(), tensors.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
      const std::size_t width_a = size_of(a.dtype), width_b = size_of(b.dtype);
      return width_a != width_b ? width_a > width_b : a.name < b.name;
    });
  std::uint64_t end = 0;
  for (SafetensorsEntry& entry : tensors) {
    entry.offset = end;
    entry.bytes = static_cast<std::size_t>(product(entry.shape)) * size_of(entry.dtype);
    end += entry.bytes;
  }
  std::string json = json_of(tensors, metadata);
  const std::size_t head = (format::kLengthBytes + json.size() + alignment - 1) / alignment * alignment;
  json.resize(head - format::kLengthBytes, ' ');
  KEEL_CHECK(json.size() <= format::kMaxHeaderBytes, "the header would have ", json.size(), " bytes, more than the ",
             format::kMaxHeaderBytes, " that the format allows");
  for (SafetensorsEntry& entry : tensors) entry.offset += head;
  const std::uint64_t length = json.size();
  return {std::string(reinterpret_cast<const char*>(&length), sizeof length) + json, std::move(tensors), head + end};
}

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors, const Metadata& metadata,
                       SafetensorsOrder order) {
  std::unordered_map<std::string_view, const Tensor*> values;
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    KEEL_CHECK(tensor.defined(), "'", path, "' is not written: there are no numbers in tensor '", name, "'");
    values.emplace(name, &tensor);
    entries.push_back({name, tensor.dtype(), tensor.shape()});
  }
  SafetensorsLayout layout;
  try {
    layout = lay_out_safetensors(std::move(entries), metadata, order);
  } catch (const Error& error) { throw Error(concat("'", path, "' is not written: "), error); }
  AtomicFile file(path);
  file.write(layout.head);
  for (const SafetensorsEntry& entry : layout.entries) write_numbers(file, *values.at(entry.name));
  file.commit();
}

}  // namespace keel
