#include "keel/trainer/weights_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "keel/dist/checkpoint/hub_weights.h"
#include "keel/dist/checkpoint/load.h"
#include "keel/dist/checkpoint/weight_shards.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/kernels/update.h"
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

std::string hash_of_files(const WeightsSource& source) {
  std::string hashes;
  for (const StoredFile& file : source.manifest.files) hashes += hash_of_file(concat(source.folder, '/', file.name));
  return hashes;
}

WeightsSource of_checkpoint(const std::string& path) { return {path, read_manifest(path), {}, true}; }

WeightsSource of_shards(const std::string& index) {
  const fs::path parent = fs::path(index).parent_path();
  return {parent.empty() ? "." : parent.string(), describe_shards(index, kWeightsSection), {}, false};
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
    return {folder, describe_files(folder, kWeightsSection, std::span(&name, 1)), {}, false};
  }
  if (is_checkpoint(path)) return of_checkpoint(path);
  if (is_hub_folder(path)) return {path, describe_hub_weights(path), {}, false, true};
  if (const std::string index = concat(path, '/', kShardIndex); fs::exists(index, ignored)) return of_shards(index);
  const std::string run = RunFolder::meant_by(path);
  KEEL_CHECK(!run.empty(), "'", path, "' is neither a checkpoint nor the folder of a run, and has no ", kShardIndex);
  return of_checkpoint(newest_of(RunFolder(run)));
}

}  // namespace

WeightsSource find_weights(const std::string& path, Communicator& ranks, bool identify) {
  WeightsSource found;
  together(ranks, [&] {
    if (ranks.rank() != 0) return;
    found = look_for(path);
    if (!identify) return;
    const bool has_hashes = found.is_checkpoint && found.manifest.has_hashes;
    found.identity = has_hashes ? hash_of_extents(found.manifest) : hash_of_files(found);
  });
  found.folder = broadcast_text(ranks, found.folder);
  found.identity = broadcast_text(ranks, found.identity);
  found.manifest = broadcast_manifest(std::move(found.manifest), ranks);
  found.is_hub = gather_values(ranks, found.is_hub ? 1 : 0).front() == 1;
  if (gather_values(ranks, found.is_checkpoint ? 1 : 0).front() == 1) check_readable_by_all(found.folder, ranks);
  return found;
}

namespace {

bool is_finite(const TensorPart& part) { return part.numel() == 0 || kernels::all_finite(part.values); }

// Whether elements [begin, end) of the whole are finite, as far as they are here.
bool is_finite(const TensorPart& part, std::int64_t begin, std::int64_t end) {
  begin = std::max(begin, part.begin);
  end = std::min(end, part.end());
  return begin >= end || kernels::all_finite(part.values.slice(0, begin - part.begin, end - part.begin));
}

// 'FILE': TENSOR, of the one whose numbers a part has.
std::string place_in_files(const TensorPart& part, const HubNames& names, const Manifest& manifest,
                           const std::string& folder) {
  const std::vector<HubTensor> tensors = match_hub_tensors(manifest, names, folder).tensors;
  const auto bad = std::ranges::find_if(tensors, [&](const HubTensor& each) {
    if (each.parameter != part.name) return false;
    if (each.transposed) return true;
    const std::int64_t row = part.shape.empty() ? 1 : product(part.shape) / part.shape[0];
    return !is_finite(part, each.first_row * row, each.first_row * row + product(each.shape));
  });
  if (bad == tensors.end()) return concat("'", folder, "': ", part.name);
  const auto stored = std::ranges::find(manifest.tensors, bad->name, &StoredTensor::name);
  if (stored == manifest.tensors.end()) return concat("'", folder, "': ", bad->name);
  const auto extents = manifest.extents_of(static_cast<std::uint32_t>(stored - manifest.tensors.begin()));
  return concat("'", folder, '/', manifest.files.at(extents.front().file).name, "': ", bad->name);
}

void check_all_finite(const std::string& place, const Sharded& engine, Communicator& ranks,
                      const HubNames* names = nullptr, const Manifest& manifest = {}) {
  together(ranks, [&] {
    const TensorParts parts = engine.weights();
    const auto bad = std::ranges::find_if_not(parts, [](const TensorPart& part) { return is_finite(part); });
    if (bad == parts.end()) return;
    throw Error(
        concat(names == nullptr ? concat("'", place, "': ", bad->name) : place_in_files(*bad, *names, manifest, place),
               " has numbers that are not finite, with which nothing can be computed; fetch the file anew, or "
               "take weights from before they were spoilt"));
  });
}

// The other weights keep their numbers.
void load_adapters(const AdapterForm& adapters, Sharded& engine, Communicator& ranks) {
  Manifest manifest;
  together(ranks, [&] {
    const std::string file = kAdapterWeights;
    if (ranks.rank() == 0) manifest = describe_files(adapters.weights, kWeightsSection, std::span(&file, 1));
  });
  manifest = broadcast_manifest(std::move(manifest), ranks);
  load_hub_weights(adapters.weights, manifest, adapters.names, engine, ranks);
  check_all_finite(adapters.weights, engine, ranks, &adapters.names, manifest);
}

std::string load_base_weights(const StackModel& model, Sharded& engine, Communicator& ranks, bool identify,
                              const std::function<void(const std::string& note)>& tell) {
  const WeightsSource source = find_weights(model.weights, ranks, identify);
  if (source.is_hub) {
    together(ranks, [&] {
      KEEL_CHECK(
          model.hub, "'", model.weights,
          "' is a folder of Hugging Face's form, which this model has none of; name weights that keel has saved");
    });
    const std::vector<std::string> notes = load_hub_weights(source.folder, source.manifest, *model.hub, engine, ranks);
    for (const std::string& note : notes)
      if (tell && ranks.rank() == 0) tell(note);
  } else {
    load_weights(source.folder, source.manifest, engine, ranks);
  }
  check_all_finite(source.is_hub ? source.folder : model.weights, engine, ranks,
                   source.is_hub ? model.hub.get() : nullptr, source.manifest);
  return source.identity;
}

}  // namespace

void check_shapes_of_weights(const StackModels& models) {
  for (const StackModel& model : models.trained()) {
    if (model.weights.empty() || !model.hub || !is_hub_folder(model.weights)) continue;
    (void)match_hub_tensors(describe_hub_weights(model.weights), *model.hub, model.weights);
  }
}

std::string load_named_weights(const StackModel& model, Sharded& engine, Communicator& ranks, bool identify,
                               const std::function<void(const std::string& note)>& tell) {
  std::string identity;
  if (!model.weights.empty()) identity = load_base_weights(model, engine, ranks, identify, tell);
  if (model.adapters && !model.adapters->weights.empty()) load_adapters(*model.adapters, engine, ranks);
  return identity;
}

std::string first_not_finite(const TensorParts& parts) {
  const auto bad = std::ranges::find_if_not(parts, [](const TensorPart& part) { return is_finite(part); });
  return bad == parts.end() ? "" : bad->name;
}

}  // namespace keel
