#pragma once
// What the environment of a process says about the launcher that started it as one rank of several.

#include <functional>
#include <optional>
#include <string>

namespace keel::cli {

struct Launched {
  std::string by;  // "Open MPI", "MPI" or "Slurm"
  int rank = 0;
  int size = 1;
};

// The value of an environment variable; null where there is none.
using Environment = std::function<const char*(const char* name)>;

// Nothing where no launcher started this process.
std::optional<Launched> find_launched(const Environment& environment);
// Of this process.
std::optional<Launched> find_launched();

}  // namespace keel::cli
