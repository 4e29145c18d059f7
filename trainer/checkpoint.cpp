#include "keel/trainer/checkpoint.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "keel/data/safetensors.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kWeights = "model.safetensors";
constexpr std::string_view kOptimizer = "optimizer.safetensors";
constexpr std::string_view kState = "state.json";
constexpr int kFormat = 1;

std::string file_in(const std::string& folder, std::string_view name) { return concat(folder, '/', name); }

std::string hash_of(const MappedFile& file) {
  const XXH128_hash_t hash = XXH3_128bits(file.bytes().data(), file.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

Json describe(const std::string& path) {
  const MappedFile file(path);
  return {{"bytes", file.size()}, {"xxh3", hash_of(file)}};
}

void check_whole(const std::string& path, const Json& expected) {
  const MappedFile file(path);
  const auto bytes = expected.at("bytes").get<std::size_t>();
  KEEL_CHECK(file.size() == bytes, "'", path, "' has ", file.size(), " bytes instead of ", bytes);
  KEEL_CHECK(hash_of(file) == expected.at("xxh3").get<std::string>(), "'", path,
             "' has changed since it was written (its hash differs)");
}

// Calls load with the file's tensors; its Error then names the file.
template <class Load>
void load_file(const std::string& path, const Context& context, const Load& load) {
  const SafetensorsFile file(path);
  try {
    load(file.views(context.host()));
  } catch (const Error& error) { throw Error(concat("'", path, "': ", error.what()), error.kind()); }
}

}  // namespace

void save_checkpoint(const std::string& path, const Engine& engine, const TrainState& state) {
  AtomicFolder folder(path, IfExists::replace);
  const std::string weights = file_in(folder.temporary(), kWeights);
  const std::string optimizer = file_in(folder.temporary(), kOptimizer);
  write_safetensors(weights, engine.weights(), {{"format", "keel"}});
  write_safetensors(optimizer, engine.optimizer_state(), {{"optimizer", std::string(engine.optimizer().name())}});
  const Json json = {{"format", kFormat},
                     {"step", state.step},
                     {"steps_taken", state.steps_taken},
                     {"tokens", state.tokens},
                     {"files", {{kWeights, describe(weights)}, {kOptimizer, describe(optimizer)}}},
                     {"config", state.config}};
  write_text_file(file_in(folder.temporary(), kState), json.dump(2) + "\n");
  folder.commit();
}

TrainState read_checkpoint(const std::string& path) {
  const std::string file = file_in(path, kState);
  const Json json = Json::parse(read_text_file(file), nullptr, false);
  try {
    const int format = json.at("format").get<int>();
    KEEL_CHECK(format == kFormat, "'", file, "' has format ", format, ", but this version of keel reads ", kFormat);
    TrainState state;
    state.step = json.at("step").get<std::int64_t>();
    state.steps_taken = json.at("steps_taken").get<std::int64_t>();
    state.tokens = json.at("tokens").get<std::int64_t>();
    state.config = json.at("config").get<std::string>();
    KEEL_CHECK(0 <= state.steps_taken && state.steps_taken <= state.step && state.tokens >= 0, "'", file,
               "' is malformed: it counts ", state.steps_taken, " steps taken of ", state.step);
    for (const std::string_view name : {kWeights, kOptimizer})
      check_whole(file_in(path, name), json.at("files").at(name));
    return state;
  } catch (const Json::exception&) { throw Error(concat("'", file, "' is malformed: it is not what keel writes")); }
}

void load_checkpoint(const std::string& path, const TrainState& state, Engine& engine) {
  load_file(file_in(path, kWeights), engine.context(),
            [&](const NamedTensors& weights) { engine.load_weights(weights); });
  load_file(file_in(path, kOptimizer), engine.context(),
            [&](const NamedTensors& numbers) { engine.load_optimizer_state(numbers, state.steps_taken); });
}

void publish_weights(const std::string& checkpoint, const std::string& target) {
  const std::string source = file_in(checkpoint, kWeights), temporary = target + ".tmp";
  std::error_code code;
  std::filesystem::remove(temporary, code);
  std::filesystem::create_hard_link(source, temporary, code);
  if (code) std::filesystem::copy_file(source, temporary, std::filesystem::copy_options::overwrite_existing, code);
  if (!code) std::filesystem::rename(temporary, target, code);
  if (code) throw Error(concat("cannot write '", target, "': ", code.message()), ErrorKind::io);
}

}  // namespace keel
