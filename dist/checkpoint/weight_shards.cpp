#include "keel/dist/checkpoint/weight_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "keel/dist/checkpoint/weights_writer.h"
#include "keel/runtime/error.h"
#include "keel/runtime/json.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeightMap = "weight_map";

// Of an index: the file of each tensor.
std::map<std::string, std::string> parse_index(const std::string& path) {
  const std::string text = read_text_file(path);
  std::map<std::string, std::string> places;
  try {
    const Json index = Json::parse(text);
    for (const auto& [tensor, file] : index.at(kWeightMap).members()) {
      const std::string& name = file.string();
      KEEL_CHECK(!name.empty() && name.find('/') == std::string::npos && name != "." && name != "..", "'",
                 printable(name, 64), "' is no name of a file beside it");
      places.emplace(tensor, name);
    }
    KEEL_CHECK(!places.empty(), "it names no tensor");
  } catch (const Error& error) { throw Error(concat("'", path, "' is no index of weights: "), error); }
  return places;
}

std::vector<std::string> files_of(const std::map<std::string, std::string>& places) {
  std::set<std::string> files;
  for (const auto& [tensor, file] : places) files.insert(file);
  return {files.begin(), files.end()};
}

// The files, that each is there, and that it has the tensors that the index says and no others.
void check_files(const std::string& path, const std::map<std::string, std::string>& places, const std::string& folder) {
  const std::vector<std::string> files = files_of(places);
  for (const std::string& file : files)
    KEEL_CHECK(fs::exists(concat(folder, '/', file)), "'", path, "' names the file '", file,
               "', which is not there; copy all files of the index");
  std::map<std::string, SafetensorsFile> opened;
  for (const std::string& file : files) opened.emplace(file, SafetensorsFile(concat(folder, '/', file)));
  for (const auto& [tensor, file] : places)
    KEEL_CHECK(opened.at(file).contains(tensor), "'", path, "' says that '", printable(tensor, 64), "' is in '", file,
               "', which does not have it");
  for (const auto& [name, file] : opened)
    for (const SafetensorsEntry& entry : file.entries()) {
      const auto place = places.find(entry.name);
      KEEL_CHECK(place != places.end(), "'", folder, '/', name, "' has '", printable(entry.name, 64), "', which '",
                 path, "' does not name");
      KEEL_CHECK(place->second == name, "'", folder, '/', name, "' has '", printable(entry.name, 64), "', which '",
                 path, "' says to be in '", place->second, "'");
    }
}

}  // namespace

std::string shard_name(std::size_t shard, std::size_t shards) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard, shards);
}

bool is_of_shards(std::string_view name) {
  if (name == kShardIndex) return true;
  std::string pattern(name);
  for (char& each : pattern)
    if (each >= '0' && each <= '9') each = '0';
  return pattern == "model-00000-of-00000.safetensors";
}

std::vector<std::vector<SafetensorsEntry>> divide_into_shards(const std::vector<SafetensorsEntry>& tensors,
                                                              std::uint64_t most) {
  std::vector<std::vector<SafetensorsEntry>> shards;
  std::uint64_t room = 0;
  for (const SafetensorsEntry& tensor : tensors) {
    if (shards.empty() || tensor.bytes > room) {
      shards.emplace_back();
      room = most;
    }
    shards.back().push_back(tensor);
    room -= std::min<std::uint64_t>(room, tensor.bytes);
  }
  return shards;
}

void check_number_of_shards(std::size_t shards) {
  KEEL_CHECK(shards < 100000, "there would be ", shards, " files, and names have room for 99999");
}

std::string shard_index_text(const std::vector<std::vector<SafetensorsEntry>>& shards) {
  std::uint64_t bytes = 0;
  std::map<std::string, std::string> places;
  for (std::size_t i = 0; i < shards.size(); ++i)
    for (const SafetensorsEntry& tensor : shards[i]) {
      bytes += tensor.bytes;
      places.emplace(tensor.name, shard_name(i + 1, shards.size()));
    }
  std::string text =
      fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"{}\": {{", bytes, kWeightMap);
  const char* separator = "\n";
  for (const auto& [tensor, file] : places) {
    text += fmt::format("{}    {}: {}", separator, Json(tensor).dump(), Json(file).dump());
    separator = ",\n";
  }
  return text + "\n  }\n}\n";
}

std::size_t export_shards(const std::string& folder, const Manifest& manifest, const std::string& target,
                          std::uint64_t most, IfExists if_exists, DType dtype,
                          const std::function<void(std::uint64_t bytes)>& progress, std::string_view section) {
  const WeightsWriter writer(folder, manifest, section, dtype, progress);
  const std::vector<std::vector<SafetensorsEntry>> shards = divide_into_shards(writer.tensors(), most);
  check_number_of_shards(shards.size());
  AtomicFolder written(target, if_exists);
  writer.verify();
  for (std::size_t i = 0; i < shards.size(); ++i)
    writer.write(concat(written.temporary(), '/', shard_name(i + 1, shards.size())), shards[i]);
  write_text_file(concat(written.temporary(), '/', kShardIndex), shard_index_text(shards));
  written.commit(true);
  return shards.size();
}

std::vector<std::string> files_of_index(const std::string& index) { return files_of(parse_index(index)); }

Manifest describe_shards(const std::string& index, std::string_view section) {
  const std::map<std::string, std::string> places = parse_index(index);
  const fs::path parent = fs::path(index).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  check_files(index, places, folder);
  return describe_files(folder, section, files_of(places));
}

}  // namespace keel
