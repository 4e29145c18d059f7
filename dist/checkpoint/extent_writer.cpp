#include "keel/dist/checkpoint/extent_writer.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

// Elements of a tensor in one extent: where extents of different ranks meet does not follow from how the tensor is cut.
std::int64_t extent_elements(DType dtype) { return kExtentBytes / static_cast<std::int64_t>(size_of(dtype)); }

Hash128 write_extent(SectionTarget& target, const Tensor& values) {
  Xxh3 hash;
  read_once(values, [&](std::span<const std::byte> piece) { target.write(piece, hash); });
  return hash.hash();
}

class FileTarget : public SectionTarget {
 public:
  explicit FileTarget(std::string path) : file_(std::move(path)) {}
  void write(std::span<const std::byte> bytes, Xxh3& hash) override {
    file_.write(bytes);
    hash.add(bytes);
  }
  void commit() override { file_.commit(); }

 private:
  AtomicFile file_;
};

}  // namespace

Manifest write_section(const Section& section,
                       const std::function<std::unique_ptr<SectionTarget>(std::uint64_t bytes)>& open,
                       const std::atomic<bool>& cancelled) {
  Manifest written;
  std::vector<SafetensorsEntry> entries;
  std::unordered_map<std::string, std::uint32_t> places;  // of parts, by name in the file
  TensorParts parts;
  for (const TensorPart& part : section.parts) {
    const NamedTensors named = named_parts({part});
    if (named.empty()) continue;
    places.emplace(named.front().first, static_cast<std::uint32_t>(parts.size()));
    entries.push_back({named.front().first, part.values.dtype(), named.front().second.shape()});
    written.tensors.push_back({section.name, part.name, part.values.dtype(), part.shape});
    parts.push_back(part);
  }
  if (parts.empty()) return written;
  const SafetensorsLayout layout =
      lay_out_safetensors(std::move(entries), section.metadata, SafetensorsOrder::sorted, kPageBytes);
  const std::unique_ptr<SectionTarget> target = open(layout.bytes);
  Xxh3 head;
  target->write(std::as_bytes(std::span(layout.head)), head);
  std::uint64_t offset = layout.head.size();
  for (const SafetensorsEntry& entry : layout.entries) {
    const std::uint32_t place = places.at(entry.name);
    const TensorPart& part = parts[place];
    const std::int64_t step = extent_elements(entry.dtype);
    for (std::int64_t begin = part.begin; begin < part.end();) {
      KEEL_CHECK(!cancelled, "the save was given up");
      const std::int64_t end = std::min(part.end(), (begin / step + 1) * step);
      const Tensor values = part.values.slice(0, begin - part.begin, end - part.begin);
      written.extents.push_back({place, 0, begin, end, offset, write_extent(*target, values)});
      offset += values.bytes();
      begin = end;
    }
  }
  written.files.push_back({section.file, offset, layout.head.size(), head.hash()});
  target->commit();
  return written;
}

Manifest write_section(const std::string& folder, const Section& section, const std::atomic<bool>& cancelled) {
  const auto open = [&](std::uint64_t) { return std::make_unique<FileTarget>(concat(folder, '/', section.file)); };
  return write_section(section, open, cancelled);
}

}  // namespace keel
