#include "keel/dist/checkpoint/export.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/kernels/update.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeights = "weights", kStack = "stack.", kWeightsOfStack = ".weights";
// As in a rank's own file of weights, so that both are the same bytes.
const Metadata kWeightsMetadata = {{"format", "keel"}};

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

template <class Read>
void read_numbers(const Read& read) {
  try {
    read();
  } catch (const Error& error) { throw UnreadableCheckpoint(error.what(), error.kind()); }
}

}  // namespace

void export_weights(const std::string& folder, const Manifest& manifest, const std::string& target, DType dtype,
                    const std::function<void(std::uint64_t bytes)>& progress, std::string_view section) {
  KEEL_CHECK(is_floating(dtype), "weights cannot be written as ", dtype);
  std::vector<SafetensorsEntry> entries;
  std::map<std::string_view, DType> stored;  // by name
  for (const StoredTensor& tensor : manifest.tensors) {
    if (tensor.section != section) continue;
    entries.push_back({tensor.name, dtype, tensor.shape});
    stored.emplace(tensor.name, tensor.dtype);
  }
  const SafetensorsLayout layout =
      lay_out_safetensors(std::move(entries), kWeightsMetadata, SafetensorsOrder::sorted, kPageBytes);
  const Context host = Context::create({.threads = 1});
  const ExtentReader reader(folder, manifest);
  AtomicFile file(target);
  // Where extents have no hashes, files as wholes may.
  if (!manifest.has_hashes) read_numbers([&] { reader.verify(); });
  file.write(layout.head);
  for (const SafetensorsEntry& entry : layout.entries) {
    const DType before = stored.at(entry.name);
    // Where extents are cut, so that each is read once.
    const std::int64_t step = kExtentBytes / static_cast<std::int64_t>(size_of(before));
    for (std::int64_t begin = 0, all = product(entry.shape); begin < all; begin += step) {
      const std::int64_t count = std::min(step, all - begin);
      const TensorPart part{entry.name, entry.shape, begin, empty(host, {count}, dtype, Purpose::workspace)};
      read_numbers([&] { reader.fill(section, TensorParts{part}); });
      KEEL_CHECK(dtype == before || size_of(dtype) > size_of(before) || kernels::all_finite(part.values), "'",
                 entry.name, "' has numbers that are not finite as ", dtype, "; ", before, " keeps them as they are");
      file.write({part.values.raw(), part.values.bytes()});
      if (progress) progress(part.values.bytes());
    }
  }
  file.commit();
}

void publish_weights(const std::string& folder, const std::string& target, std::string_view section) {
  const Manifest manifest = read_manifest(folder);
  std::vector<std::uint32_t> files;
  for (const Extent& extent : manifest.extents)
    if (manifest.tensors[extent.tensor].section == section &&
        std::find(files.begin(), files.end(), extent.file) == files.end())
      files.push_back(extent.file);
  if (files.size() == 1) link_file(concat(folder, '/', manifest.files[files.front()].name), target);
  else export_weights(folder, manifest, target, DType::f32, {}, section);
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
