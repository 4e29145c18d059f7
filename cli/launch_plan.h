#pragma once
// What `keel launch` starts: from what the user asks for and what the machine is to a command line, without side
// effects.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel::cli {

// Who starts the ranks. Hydra is the launcher of MPICH and of the MPIs made from it; keel's own needs no MPI.
struct Launcher {
  enum class Kind : unsigned char { none, open_mpi, hydra, slurm, keel, other };
  Kind kind = Kind::none;
  int version = 0;  // the first number; 0: unknown
  std::string path = {};
};
std::string_view name_of(Launcher::Kind kind);
// From what `srun --mpi=list` prints: "pmix", "pmi2", ...
std::vector<std::string> parse_slurm_ways(std::string_view list);
// From what `mpirun --version` prints.
Launcher identify_launcher(std::string path, std::string_view version_text);

struct Host {
  std::string name;
  int ranks = 0;  // 0: not said
  bool operator==(const Host&) const = default;
};
// "a:8,b:8".
std::vector<Host> parse_hosts(std::string_view text);
// Lines like "a slots=8", "a:8" or "a"; # begins a comment.
std::vector<Host> parse_hostfile(std::string_view text);

// What each rank is bound to. `none`: the system moves its threads as it likes.
enum class Binding : unsigned char { none, core, socket, numa };
Binding parse_binding(std::string_view text);

// "8", or a part of the GPUs as Python slices it: "2:", ":4", "3:8". A leading '=', as in -N=8, does not count.
struct RankWish {
  std::optional<int> count = {};  // nothing in both: a rank for each GPU
  std::optional<std::pair<std::optional<int>, std::optional<int>>> slice = {};
};
RankWish parse_ranks(std::string_view text);

// The configuration of a run of `keel train`.
bool names_configuration(std::string_view word);
// A command of keel that ranks run: "train", "comm", and those that let a trained model answer, which may be sharded in
// another way than it was.
bool names_command(std::string_view word);
bool names_answering(std::string_view word);
// Whether what begins so is a run of `keel train`: with its name, or with the configuration alone.
bool names_training(std::string_view word);

// Machines on each of which somebody starts `keel launch`.
struct Machines {
  int count = 1, number = 0;
  std::string address = {};  // HOST:PORT of the first rank
};

// "1/2@a:29500": the second of two.
Machines parse_machines(std::string_view text);

struct LaunchWish {
  RankWish ranks = {};
  std::string strategy = {};             // for `keel train`; empty: as the configuration says
  std::vector<std::string> values = {};  // for `keel train`: KEY=VALUE, and options
  Machines machines = {};
  std::vector<Host> hosts = {};
  std::string timeout = {};  // seconds; empty: as it is without
  bool threads = false;      // ranks as threads of one process
  bool keeps_going = false;  // when a rank fails the others go on
  Binding binding = Binding::none;
  bool reports = false;                   // ranks tell the launcher how they end: rank_report.h
  std::vector<std::string> command = {};  // [train] CONFIG.yaml KEY=VALUE..., or PROGRAM and its arguments
};

struct Machine {
  int processors = 1;  // that this process may use
  int gpus = 0;
  std::string visible_gpus = {};  // CUDA_VISIBLE_DEVICES
  int nodes = 1;                  // of a Slurm allocation
  // How srun can tell ranks of each other, by `srun --mpi=list`; empty where SLURM_MPI_TYPE has chosen.
  std::vector<std::string> slurm_ways = {};
  bool is_root = false;
  bool can_copy_between_processes = true;            // process_vm_readv
  bool has_thread_count = false;                     // OMP_NUM_THREADS is set, and stays
  bool shows_terminal = true;                        // the standard output is one
  std::string keel = {};                             // this program
  Launcher::Kind built_with = Launcher::Kind::none;  // the MPI of this build
  Launcher launcher = {};
};

struct LaunchPlan {
  int ranks = 1;
  std::vector<Host> hosts = {};  // with the ranks that each may take
  bool reports = false;
  std::vector<std::pair<std::string, std::string>> environment = {};  // to add
  std::vector<std::string> command = {};
  Launcher::Kind launcher = Launcher::Kind::none;  // whose command it is
};
// Error for what cannot be started.
LaunchPlan plan_launch(const LaunchWish& wish, const Machine& machine);

// For a shell: "OMP_NUM_THREADS=1 mpirun -n 4 ...".
std::string to_string(const LaunchPlan& plan);

}  // namespace keel::cli
