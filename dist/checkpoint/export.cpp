#include "keel/dist/checkpoint/export.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "keel/dist/checkpoint/weights_writer.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeights = "weights", kStack = "stack.", kWeightsOfStack = ".weights";

// A second name of a file, or a copy where the file system has no such names.
void link_file(const std::string& source, const std::string& target) {
  std::error_code code;
  // Between two names of one file rename() does nothing, and would leave both.
  if (fs::equivalent(source, target, code)) return;
  const std::string temporary = temporary_beside(target);
  fs::create_hard_link(source, temporary, code);
  if (code) fs::copy_file(source, temporary, fs::copy_options::overwrite_existing, code);
  if (!code) fs::rename(temporary, target, code);
  if (!code) return;
  std::error_code ignored;
  fs::remove(temporary, ignored);
  throw Error(concat("cannot write '", target, "': ", code.message()), ErrorKind::io);
}

void write_whole(const WeightsWriter& writer, const std::string& target) {
  writer.verify();
  writer.write(target, writer.tensors());
}

}  // namespace

void export_weights(const std::string& folder, const Manifest& manifest, const std::string& target, DType dtype,
                    const std::function<void(std::uint64_t bytes)>& progress, std::string_view section) {
  write_whole(WeightsWriter(folder, manifest, section, dtype, progress), target);
}

void publish_weights(const std::string& folder, const std::string& target, std::string_view section) {
  const Manifest manifest = read_manifest(folder);
  std::vector<std::uint32_t> files;
  for (const Extent& extent : manifest.extents)
    if (manifest.tensors[extent.tensor].section == section &&
        std::find(files.begin(), files.end(), extent.file) == files.end())
      files.push_back(extent.file);
  if (files.size() == 1) link_file(concat(folder, '/', manifest.files[files.front()].name), target);
  else write_whole(WeightsWriter(folder, manifest, section, std::nullopt, {}), target);
}

std::map<std::string, std::string> weights_in(const Manifest& manifest) {
  std::map<std::string, std::string> found;
  for (const std::string& section : manifest.sections()) {
    if (section == kWeights) found.emplace("", section);
    if (!section.starts_with(kStack) || !section.ends_with(kWeightsOfStack)) continue;
    const std::size_t length = section.size() - kStack.size() - kWeightsOfStack.size();
    found.emplace(section.substr(kStack.size(), length), section);
  }
  return found;
}

}  // namespace keel
