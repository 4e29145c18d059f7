#include "launched.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace keel::cli {
namespace {

// The variables of one launcher. Rank and size must be there; the others may be missing.
struct Names {
  const char* by;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};
constexpr Names kLaunchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"an MPI launcher", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    // The second is set for steps alone: the script of a batch job is no rank.
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
    {"an MPI launcher", "PMIX_RANK", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
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
    return Launched{names.by, *rank, *size, number(environment(names.local_rank)).value_or(0),
                    number(environment(names.local_size)).value_or(1)};
  }
  return std::nullopt;
}

std::optional<Launched> find_launched() {
  return find_launched([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace keel::cli
