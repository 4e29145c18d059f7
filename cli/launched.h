#pragma once
// What a process's environment says about the launcher that started it as one rank of several, or about the address at
// which it finds the other ranks.

#include <functional>
#include <optional>
#include <string>

namespace keel::cli {

struct Launched {
  std::string by;  // "Open MPI", "MPI", "Slurm", "KEEL_RANK" or "RANK"
  int rank = 0;
  int size = 1;
  std::string address = {};  // HOST:PORT of rank 0; empty where the ranks find each other by MPI
  std::string token = {};    // keeps runs apart
};

// The value of an environment variable; null where there is none.
using Environment = std::function<const char*(const char* name)>;

// Nothing where no launcher started this process. MPI's variables come first, torchrun's last. Throws where KEEL_RANK,
// KEEL_SIZE and KEEL_ADDRESS are there in part or make no sense: the ranks would be runs of their own.
std::optional<Launched> find_launched(const Environment& environment);
// Reads the environment of this process.
std::optional<Launched> find_launched();

}  // namespace keel::cli
