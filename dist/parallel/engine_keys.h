#pragma once
// The tables of engine options. Configurations, their pages and the agreement among ranks come from them: a new option
// is a member of its struct and a row here.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "keel/dist/parallel/sharded_options.h"

namespace keel {

// An option matters where that key has one of these values, "a|b"; empty: always.
struct OptionCondition {
  std::string_view key, values;
};

// A row of a table: a member of a struct of options, its limits, and all that configurations and their pages say of it.
template <class Options>
struct OptionKey {
  template <class T>
  using Of = T Options::*;
  using Member = std::variant<Of<bool>, Of<int>, Of<std::int64_t>, Of<std::uint64_t>, Of<double>, Of<std::string>,
                              Of<std::optional<DType>>, Of<Accumulation>, Of<WeightCode>, Of<MatrixWork>, Of<Residence>,
                              Of<Compression::Type>, Of<Compression::Bits>, Of<ClipBy>>;

  std::string_view key;  // in its section
  Member member;
  std::int64_t unit = 1;  // that configurations count in: 1048576, of MiB
  // Limits of a number, in that unit.
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  std::optional<std::int64_t> automatic = {};  // the value that configurations write as auto
  // Whether another value gives the same numbers: a run that goes on with one is the same training.
  bool same_numbers = false;
  std::string_view help;           // with the unit
  std::string_view known_as = {};  // other programs' words, "a|b"
  // What configurations say without it, as YAML; empty: the value of the struct.
  std::string_view standard = {};
  OptionCondition when = {};
};

// The names of an option's values, in their order: of an enumeration, and of numbers in which something travels.
inline constexpr std::string_view kOptionDTypes[] = {"auto", "fp32", "bf16", "fp16"};
constexpr std::span<const std::string_view> names_of(Accumulation) { return kAccumulations; }
constexpr std::span<const std::string_view> names_of(WeightCode) { return kWeightCodes; }
constexpr std::span<const std::string_view> names_of(MatrixWork) { return kMatrixWorks; }
constexpr std::span<const std::string_view> names_of(Residence) { return kResidences; }
constexpr std::span<const std::string_view> names_of(ClipBy) { return kClipBys; }
constexpr std::span<const std::string_view> names_of(Compression::Bits) { return kCompressionBits; }
std::span<const std::string_view> names_of(Compression::Type);
constexpr std::span<const std::string_view> names_of(std::optional<DType>) { return kOptionDTypes; }

// The number of a value among those names, and the value of a number.
template <class Enum>
constexpr std::size_t name_index(Enum value) {
  return static_cast<std::size_t>(value);
}
std::size_t name_index(const std::optional<DType>& dtype);
template <class Enum>
void set_by_index(Enum& value, std::size_t index) {
  value = static_cast<Enum>(index);
}
void set_by_index(std::optional<DType>& dtype, std::size_t index);

template <class T>
inline constexpr bool has_names = requires(T value) {
  names_of(value);
};

// Further words for values that have names, "word=name|...", which are read as well.
template <class T>
constexpr std::string_view other_words_of(const T&) {
  return {};
}
constexpr std::string_view other_words_of(Residence) { return "false=device|true=host|none=device|cpu=host|nvme=file"; }

// In the order of documentation. Sections of configurations: `sharding` (without the stage, which configurations call
// the strategy), `gradient_compression` and `loss_scale`; and what has its key alone, "clip" and "sharding.wire".
std::span<const OptionKey<ShardingOptions>> sharding_keys();
std::span<const OptionKey<Compression>> compression_keys();
std::span<const OptionKey<LossScaling>> scaling_keys();
std::span<const OptionKey<ShardedOptions>> engine_keys();

// f(the name of a section with its dot, its table, its struct among the options)
template <class F>
void visit_options(const ShardedOptions& options, const F& f) {
  f("", engine_keys(), options);
  f("sharding.", sharding_keys(), options.sharding);
  f("gradient_compression.", compression_keys(), options.compression);
  f("loss_scale.", scaling_keys(), options.scaling);
}

// "seed 1; clip 0; ...; sharding.bucket 26214400; ...": equal where all options of the tables are.
std::string to_text(const ShardedOptions& options);

}  // namespace keel
