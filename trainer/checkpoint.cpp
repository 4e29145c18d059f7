#include "keel/trainer/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "keel/data/safetensors.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/trainer/xxh3.h"

namespace keel {
namespace {

constexpr std::string_view kWeights = "model";
constexpr std::string_view kOptimizer = "optimizer";
constexpr std::string_view kCompression = "compression";
constexpr std::string_view kState = "state.json";
constexpr const char* kHash = "xxh3";
constexpr int kFormat = 3;
constexpr int kUnhashedFormat = 2;  // of keel 0.1.0: state.json had no hash of its own

std::string file_in(const std::string& folder, std::string_view name) { return concat(folder, '/', name); }

std::string text_of(const Hash128& hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

std::string hash_of(const std::string& text) { return text_of(xxh3(std::as_bytes(std::span(text)))); }

std::string hash_of(const InputFile& file) {
  Xxh3 hash;
  std::vector<std::byte> piece(std::min<std::uint64_t>(file.size(), 1 << 20));
  for (std::uint64_t done = 0; done < file.size(); done += piece.size()) {
    const auto here = std::span(piece).first(std::min<std::uint64_t>(piece.size(), file.size() - done));
    file.read(done, here);
    hash.add(here);
  }
  return text_of(hash.hash());
}

Json describe(const std::string& path) {
  const InputFile file(path);
  return {{"bytes", file.size()}, {kHash, hash_of(file)}};
}

// Text whose last member is its own hash, taken with zeros in the hash's place.
constexpr std::size_t kHashDigits = 32;
constexpr std::string_view kBehindHash = "\"\n}\n";

// Where the hash's digits are in such a text; nothing in another text.
std::optional<std::size_t> place_of_hash(std::string_view text) {
  const std::string member = concat("\n  \"", kHash, "\": \"");
  const std::size_t behind = kHashDigits + kBehindHash.size();
  if (text.size() < member.size() + behind || !text.ends_with(kBehindHash)) return std::nullopt;
  const std::size_t place = text.size() - behind;
  return text.substr(0, place).ends_with(member) ? std::optional(place) : std::nullopt;
}

std::string with_hash(Json json) {
  json[kHash] = std::string(kHashDigits, '0');
  std::string text = json.dump(2) + "\n";
  return text.replace(place_of_hash(text).value(), kHashDigits, hash_of(text));
}

// Whether the text has a hash; one that differs is an Error.
bool check_own_hash(std::string text, const std::string& file) {
  const std::optional<std::size_t> place = place_of_hash(text);
  if (!place) return false;
  const std::string stated = text.substr(*place, kHashDigits);
  text.replace(*place, kHashDigits, kHashDigits, '0');
  KEEL_CHECK(hash_of(text) == stated, "'", file, "' has changed since it was written (its hash differs)");
  return true;
}

void check_whole(const std::string& path, const Json& expected) {
  const InputFile file(path);
  const auto bytes = static_cast<std::uint64_t>(expected.at("bytes").integer());
  KEEL_CHECK(file.size() == bytes, "'", path, "' has ", file.size(), " bytes instead of ", bytes);
  KEEL_CHECK(hash_of(file) == expected.at(kHash).string(), "'", path,
             "' has changed since it was written (its hash differs)");
}

// "model.safetensors" for one file, "model-2-of-4.safetensors" for one of several, counted from 1.
std::string file_name(std::string_view kind, int index, int count) {
  if (count == 1) return concat(kind, ".safetensors");
  return concat(kind, '-', index + 1, "-of-", count, ".safetensors");
}

// The parts in several files. `load` is called with them; its Error then names the first of the files.
template <class Load>
void load_files(const std::string& folder, const std::vector<std::string>& names, const Context& context,
                const Load& load) {
  TensorParts parts;
  for (const std::string& name : names)
    for (TensorPart& part : parse_parts(SafetensorsFile(file_in(folder, name)).views(context.host())))
      parts.push_back(std::move(part));
  try {
    load(parts);
  } catch (const Error& error) {
    throw Error(concat("'", file_in(folder, names.front()), "': ", error.what()), error.kind());
  }
}

Json describe_steps(const StepState& steps) {
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

std::vector<std::string> texts_of(const Json& list) {
  std::vector<std::string> texts;
  for (const Json& item : list.items()) texts.push_back(item.string());
  return texts;
}

// Reads state.json, and gives its JSON to `more`.
template <class More>
TrainState read_state(const std::string& path, const More& more) {
  const std::string file = file_in(path, kState);
  const std::string text = read_text_file(file);
  const bool has_hash = check_own_hash(text, file);
  const Json json = Json::parse_or_null(text);
  try {
    const std::int64_t format = json.at("format").integer();
    KEEL_CHECK(format == kFormat || format == kUnhashedFormat, "'", file, "' has format ", format,
               ", but this version of keel reads ", kUnhashedFormat, " and ", kFormat);
    KEEL_CHECK(has_hash || format == kUnhashedFormat, "'", file, "' is malformed: it does not end with its own hash");
    TrainState state;
    state.step = json.at("step").integer();
    state.tokens = json.at("tokens").integer();
    state.optimizer = parse_steps(json.at("optimizer"));
    if (json.contains("time")) {
      const Json& time = json.at("time");
      state.time = {time.at("seconds").number(), time.at("since").integer(), state.optimizer.steps};
    }
    if (json.contains("data")) state.data = json.at("data").string();
    state.config = json.at("config").string();
    state.weights = texts_of(json.at("weights"));
    state.state = texts_of(json.at("state"));
    if (json.contains("compression")) state.compression = texts_of(json.at("compression"));
    KEEL_CHECK(0 <= state.optimizer.steps && state.optimizer.steps <= state.step && state.tokens >= 0, "'", file,
               "' is malformed: it counts ", state.optimizer.steps, " steps taken of ", state.step);
    KEEL_CHECK(std::isfinite(state.optimizer.loss_scale) && state.optimizer.loss_scale > 0, "'", file,
               "' is malformed: its loss scale is ", state.optimizer.loss_scale);
    KEEL_CHECK(std::isfinite(state.time.seconds) && state.time.seconds >= 0 && state.time.since >= 0 &&
                   state.time.since <= state.optimizer.steps,
               "'", file, "' is malformed: it counts ", state.time.seconds, " s since step ", state.time.since);
    KEEL_CHECK(!state.weights.empty() && !state.state.empty(), "'", file, "' is malformed: it names no files");
    more(json, state);
    return state;
  } catch (const JsonError&) { throw Error(concat("'", file, "' is malformed: it is not what keel writes")); }
}

// Weights whose parts are in several files, put together one after the other, so that no more than one is in memory.
class JoinedWeights {
 public:
  JoinedWeights(const TensorParts& parts, const Context& host) {
    for (const TensorPart& part : parts) {
      std::vector<TensorPart>& group = groups_[part.name];
      if (group.empty()) order_.push_back(part.name);
      group.push_back(part);
    }
    for (const std::string& name : order_) tensors_.emplace_back(name, join(name, host));
  }
  ~JoinedWeights() {
    for (const auto& [name, tensor] : tensors_) tensor.storage()->set_touch_hook({});  // which holds the tensor
  }
  JoinedWeights(const JoinedWeights&) = delete;
  JoinedWeights& operator=(const JoinedWeights&) = delete;
  const NamedTensors& tensors() const { return tensors_; }

 private:
  Tensor join(const std::string& name, const Context& host) {
    const std::vector<TensorPart>& group = groups_.at(name);
    Tensor whole = empty(host, group.front().shape, group.front().values.dtype(), Purpose::workspace);
    whole.storage()->drop();
    whole.storage()->set_touch_hook(
        [this, name, &group, shape = whole.shape(), row = whole.view({whole.numel()})](Storage& storage) {
          if (storage.resident()) return;
          if (filled_ != nullptr) filled_->drop();
          filled_ = &storage;
          storage.restore();
          copy_parts(group, {{name, shape, 0, row}}, "the checkpoint's weights have gaps");
        });
    return whole;
  }

  std::map<std::string, std::vector<TensorPart>> groups_;
  std::vector<std::string> order_;
  NamedTensors tensors_;
  Storage* filled_ = nullptr;
};

}  // namespace

void save_checkpoint(const std::string& path, const Sharded& engine, Communicator& ranks, const TrainState& state) {
  const bool first = ranks.rank() == 0;
  // Ranks with the same parts leave the writing to one of them.
  const std::vector<int> writes = gather_values(ranks, engine.holds_parts() ? 1 : 0);
  const int files = std::accumulate(writes.begin(), writes.end(), 0);
  const int mine = std::accumulate(writes.begin(), writes.begin() + ranks.rank(), 0);
  std::optional<AtomicFolder> folder;
  together(ranks, [&] {
    if (first) folder.emplace(path, IfExists::replace);
  });
  const std::string temporary = broadcast_text(ranks, first ? folder->temporary() : "");
  Json described = Json::object();
  const bool compresses = ranks.size() > 1 && engine.options().compression.kind().feedback;
  together(ranks, [&] {
    if (compresses) {
      const std::string name = file_name(kCompression, ranks.rank(), ranks.size());
      write_safetensors(file_in(temporary, name), named_parts(engine.compression_state()), {{"format", "keel"}});
      described[name] = describe(file_in(temporary, name));
    }
    if (!engine.holds_parts()) return;
    const std::string weights = file_name(kWeights, mine, files), numbers = file_name(kOptimizer, mine, files);
    write_safetensors(file_in(temporary, weights), named_parts(engine.weights()), {{"format", "keel"}});
    write_safetensors(file_in(temporary, numbers), named_parts(engine.optimizer_state()),
                      {{"optimizer", std::string(engine.optimizer().name())}});
    for (const std::string& name : {weights, numbers}) described[name] = describe(file_in(temporary, name));
  });
  const std::vector<std::string> all = gather_texts(ranks, described.dump());
  const StepState steps = engine.state();
  together(ranks, [&] {
    if (!first) return;
    Json json = {{"format", kFormat},        {"step", state.step},
                 {"tokens", state.tokens},   {"optimizer", describe_steps(steps)},
                 {"weights", Json::array()}, {"state", Json::array()},
                 {"files", Json::object()},  {"config", state.config}};
    if (state.time.seconds > 0) json["time"] = {{"seconds", state.time.seconds}, {"since", state.time.since}};
    if (!state.data.empty()) json["data"] = state.data;
    for (int i = 0; i < files; ++i) json["weights"].push_back(file_name(kWeights, i, files));
    for (int i = 0; i < files; ++i) json["state"].push_back(file_name(kOptimizer, i, files));
    for (int r = 0; compresses && r < ranks.size(); ++r)
      json["compression"].push_back(file_name(kCompression, r, ranks.size()));
    for (const std::string& text : all) {
      const Json of_rank = Json::parse(text);
      for (const auto& [name, file] : of_rank.members()) json["files"][name] = file;
    }
    write_text_file(file_in(temporary, kState), with_hash(std::move(json)));
    folder->commit();
  });
}

TrainState read_state(const std::string& path) {
  return read_state(path, [](const Json&, const TrainState&) {});
}

TrainState read_checkpoint(const std::string& path) {
  return read_state(path, [&](const Json& json, const TrainState& state) {
    for (const std::vector<std::string>& names : {state.weights, state.state, state.compression})
      for (const std::string& name : names) check_whole(file_in(path, name), json.at("files").at(name));
  });
}

void check_checkpoint(const std::string& path, const TrainState& state, const Sharded& engine) {
  load_files(path, state.weights, engine.context(), [&](const TensorParts& parts) { engine.check_weights(parts); });
  load_files(path, state.state, engine.context(),
             [&](const TensorParts& parts) { engine.check_optimizer_state(parts); });
}

void load_checkpoint(const std::string& path, const TrainState& state, Sharded& engine) {
  load_files(path, state.weights, engine.context(), [&](const TensorParts& parts) { engine.load_weights(parts); });
  load_files(path, state.state, engine.context(),
             [&](const TensorParts& parts) { engine.load_optimizer_state(parts, state.optimizer); });
  // Fewer ranks take over what several have not delivered; of more ranks the first do.
  std::vector<TensorParts> mine;
  for (auto r = static_cast<std::size_t>(engine.rank()); r < state.compression.size();
       r += static_cast<std::size_t>(engine.size()))
    mine.push_back(parse_parts(SafetensorsFile(file_in(path, state.compression[r])).views(engine.context().host())));
  engine.load_compression_state(mine);
}

void publish_weights(const std::string& checkpoint, const std::string& target) {
  const TrainState state = read_state(checkpoint);
  if (state.weights.size() > 1) {
    const Context host = Context::create({.threads = 1});
    load_files(checkpoint, state.weights, host, [&](const TensorParts& parts) {
      write_safetensors(target, JoinedWeights(parts, host).tensors(), {{"format", "keel"}});
    });
    return;
  }
  const std::string source = file_in(checkpoint, state.weights.front()), temporary = temporary_beside(target);
  std::error_code code;
  // Between two names of one file rename() does nothing, and would leave both.
  if (std::filesystem::equivalent(source, target, code)) return;
  std::filesystem::create_hard_link(source, temporary, code);
  if (code) std::filesystem::copy_file(source, temporary, std::filesystem::copy_options::overwrite_existing, code);
  if (!code) std::filesystem::rename(temporary, target, code);
  if (!code) return;
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  throw Error(concat("cannot write '", target, "': ", code.message()), ErrorKind::io);
}

}  // namespace keel
