#include "keel/trainer/checkpoint.h"

#include <cmath>
#include <utility>

#include "keel/dist/checkpoint/load.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

TrainState parse_state(const Json& json, const std::string& path) {
  try {
    TrainState state;
    state.step = json.at("step").integer();
    state.tokens = json.at("tokens").integer();
    if (json.contains("optimizer")) state.optimizer = parse_steps(json.at("optimizer"));
    else state.optimizer.steps = state.step;  // several models count their own
    if (json.contains("time")) {
      const Json& time = json.at("time");
      state.time = {time.at("seconds").number(), time.at("since").integer(), state.optimizer.steps};
    }
    if (json.contains("data")) state.data = json.at("data").string();
    state.config = json.at("config").string();
    if (json.contains("rate_factor")) state.rate_factor = json.at("rate_factor").number();
    if (json.contains("owes_evaluation")) state.owes_evaluation = json.at("owes_evaluation").boolean();
    if (json.contains("callbacks")) state.callbacks = json.at("callbacks");
    if (json.contains("frozen"))
      for (const auto& [name, fingerprint] : json.at("frozen").members()) state.frozen[name] = fingerprint.string();
    if (json.contains("validation"))
      for (const auto& [name, fingerprint] : json.at("validation").members())
        state.validation[name] = fingerprint.string();
    KEEL_CHECK(0 <= state.optimizer.steps && state.optimizer.steps <= state.step && state.tokens >= 0, "'", path,
               "' is malformed: it counts ", state.optimizer.steps, " steps taken of ", state.step);
    KEEL_CHECK(std::isfinite(state.optimizer.loss_scale) && state.optimizer.loss_scale > 0, "'", path,
               "' is malformed: its loss scale is ", state.optimizer.loss_scale);
    KEEL_CHECK(std::isfinite(state.time.seconds) && state.time.seconds >= 0 && state.time.since >= 0 &&
                   state.time.since <= state.optimizer.steps,
               "'", path, "' is malformed: it counts ", state.time.seconds, " s since step ", state.time.since);
    KEEL_CHECK(std::isfinite(state.rate_factor) && state.rate_factor >= 0 && state.callbacks.is_object(), "'", path,
               "' is malformed: its factor on learning rates is ", state.rate_factor);
    return state;
  } catch (const JsonError& error) {
    throw Error(concat("'", path, "' is malformed: it is no checkpoint of a run ("), error, ")");
  }
}

}  // namespace

Json json_of(const TrainState& state) {
  Json json = {{"step", state.step}, {"tokens", state.tokens}, {"config", state.config}};
  if (state.time.seconds > 0) json["time"] = {{"seconds", state.time.seconds}, {"since", state.time.since}};
  if (!state.data.empty()) json["data"] = state.data;
  for (const auto& [name, fingerprint] : state.validation) json["validation"][name] = fingerprint;
  if (state.rate_factor != 1) json["rate_factor"] = state.rate_factor;
  if (state.owes_evaluation) json["owes_evaluation"] = true;
  for (const auto& [name, fingerprint] : state.frozen) json["frozen"][name] = fingerprint;
  if (!state.callbacks.members().empty()) json["callbacks"] = state.callbacks;
  return json;
}

void check_has_configuration(const Checkpoint& checkpoint) {
  KEEL_CHECK(
      !is_of_own_loop(checkpoint), "'", checkpoint.path,
      "' is of a training loop of one's own, whose program alone knows model and data; `keel get` has its weights");
}

Checkpoint open_checkpoint(const std::string& path) {
  Manifest manifest = read_manifest(path);
  TrainState state = parse_state(manifest.state, path);
  return {path, std::move(manifest), std::move(state)};
}

Checkpoint broadcast_checkpoint(Checkpoint checkpoint, Communicator& ranks) {
  checkpoint.path = broadcast_text(ranks, checkpoint.path);
  if (checkpoint.path.empty()) return checkpoint;
  checkpoint.manifest = broadcast_manifest(std::move(checkpoint.manifest), ranks);
  checkpoint.state = parse_state(checkpoint.manifest.state, checkpoint.path);
  return checkpoint;
}

}  // namespace keel
