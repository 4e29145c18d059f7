#include "keel/trainer/weights_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "keel/dist/checkpoint/load.h"
#include "keel/dist/checkpoint/weight_shards.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/error.h"
#include "keel/trainer/run_folder.h"
#include "keel/trainer/shared_folder.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeightsSection = "weights";

std::string text_of(const Hash128& hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

std::string hash_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Xxh3 sum;
  std::vector<char> piece(std::size_t{1} << 20);
  while (file.read(piece.data(), std::ssize(piece)) || file.gcount() > 0)
    sum.add(std::as_bytes(std::span(piece).first(static_cast<std::size_t>(file.gcount()))));
  if (!file.eof()) throw Error(concat("cannot read '", path, "'"), ErrorKind::io);
  return text_of(sum.hash());
}

// Of tensors in the order of their names.
std::string hash_of_extents(const Manifest& manifest) {
  std::vector<std::string> lines;
  for (std::uint32_t t = 0; t < manifest.tensors.size(); ++t) {
    const StoredTensor& tensor = manifest.tensors[t];
    if (tensor.section != kWeightsSection) continue;
    lines.push_back(concat(tensor.name, ' ', tensor.dtype, ' ', tensor.shape));
    for (const Extent& extent : manifest.extents_of(t))
      lines.back() += concat(' ', extent.begin, '-', extent.end, ' ', text_of(extent.hash));
  }
  std::ranges::sort(lines);
  Xxh3 sum;
  for (std::string& line : lines) {
    line += '\n';
    sum.add(std::as_bytes(std::span(line)));
  }
  return text_of(sum.hash());
}

WeightsSource of_checkpoint(const std::string& path) {
  WeightsSource found{path, read_manifest(path), {}, true};
  if (found.manifest.has_hashes) {
    found.identity = hash_of_extents(found.manifest);
  } else {
    for (const StoredFile& file : found.manifest.files)
      found.identity += hash_of_file((fs::path(path) / file.name).string());
  }
  return found;
}

WeightsSource of_shards(const std::string& index) {
  const fs::path parent = fs::path(index).parent_path();
  WeightsSource found{parent.empty() ? "." : parent.string(), describe_shards(index, kWeightsSection), {}, false};
  for (const StoredFile& file : found.manifest.files)
    found.identity += hash_of_file(concat(found.folder, '/', file.name));
  return found;
}

std::string newest_of(const RunFolder& run) {
  const std::vector<std::int64_t> steps = run.checkpoint_steps();
  KEEL_CHECK(!steps.empty(), "the run in '", run.path(), "' has no checkpoint, whose weights could be taken");
  return run.checkpoint(steps.back());
}

WeightsSource look_for(const std::string& path) {
  std::error_code ignored;
  KEEL_CHECK(fs::exists(path, ignored), "there are no weights in '", path,
             "'; name a safetensors file, a folder of such files with an index, a checkpoint or the folder of a run");
  if (!fs::is_directory(path, ignored)) {
    if (path.ends_with(".index.json")) return of_shards(path);
    const fs::path file(path);
    const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".",
                      name = file.filename().string();
    return {folder, describe_files(folder, kWeightsSection, std::span(&name, 1)), hash_of_file(path), false};
  }
  if (is_checkpoint(path)) return of_checkpoint(path);
  if (const std::string index = concat(path, '/', kShardIndex); fs::exists(index, ignored)) return of_shards(index);
  KEEL_CHECK(RunFolder::is_run(path), "'", path, "' is neither a checkpoint nor the folder of a run, and has no ",
             kShardIndex);
  return of_checkpoint(newest_of(RunFolder(path)));
}

}  // namespace

WeightsSource find_weights(const std::string& path, Communicator& ranks) {
  WeightsSource found;
  together(ranks, [&] {
    if (ranks.rank() == 0) found = look_for(path);
  });
  found.folder = broadcast_text(ranks, found.folder);
  found.identity = broadcast_text(ranks, found.identity);
  found.manifest = broadcast_manifest(std::move(found.manifest), ranks);
  if (gather_values(ranks, found.is_checkpoint ? 1 : 0).front() == 1) check_readable_by_all(found.folder, ranks);
  return found;
}

}  // namespace keel
