#pragma once
// The table of sharding options. Configurations, their pages and the agreement among ranks come from it: a new option
// is a member of ShardingOptions and a row here.

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "keel/dist/parallel/sharding.h"

namespace keel {

struct ShardingKey {
  template <class T>
  using Of = T ShardingOptions::*;
  using Member = std::variant<Of<bool>, Of<int>, Of<std::int64_t>, Of<Accumulation>, Of<WeightCode>, Of<Residence>,
                              Of<std::string>>;

  std::string_view key;  // "bucket", in the section `sharding` of configurations
  Member member;
  std::int64_t unit = 1;  // that configurations count in: 1048576, of MiB
  // Limits of a number, in that unit.
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  // Whether another value gives the same numbers: a run that goes on with one is the same training.
  bool same_numbers = true;
  std::string_view help;           // with the unit
  std::string_view known_as = {};  // other programs' words, "a|b"
};

// The names of an enumeration's values, in their order.
constexpr std::span<const std::string_view> names_of(Accumulation) { return kAccumulations; }
constexpr std::span<const std::string_view> names_of(WeightCode) { return kWeightCodes; }
constexpr std::span<const std::string_view> names_of(Residence) { return kResidences; }

// Further words for values of an enumeration, "word=name|...", which are read as well.
constexpr std::string_view other_words_of(Accumulation) { return {}; }
constexpr std::string_view other_words_of(WeightCode) { return {}; }
constexpr std::string_view other_words_of(Residence) { return "false=device|true=host|none=device|cpu=host|nvme=file"; }

// In the order of documentation. Without `stage`, which configurations call the strategy.
std::span<const ShardingKey> sharding_keys();

// "stage 3; bucket 26214400; overlap 1; ...": equal where the options are.
std::string to_text(const ShardingOptions& options);

}  // namespace keel
