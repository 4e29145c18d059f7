#include "launched.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace keel::cli {
namespace {

// The variables of one launcher.
struct Names {
  const char* by;
  const char* rank;
  const char* size;
};
constexpr Names kLaunchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"MPI", "PMI_RANK", "PMI_SIZE"},
    // The second is set for steps alone: the script of a batch job is no rank.
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
};

std::optional<int> number(const char* text) {
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const std::string_view all(text);
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), value);
  if (error != std::errc{} || end != all.data() + all.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Launched> find_launched(const Environment& environment) {
  for (const Names& names : kLaunchers) {
    const std::optional<int> rank = number(environment(names.rank)), size = number(environment(names.size));
    if (!rank || !size || *size < 1 || *rank >= *size) continue;
    return Launched{names.by, *rank, *size};
  }
  return std::nullopt;
}

std::optional<Launched> find_launched() {
  return find_launched([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace keel::cli
