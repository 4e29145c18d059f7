#include "keel/models/rotary_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "keel/config/schema_row.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

constexpr std::string_view kParameters = "rope_parameters", kScaling = "rope_scaling", kTheta = "rope_theta",
                           kPartial = "partial_rotary_factor", kOriginal = "original_max_position_embeddings";

struct ScalingKind {
  std::string_view name;
  RotaryScaling scaling;
  std::string_view keys;  // that it has beside those of all kinds
};
constexpr std::array<ScalingKind, 6> kScalingKinds = {{
    {"default", RotaryScaling::none, ""},
    {"linear", RotaryScaling::linear, "factor"},
    {"dynamic", RotaryScaling::dynamic, "factor"},
    {"yarn", RotaryScaling::yarn,
     "factor|original_max_position_embeddings|attention_factor|beta_fast|beta_slow|mscale|mscale_all_dim|truncate"},
    {"longrope", RotaryScaling::longrope,
     "factor|original_max_position_embeddings|attention_factor|short_factor|long_factor"},
    {"llama3", RotaryScaling::llama3, "factor|original_max_position_embeddings|low_freq_factor|high_freq_factor"},
}};

// The object of one of both keys; what is wrong in it is an Error that names the key.
class RotaryKeys {
 public:
  RotaryKeys(const HubConfig& config, std::string_view name, Json object)
      : config_(config), name_(name), object_(std::move(object)) {
    if (!object_.is_null() && !object_.is_object())
      config_.refuse(name_, concat("expects an object, got ", printable(object_.dump(), 64)));
  }

  double number(std::string_view key, double standard) const {
    const Json* const found = find(key);
    if (found == nullptr) return standard;
    if (!found->is_number()) wrong(key, "a number", *found);
    return found->number();
  }
  std::optional<double> number(std::string_view key) const {
    return find(key) == nullptr ? std::nullopt : std::optional(number(key, 0));
  }
  std::int64_t integer(std::string_view key, std::int64_t standard) const {
    const Json* const found = find(key);
    if (found == nullptr) return standard;
    if (!found->is_integer()) wrong(key, "a whole number", *found);
    return found->integer();
  }
  bool flag(std::string_view key, bool standard) const {
    const Json* const found = find(key);
    if (found == nullptr) return standard;
    if (!found->is_boolean()) wrong(key, "true or false", *found);
    return found->boolean();
  }
  std::vector<double> numbers(std::string_view key) const {
    const Json* const found = find(key);
    if (found == nullptr) return {};
    std::vector<double> values;
    if (!found->is_array()) wrong(key, "a list of numbers", *found);
    for (const Json& item : found->items()) {
      if (!item.is_number()) wrong(key, "a list of numbers", *found);
      values.push_back(item.number());
    }
    return values;
  }

  const ScalingKind& kind() const {
    std::string name = "default";
    for (const std::string_view key : {"type", "rope_type"})
      if (const Json* const found = find(key); found != nullptr) {
        if (!found->is_string()) wrong(key, "a text", *found);
        name = found->string();
      }
    const auto* const kind = std::ranges::find(kScalingKinds, name, &ScalingKind::name);
    if (kind != kScalingKinds.end()) return *kind;
    std::string known;
    for (const ScalingKind& each : kScalingKinds) known += concat(known.empty() ? "" : ", ", each.name);
    config_.refuse(name_, concat("keel has no scaling '", printable(name, 64), "'; it has ", known));
  }

  void check_keys(const ScalingKind& kind) const {
    if (object_.is_null()) return;
    std::vector<std::string_view> known = split_choices(kind.keys);
    known.insert(known.end(), {"type", "rope_type", kTheta, kPartial});
    for (const auto& [key, value] : object_.members())
      if (!value.is_null() && std::ranges::find(known, key) == known.end())
        config_.refuse(name_,
                       concat("keel does not know its key ", printable(key, 64), " where the scaling is ", kind.name));
  }

 private:
  const Json* find(std::string_view key) const {
    const Json* const found = object_.find(key);
    return found == nullptr || found->is_null() ? nullptr : found;
  }
  [[noreturn]] void wrong(std::string_view key, std::string_view expected, const Json& got) const {
    config_.refuse(concat(name_, '.', key), concat("expects ", expected, ", got ", printable(got.dump(), 64)));
  }

  const HubConfig& config_;
  std::string_view name_;
  Json object_;
};

std::int64_t original_of(const RotaryOptions& options) {
  return options.original_positions > 0 ? options.original_positions : options.max_positions;
}

}  // namespace

RotaryOptions read_rotary(HubConfig& config, RotaryOptions standard) {
  RotaryOptions options = std::move(standard);
  const bool is_new = config.has(kParameters);
  if (is_new && config.has(kScaling))
    config.refuse(kScaling, "is there beside rope_parameters, which says the same; leave one of them out");
  (void)config.value(is_new ? kScaling : kParameters);
  const std::string_view name = is_new ? kParameters : kScaling;
  const RotaryKeys keys(config, name, config.value(name));
  const ScalingKind& kind = keys.kind();
  keys.check_keys(kind);

  options.theta = keys.number(kTheta, config.number(kTheta, options.theta));
  const double partial = keys.number(kPartial, config.number(kPartial, 1));
  if (partial != 1)
    config.refuse(kPartial, concat("is ", partial, ", and keel's ", config.model_type(), " turns whole heads"));
  options.scaling = kind.scaling;
  const std::int64_t original = config.integer(kOriginal, keys.integer(kOriginal, 0));
  if (kind.keys.find(kOriginal) != std::string_view::npos)
    options.original_positions = original > 0 ? original : options.max_positions;
  options.factor = keys.number("factor");
  options.attention_factor = keys.number("attention_factor");
  options.beta_fast = keys.number("beta_fast", options.beta_fast);
  options.beta_slow = keys.number("beta_slow", options.beta_slow);
  options.mscale = keys.number("mscale");
  options.mscale_all_dim = keys.number("mscale_all_dim");
  options.truncate = keys.flag("truncate", options.truncate);
  options.short_factor = keys.numbers("short_factor");
  options.long_factor = keys.numbers("long_factor");
  options.low_freq_factor = keys.number("low_freq_factor", options.low_freq_factor);
  options.high_freq_factor = keys.number("high_freq_factor", options.high_freq_factor);
  try {
    (void)rotary_frequencies(options, options.max_positions);
  } catch (const Error& error) { config.refuse(name, error.what()); }
  return options;
}

void write_rotary(Json& config, const RotaryOptions& options) {
  config["rope_theta"] = options.theta;
  if (options.scaling == RotaryScaling::none) {
    config["rope_scaling"] = nullptr;
    return;
  }
  const ScalingKind& kind = *std::ranges::find(kScalingKinds, options.scaling, &ScalingKind::scaling);
  Json scaling = {{"rope_type", kind.name}};
  const auto write = [&](std::string_view key, const std::optional<double>& value) {
    if (value) scaling[key] = *value;
  };
  if (kind.keys.find(kOriginal) != std::string_view::npos) scaling[kOriginal] = original_of(options);
  write("factor", options.factor);
  write("attention_factor", options.attention_factor);
  write("mscale", options.mscale);
  write("mscale_all_dim", options.mscale_all_dim);
  if (options.scaling == RotaryScaling::yarn) {
    scaling["beta_fast"] = options.beta_fast;
    scaling["beta_slow"] = options.beta_slow;
    scaling["truncate"] = options.truncate;
  }
  if (options.scaling == RotaryScaling::longrope) {
    scaling["short_factor"] = options.short_factor;
    scaling["long_factor"] = options.long_factor;
  }
  if (options.scaling == RotaryScaling::llama3) {
    scaling["low_freq_factor"] = options.low_freq_factor;
    scaling["high_freq_factor"] = options.high_freq_factor;
  }
  config["rope_scaling"] = std::move(scaling);
}

std::int64_t longest_text(const RotaryOptions& options) {
  if (options.scaling == RotaryScaling::none) return options.max_positions;
  const double stretched = std::floor(options.factor.value_or(1) * static_cast<double>(original_of(options)));
  return std::max(options.max_positions, static_cast<std::int64_t>(std::min(stretched, 0x1p40)));
}

}  // namespace keel
