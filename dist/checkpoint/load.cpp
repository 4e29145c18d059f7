#include "keel/dist/checkpoint/load.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/dist/checkpoint/save.h"
#include "keel/dist/checkpoint/snapshot.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

std::string other_model(const std::string& folder) { return concat("'", folder, "' has weights of another model"); }

std::string other_optimizer(const std::string& folder, const Sharded& engine) {
  return concat("'", folder, "' has no state of ", engine.optimizer().name(), " for this model");
}

// Each rank, or group of ranks, those that it had. Fewer of them take over what several have not delivered; of more
// ranks the first do.
std::vector<TensorParts> residuals_of(const ExtentReader& reader, const Manifest& manifest, const Sharded& engine) {
  std::vector<TensorParts> mine;
  const std::vector<std::string> sections = manifest.sections("compression.");
  const Sharded::ResidualPlace place = engine.residual_place();
  for (auto r = static_cast<std::size_t>(place.number); r < sections.size(); r += static_cast<std::size_t>(place.count))
    mine.push_back(reader.read(sections[r], engine.context().host()));
  return mine;
}

void fill_group(const ExtentReader& reader, const Manifest& manifest, Sharded& engine) {
  const std::string section = section_of_group(engine.group());
  TensorParts parts = group_parts(engine);
  const bool has_steps = std::ranges::any_of(manifest.tensors, [&](const auto& tensor) {
    return tensor.section == section && tensor.name == parts.back().name;
  });
  if (!has_steps) parts.pop_back();  // of an older keel: those of the first group
  reader.fill(section, parts);
  if (has_steps) engine.adopt_group_steps();
}

// Groups that have weights of their own go on from these, or, where there were not as many, all from those of the
// first.
void load_groups(const ExtentReader& reader, const Manifest& manifest, Sharded& engine, Communicator& ranks) {
  if (engine.groups() == 1) return;
  engine.settle_strategy();
  engine.restart_groups();
  if (manifest.sections("strategy").empty()) return;  // of a run without one
  const TensorParts state = engine.strategy_state();
  together(ranks, [&] { reader.check("strategy", state, "the checkpoint is of another strategy of communication"); });
  reader.fill_among("strategy", state, ranks);
  const auto saved = static_cast<int>(manifest.sections("group.").size()) + 1;
  if (saved == engine.groups()) {
    together(ranks, [&] {
      if (engine.group() > 0) fill_group(reader, manifest, engine);
    });
    engine.adopt_weights();
  } else if (ranks.rank() == 0) {
    engine.context().log(
        LogLevel::warning,
        concat("the checkpoint is of ", saved, saved == 1 ? " group" : " groups", " of ranks, and there are ",
               engine.groups(), ": all go on from the weights of the first",
               saved == 1 ? "" : ", without what the others have learnt since the last outer step"));
  }
  engine.adopt_strategy_state();
}

}  // namespace

// Extents travel as they lie in memory: there may be many.
static_assert(std::is_trivially_copyable_v<Extent>);
Manifest broadcast_manifest(Manifest manifest, Communicator& ranks) {
  const bool is_first = ranks.rank() == 0;
  std::vector<Extent> extents = std::exchange(manifest.extents, {});
  const std::string text = broadcast_text(ranks, is_first ? part_text(manifest) : "");
  const std::string state = broadcast_text(ranks, is_first ? manifest.state.dump() : "");
  const std::string bytes = broadcast_text(ranks, std::string(reinterpret_cast<const char*>(extents.data()),
                                                              is_first ? extents.size() * sizeof(Extent) : 0));
  if (!is_first) {
    manifest = parse_part(text, "the first rank's manifest");
    manifest.state = Json::parse(state);
    extents.resize(bytes.size() / sizeof(Extent));
    std::memcpy(extents.data(), bytes.data(), bytes.size());
  }
  manifest.extents = std::move(extents);
  return manifest;
}

void check_checkpoint(const std::string& folder, const Manifest& manifest, const Sharded& engine) {
  const ExtentReader reader(folder, manifest);
  reader.check(section_of(engine, "weights"), engine.weights(), other_model(folder));
  reader.check(section_of(engine, "optimizer"), engine.optimizer_state(), other_optimizer(folder, engine));
}

void load_checkpoint(const std::string& folder, const Manifest& manifest, Sharded& engine, Communicator& ranks) {
  const ExtentReader reader(folder, manifest);
  std::vector<TensorParts> residuals;
  StepState steps;
  together(ranks, [&] {
    check_checkpoint(folder, manifest, engine);
    steps = parse_steps(kept_steps(manifest.state, engine.options().name));
  });
  engine.wait_until_released();
  together(ranks, [&] { reader.verify_rest(ranks.rank(), ranks.size()); });
  reader.fill_among(section_of(engine, "weights"), engine.weights(), ranks);
  reader.fill_among(section_of(engine, "optimizer"), engine.optimizer_state(), ranks);
  together(ranks, [&] { residuals = residuals_of(reader, manifest, engine); });
  engine.adopt_weights();
  engine.adopt_steps(steps);
  together(ranks, [&] { engine.load_compression_state(residuals); });
  load_groups(reader, manifest, engine, ranks);
}

void load_beside(const std::string& folder, const Manifest& manifest, const SavedBeside& beside,
                 std::string_view complaint, Communicator& ranks) {
  const ExtentReader reader(folder, manifest);
  together(ranks, [&] { reader.check(beside.section, beside.parts, complaint); });
  reader.fill_among(beside.section, beside.parts, ranks);
}

void load_weights(const std::string& folder, const Manifest& manifest, Sharded& engine, Communicator& ranks,
                  std::string_view section) {
  const ExtentReader reader(folder, manifest);
  together(ranks, [&] { reader.check(section, engine.weights(), other_model(folder)); });
  engine.wait_until_released();
  reader.fill_among(section, engine.weights(), ranks);
  engine.adopt_weights();
  engine.restart_groups();
}

void load_weights(const std::string& folder, std::span<const std::string> files, Sharded& engine, Communicator& ranks) {
  Manifest manifest;
  together(ranks, [&] { manifest = describe_files(folder, "weights", files); });
  load_weights(folder, manifest, engine, ranks);
}

}  // namespace keel
