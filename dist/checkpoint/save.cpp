#include "keel/dist/checkpoint/save.h"

#include <utility>

#include "keel/dist/checkpoint/save_job.h"
#include "keel/dist/comm/agreement.h"

namespace keel {
namespace {

// The tensors, on which no collective is under way: touching one that others still gather would have the thread that
// writes call the communicator. What lies elsewhere stays there.
std::vector<Section> settled(std::vector<Section> sections) {
  for (const Section& section : sections)
    for (const TensorPart& part : section.parts)
      if (part.values.defined() && part.values.storage()->elsewhere() == nullptr) part.values.storage()->make_ready();
  return sections;
}

}  // namespace

SaveResult save_checkpoint(const std::string& path, const Sharded& engine, Communicator& ranks, const Json& state,
                           std::function<void()> on_commit, std::span<const SavedBeside> beside) {
  const FileNumber number = number_files(engine, ranks);
  Json whole = state;
  keep_steps(whole, engine, beside);
  SaveJob job(path, 1, ranks, whole, std::move(on_commit));
  // Its tensors, which a thread that a hanging disk holds up may outlive the engine with.
  try {
    job.write([sections = settled(sections_of(engine, number, beside))] { return sections; });
  } catch (const AgreedError&) { throw; } catch (const Error& error) {
    if (error.kind() != ErrorKind::io) throw;
    job.fail(error.what());  // numbers that lie in a file of this rank cannot be read
  }
  SaveResult result = job.finish();
  if (!result.failure.empty()) throw AgreedError(result.failure, ErrorKind::io);
  return result;
}

void keep_steps(Json& state, const Sharded& engine, std::span<const SavedBeside> beside) {
  const auto keep = [&](const Sharded& each) {
    const std::string& name = each.options().name;
    (name.empty() ? state["optimizer"] : state["stacks"][name]) = json_of(each.state());
  };
  keep(engine);
  for (const SavedBeside& each : beside)
    if (each.engine != nullptr) keep(*each.engine);
}

const Json& kept_steps(const Json& state, const std::string& name) {
  return name.empty() ? state.at("optimizer") : state.at("stacks").at(name);
}

Json json_of(const StepState& steps) {
  return {{"taken", steps.steps},
          {"loss_scale", steps.loss_scale},
          {"hysteresis_left", steps.hysteresis_left},
          {"good_in_a_row", steps.good_in_a_row},
          {"skips_in_a_row", steps.skips_in_a_row}};
}

StepState parse_steps(const Json& json) {
  StepState steps;
  steps.steps = json.at("taken").integer();
  steps.loss_scale = static_cast<float>(json.at("loss_scale").number());
  steps.hysteresis_left = static_cast<std::int32_t>(json.at("hysteresis_left").integer());
  steps.good_in_a_row = json.at("good_in_a_row").integer();
  steps.skips_in_a_row = json.at("skips_in_a_row").integer();
  return steps;
}

}  // namespace keel
