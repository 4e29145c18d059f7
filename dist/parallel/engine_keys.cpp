#include "keel/dist/parallel/engine_keys.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <type_traits>

#include "keel/runtime/error.h"

namespace keel {
namespace {

// With the kinds that there are.
std::string compression_help() {
  std::string text = "How gradients are compressed between ranks.";
  for (const CompressionKind& kind : kCompressions) text += concat(' ', kind.name, ": ", kind.meaning, '.');
  return text;
}

constexpr OptionCondition kScaled = {"loss_scale.type", "auto|dynamic|fixed"};

constexpr OptionKey<LossScaling> kScalingKeys[] = {
    {.key = "growth",
     .member = &LossScaling::growth,
     .low = 1,
     .help = "Factor when the scale grows.",
     .known_as = "growth_factor",
     .standard = "2",
     .when = kScaled},
    {.key = "backoff",
     .member = &LossScaling::backoff,
     .low = 0,
     .high = 1,
     .low_open = true,
     .help = "Factor when it shrinks, after a step with a gradient that is not finite.",
     .known_as = "backoff_factor",
     .standard = "0.5",
     .when = kScaled},
    {.key = "interval",
     .member = &LossScaling::interval,
     .low = 1,
     .help = "Steps taken in a row before it grows.",
     .known_as = "growth_interval|loss_scale_window",
     .when = kScaled},
    {.key = "hysteresis",
     .member = &LossScaling::hysteresis,
     .low = 1,
     .high = 1000,
     .help = "Skipped steps since the last growth until it shrinks.",
     .when = kScaled},
    {.key = "floor",
     .member = &LossScaling::floor,
     .low = 0,
     .help = "The scale never falls below this.",
     .known_as = "min_loss_scale",
     .standard = "1",
     .when = kScaled},
};

constexpr OptionKey<ShardedOptions> kEngineKeys[] = {
    {.key = "seed",
     .member = &ShardedOptions::seed,
     .help = "Seed of every random draw: initial weights, data order, dropout.",
     .known_as = "random_seed"},
    {.key = "clip",
     .member = &ShardedOptions::clip,
     .low = 0,
     .help = "Gradients with a longer 2-norm are scaled down to it, or as clip_by says; 0: never.",
     .known_as = "grad_clip|clip_grad|gradient_clipping|gradient_clip_val|max_grad_norm",
     .standard = "1.0"},
    {.key = "clip_by",
     .member = &ShardedOptions::clip_by,
     .help =
         "What clip holds down: the 2-norm of the whole gradient, or each element of it, to between -clip and clip.",
     .known_as = "gradient_clip_algorithm"},
    {.key = "sharding.wire",
     .member = &ShardedOptions::wire,
     .help = "Numbers in which gradients travel; auto: those of the strategy.",
     .known_as = "communication_data_type"},
    {.key = "loss_scale.initial",
     .member = &ShardedOptions::loss_scale,
     .low = 0,
     .low_open = true,
     .help = "The first scale, or the fixed one.",
     .known_as = "init_scale",
     .standard = "65536",
     .when = kScaled},
};

// Numbers so that equal texts are equal bits.
template <class T>
std::string text_of(const T& value) {
  if constexpr (std::is_same_v<T, std::optional<DType>>) {
    return value ? concat(*value) : std::string(kOptionDTypes[0]);
  } else if constexpr (has_names<T>) {
    return std::string(names_of(value)[name_index(value)]);
  } else if constexpr (std::is_same_v<T, double>) {
    char digits[32];
    return {digits, std::to_chars(digits, std::end(digits), value).ptr};
  } else {
    return concat(value);
  }
}

constexpr DType kDTypes[] = {DType::f32, DType::f32, DType::bf16, DType::f16};  // of kOptionDTypes; the first is none

}  // namespace

std::span<const OptionKey<Compression>> compression_keys() {
  static const std::string help = compression_help();
  static const OptionKey<Compression> keys[] = {
      {.key = "type", .member = &Compression::type, .help = help, .known_as = "compression|comm_hook|grad_compression"},
      {.key = "fraction",
       .member = &Compression::fraction,
       .low = 0,
       .high = 1,
       .low_open = true,
       .help = "The part of a shard's numbers that is sent, rounded up.",
       .known_as = "density|ratio",
       .when = {"gradient_compression.type", "topk"}},
      {.key = "rank",
       .member = &Compression::rank,
       .low = 1,
       .high = 4096,
       .help = "Columns of the narrow matrices.",
       .known_as = "matrix_approximation_rank",
       .when = {"gradient_compression.type", "powersgd"}},
      {.key = "bits",
       .member = &Compression::bits,
       .help = "Bits of a number. 4 are published; 8 send twice as much and come closer to what is sent without codes.",
       .when = {"gradient_compression.type", "qgz"}},
  };
  return keys;
}

std::span<const OptionKey<LossScaling>> scaling_keys() { return kScalingKeys; }
std::span<const OptionKey<ShardedOptions>> engine_keys() { return kEngineKeys; }

std::span<const std::string_view> names_of(Compression::Type) {
  static const auto names = [] {
    std::array<std::string_view, std::size(kCompressions)> all;
    std::ranges::transform(kCompressions, all.begin(), &CompressionKind::name);
    return all;
  }();
  return names;
}

std::size_t name_index(const std::optional<DType>& dtype) {
  if (!dtype) return 0;
  return static_cast<std::size_t>(std::find(std::begin(kDTypes) + 1, std::end(kDTypes), *dtype) - std::begin(kDTypes));
}

void set_by_index(std::optional<DType>& dtype, std::size_t index) {
  dtype = index == 0 ? std::nullopt : std::optional(kDTypes[index]);
}

std::string to_text(const ShardedOptions& options) {
  std::string text = concat("stage ", options.sharding.stage);
  visit_options(options, [&](std::string_view section, const auto& keys, const auto& values) {
    for (const auto& key : keys)
      std::visit([&](auto member) { text += concat("; ", section, key.key, ' ', text_of(values.*member)); },
                 key.member);
  });
  return text;
}

}  // namespace keel
