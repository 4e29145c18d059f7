#include "keel/dist/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/old_formats.h"
#include "keel/dist/checkpoint/sealed_text.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr int kOldestFormat = 2;

// The texts of a list, a line each.
template <class Items, class Row>
std::string rows(std::string_view name, const Items& items, const Row& row) {
  std::string text = fmt::format(",\n  \"{}\": [", name);
  std::string_view between = "\n    ";
  for (const auto& item : items) {
    text += between;
    text += row(item);
    between = ",\n    ";
  }
  return text + (items.empty() ? "]" : "\n  ]");
}

std::string rows_of(const Manifest& manifest) {
  std::string text = rows("files", manifest.files, [](const StoredFile& file) {
    return fmt::format("[{}, {}, {}, \"{}\"]", Json(file.name).dump(), file.bytes, file.head, text_of(file.hash));
  });
  text += rows("tensors", manifest.tensors, [](const StoredTensor& tensor) {
    const std::vector<std::int64_t> shape(tensor.shape.begin(), tensor.shape.end());
    return Json::array({tensor.section, tensor.name, name_of(tensor.dtype), shape}).dump();
  });
  text += rows("extents", manifest.extents, [](const Extent& extent) {
    return fmt::format("[{}, {}, {}, {}, {}, \"{}\"]", extent.tensor, extent.file, extent.begin, extent.end,
                       extent.offset, text_of(extent.hash));
  });
  return text;
}

std::uint64_t natural(const Json& json) {
  KEEL_CHECK(json.integer() >= 0, json.integer(), " is negative");
  return static_cast<std::uint64_t>(json.integer());
}

std::uint32_t index_in(const Json& json, std::size_t count) {
  const std::uint64_t index = natural(json);
  KEEL_CHECK(index < count, "there is no ", index, "-th of ", count);
  return static_cast<std::uint32_t>(index);
}

const std::vector<Json>& row_of(const Json& json, std::size_t count) {
  KEEL_CHECK(json.items().size() == count, "a row has ", json.items().size(), " entries instead of ", count);
  return json.items();
}

Manifest parse_rows(const Json& json) {
  Manifest manifest;
  for (const Json& each : json.at("files").items()) {
    const auto& row = row_of(each, 4);
    const std::string& name = row[0].string();
    check_file_name(name);
    manifest.files.push_back({name, natural(row[1]), natural(row[2]), parse_hash(row[3].string())});
    KEEL_CHECK(manifest.files.back().head <= manifest.files.back().bytes, "'", name, "' is shorter than its head");
  }
  for (const Json& each : json.at("tensors").items()) {
    const auto& row = row_of(each, 4);
    std::vector<std::int64_t> shape;
    for (const Json& extent : row[3].items()) shape.push_back(static_cast<std::int64_t>(natural(extent)));
    KEEL_CHECK(shape.size() <= kMaxRank, "'", row[1].string(), "' has ", shape.size(), " dimensions");
    manifest.tensors.push_back({row[0].string(), row[1].string(), parse_dtype(row[2].string()), Dims(shape)});
  }
  for (const Json& each : json.at("extents").items()) {
    const auto& row = row_of(each, 6);
    manifest.extents.push_back({index_in(row[0], manifest.tensors.size()), index_in(row[1], manifest.files.size()),
                                row[2].integer(), row[3].integer(), natural(row[4]), parse_hash(row[5].string())});
  }
  return manifest;
}

std::string title(const StoredTensor& tensor) {
  return concat(tensor.section, " tensor ", tensor.name, ' ', tensor.shape);
}

// Elements of a tensor whose bytes can be counted.
std::int64_t elements_of(const StoredTensor& tensor) {
  auto bytes = static_cast<std::int64_t>(size_of(tensor.dtype));
  for (const std::int64_t extent : tensor.shape)
    KEEL_CHECK(!__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes), title(tensor),
               " has more bytes than can be counted");
  return product(tensor.shape);
}

bool comes_before(const Extent& a, const Extent& b) {
  return std::tie(a.tensor, a.begin, a.end) < std::tie(b.tensor, b.begin, b.end);
}

void check_place(const Manifest& manifest, const Extent& extent, std::int64_t elements) {
  const StoredTensor& tensor = manifest.tensors[extent.tensor];
  const StoredFile& file = manifest.files[extent.file];
  KEEL_CHECK(0 <= extent.begin && extent.begin < extent.end && extent.end <= elements, "elements ", extent.begin,
             " to ", extent.end, " are none of ", title(tensor));
  KEEL_CHECK(manifest.bytes_of(extent) <= static_cast<std::uint64_t>(kExtentBytes), title(tensor), " has an extent of ",
             manifest.bytes_of(extent), " bytes");
  KEEL_CHECK(extent.offset <= file.bytes && manifest.bytes_of(extent) <= file.bytes - extent.offset, title(tensor),
             " has an extent of ", manifest.bytes_of(extent), " bytes at ", extent.offset, " of ", file.name,
             ", which has ", file.bytes);
}

// Every element of every tensor is there, once. Extents are sorted.
void check_coverage(const Manifest& manifest) {
  std::set<std::string_view> files;
  for (const StoredFile& file : manifest.files)
    KEEL_CHECK(files.insert(file.name).second, "two ranks have written '", file.name, "'");
  std::set<std::pair<std::string_view, std::string_view>> names;
  for (std::uint32_t t = 0; t < manifest.tensors.size(); ++t) {
    const StoredTensor& tensor = manifest.tensors[t];
    KEEL_CHECK(names.emplace(tensor.section, tensor.name).second, title(tensor), " appears twice");
    const std::int64_t elements = elements_of(tensor);
    std::int64_t next = 0;
    const Extent* before = nullptr;
    for (const Extent& extent : manifest.extents_of(t)) {
      check_place(manifest, extent, elements);
      if (before != nullptr && is_repeated(*before, extent)) continue;
      KEEL_CHECK(extent.begin == next, title(tensor), " has no element ", next, ", or different ones of one number");
      next = extent.end;
      before = &extent;
    }
    KEEL_CHECK(next == elements, title(tensor), " has no elements ", next, " to ", elements);
  }
}

// Calls f with the JSON of a text that ends with its hash, or has none.
Manifest parse_sealed(std::string_view text, const std::string& path,
                      const std::function<Manifest(const Json& json, bool is_sealed)>& f) {
  const bool is_sealed = check_seal(text, path);
  try {
    return f(Json::parse(text), is_sealed);
  } catch (const JsonError&) {
    throw Error(concat("'", path, "' is malformed: it is not what keel writes"));
  } catch (const Error& error) { throw Error(concat("'", path, "' cannot be read: "), error); }
}

}  // namespace

std::uint64_t Manifest::bytes() const {
  std::uint64_t sum = 0;
  for (const StoredFile& file : files) sum += file.bytes;
  return sum;
}

std::uint64_t Manifest::bytes_of(const Extent& extent) const {
  return static_cast<std::uint64_t>(extent.end - extent.begin) * size_of(tensors[extent.tensor].dtype);
}

bool is_repeated(const Extent& before, const Extent& extent) {
  return before.tensor == extent.tensor && before.begin == extent.begin && before.end == extent.end;
}

std::span<const Extent> Manifest::extents_of(std::uint32_t tensor) const {
  const auto [first, last] = std::equal_range(extents.begin(), extents.end(), Extent{.tensor = tensor},
                                              [](const Extent& a, const Extent& b) { return a.tensor < b.tensor; });
  return {first, last};
}

TensorParts Manifest::tensors_of(std::string_view section) const {
  TensorParts parts;
  for (const StoredTensor& tensor : tensors)
    if (tensor.section == section) parts.push_back({tensor.name, tensor.shape});
  return parts;
}

std::vector<std::string> Manifest::sections(std::string_view beginning) const {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : tensors)
    if (tensor.section.starts_with(beginning) && std::find(names.begin(), names.end(), tensor.section) == names.end())
      names.push_back(tensor.section);
  return names;
}

void check_file_name(const std::string& name) {
  KEEL_CHECK(!name.empty() && name.find('/') == std::string::npos && name != "." && name != "..", "'", name,
             "' is no name of a file in a checkpoint");
}

std::string disagreement(const Manifest& manifest) {
  for (std::size_t i = 1; i < manifest.extents.size(); ++i) {
    const Extent& extent = manifest.extents[i];
    if (is_repeated(manifest.extents[i - 1], extent) && manifest.extents[i - 1].hash != extent.hash)
      return concat("ranks have different numbers in ", title(manifest.tensors[extent.tensor]), "; those of ",
                    manifest.files[manifest.extents[i - 1].file].name, " count");
  }
  return {};
}

std::string part_text(const Manifest& part) {
  return with_seal(concat("{\n  \"hashes\": ", part.has_hashes ? "true" : "false", rows_of(part), "\n}\n"));
}

Manifest parse_part(std::string_view text, const std::string& path) {
  return parse_sealed(text, path, [](const Json& json, bool is_sealed) {
    KEEL_CHECK(is_sealed, "it does not end with its own hash");
    Manifest part = parse_rows(json);
    part.has_hashes = json.at("hashes").boolean();
    return part;
  });
}

void ManifestJoin::add(const Manifest& part) {
  std::vector<std::uint32_t> place_of;
  for (const StoredTensor& tensor : part.tensors) {
    const auto [found, is_new] = places_.emplace(std::pair(tensor.section, tensor.name), joined_.tensors.size());
    if (is_new) joined_.tensors.push_back(tensor);
    KEEL_CHECK(joined_.tensors[found->second] == tensor, "ranks disagree about ", title(tensor));
    place_of.push_back(found->second);
  }
  const auto first_file = static_cast<std::uint32_t>(joined_.files.size());
  joined_.files.insert(joined_.files.end(), part.files.begin(), part.files.end());
  for (Extent extent : part.extents) {
    extent.tensor = place_of[extent.tensor];
    extent.file += first_file;
    joined_.extents.push_back(extent);
  }
  joined_.has_hashes &= part.has_hashes;
}

Manifest ManifestJoin::finish() && {
  std::stable_sort(joined_.extents.begin(), joined_.extents.end(), comes_before);
  check_coverage(joined_);
  return std::move(joined_);
}

std::string manifest_text(const Manifest& manifest) {
  std::string state = manifest.state.dump(2);
  for (std::size_t at = state.find('\n'); at != std::string::npos; at = state.find('\n', at + 1))
    state.replace(at, 1, "\n  ");
  return with_seal(
      fmt::format("{{\n  \"format\": {},\n  \"state\": {}{}\n}}\n", Manifest::kFormat, state, rows_of(manifest)));
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  return parse_sealed(text, path, [](const Json& json, bool is_sealed) {
    const std::int64_t format = json.at("format").integer();
    KEEL_CHECK(format == Manifest::kFormat, "it has format ", format, ", and this version of keel reads ",
               kOldestFormat, " to ", Manifest::kFormat, format > Manifest::kFormat ? "; a newer one wrote it" : "");
    KEEL_CHECK(is_sealed, "it does not end with its own hash");
    Manifest manifest = parse_rows(json);
    manifest.state = json.at("state");
    KEEL_CHECK(std::is_sorted(manifest.extents.begin(), manifest.extents.end(), comes_before),
               "its extents are not in their order");
    check_coverage(manifest);
    return manifest;
  });
}

Manifest describe_files(const std::string& folder, std::string_view section, std::span<const std::string> names) {
  Manifest manifest;
  manifest.has_hashes = false;
  std::map<std::string, std::uint32_t> places;
  for (const std::string& name : names) {
    const SafetensorsFile file(concat(folder, '/', name));
    for (const SafetensorsEntry& entry : file.entries()) {
      const PartName part = parse_part_name(entry.name, entry.shape);
      const auto [found, is_new] = places.emplace(part.name, manifest.tensors.size());
      if (is_new) manifest.tensors.push_back({std::string(section), part.name, entry.dtype, part.shape});
      const std::int64_t step = kExtentBytes / static_cast<std::int64_t>(size_of(entry.dtype));
      for (std::int64_t begin = part.begin; begin < part.end;) {
        const std::int64_t end = std::min(part.end, (begin / step + 1) * step);
        const auto before = static_cast<std::uint64_t>(begin - part.begin) * size_of(entry.dtype);
        manifest.extents.push_back({.tensor = found->second,
                                    .file = static_cast<std::uint32_t>(manifest.files.size()),
                                    .begin = begin,
                                    .end = end,
                                    .offset = entry.offset + before});
        begin = end;
      }
    }
    manifest.files.push_back({.name = name, .bytes = file.bytes()});
  }
  ManifestJoin whole;
  whole.add(manifest);
  return std::move(whole).finish();
}

bool is_checkpoint(const std::string& folder) {
  std::error_code ignored;
  return fs::exists(concat(folder, '/', Manifest::kFile), ignored) ||
         fs::exists(concat(folder, '/', kOldStateFile), ignored);
}

Manifest read_manifest(const std::string& folder) {
  std::error_code code;
  const std::string path = concat(folder, '/', Manifest::kFile);
  const bool is_old = !fs::exists(path, code) && fs::exists(concat(folder, '/', kOldStateFile), code);
  Manifest manifest = is_old ? read_old_format(folder) : parse_manifest(read_text_file(path), path);
  for (const StoredFile& file : manifest.files) {
    const std::string name = concat(folder, '/', file.name);
    const std::uint64_t bytes = fs::file_size(name, code);
    if (code) throw Error(concat("cannot read '", name, "': ", code.message()), ErrorKind::io);
    KEEL_CHECK(bytes == file.bytes, "'", name, "' has ", bytes, " bytes instead of ", file.bytes);
  }
  return manifest;
}

}  // namespace keel
