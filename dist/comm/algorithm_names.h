#pragma once
// The names by which configurations and `keel comm` know the algorithms of collectives.

#include <span>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

struct AlgorithmName {
  std::string_view name;
  std::string_view algorithm;  // in keel/dist/comm/algorithms.h; empty: the library's own
  bool shared_memory;          // between ranks that have some in common
  std::string_view meaning;
};

// The one list; algorithms are found by their own names, too.
std::span<const AlgorithmName> algorithm_names();
// Throws an Error that names the nearest one.
const AlgorithmName& find_algorithm_name(std::string_view name);

}  // namespace keel
