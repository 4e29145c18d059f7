#pragma once
// From the settings of an update to its rule, for the loops of every device.

#include <array>
#include <type_traits>
#include <utility>

#include "keel/kernels/update.h"

namespace keel {

template <class A, std::size_t>
using Each = A&;

template <class Rule, class A, std::size_t... I>
constexpr bool keeps_so_many(std::index_sequence<I...>) {
  return std::is_invocable_v<const Rule&, A, A&, Each<A, I>...>;
}
// Whether the rule knows what to do with so many kept numbers.
template <class Rule, class A, std::size_t kKept>
inline constexpr bool kKeeps = keeps_so_many<Rule, A>(std::make_index_sequence<kKept>{});

// Calls run(std::integral_constant<std::size_t, kept>) for the count that the settings ask for.
template <class Settings, class Run>
void visit_kept(const Settings& settings, const Run& run) {
  const std::size_t kept = settings.state_names().size();
  const auto try_count = [&]<std::size_t kKept>(std::integral_constant<std::size_t, kKept> count) {
    if constexpr (kKeeps<typename Settings::template Rule<float>, float, kKept>)
      if (kept == kKept) run(count);
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) { (try_count(std::integral_constant<std::size_t, I>{}), ...); }
  (std::make_index_sequence<kMostKept + 1>{});
}

template <class Settings>
inline constexpr bool kHasNorms = requires {
  Settings::kNorms;
};

template <class Settings>
inline constexpr bool kUpdatesRows = requires {
  Settings::kTakesRows;
};

template <class Settings>
inline constexpr bool kHasCodes = requires {
  Settings::kSigns;
};

template <class Settings>
inline constexpr bool kHasShared = requires {
  Settings::kShared;
};

}  // namespace keel
