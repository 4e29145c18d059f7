#include "launch_plan.h"

#include <algorithm>
#include <sstream>

#include "keel/runtime/error.h"
#include "rank_report.h"
#include "timeout.h"
#include "whole_number.h"

namespace keel::cli {
namespace {

using Words = std::vector<std::string>;

constexpr std::string_view kTrain = "train";
constexpr std::string_view kAnswering[] = {"evaluate", "predict", "generate"};

constexpr const char* kInstall = "`apt-get install openmpi-bin libopenmpi-dev` and a new build of keel add Open MPI";

template <class... More>
void add(Words& words, More&&... more) {
  (words.emplace_back(std::forward<More>(more)), ...);
}

// The numbers of the chosen GPUs, as Python slices a list.
std::pair<int, int> resolve_slice(const RankWish& ranks, int gpus) {
  const auto place = [&](const std::optional<int>& bound, int standard) {
    if (!bound) return standard;
    return std::clamp(*bound < 0 ? *bound + gpus : *bound, 0, gpus);
  };
  return {place(ranks.slice->first, 0), place(ranks.slice->second, gpus)};
}

// The part [begin, end) of the GPUs that this process sees.
std::string visible_part(const Machine& machine, int begin, int end) {
  Words names;
  std::istringstream list(machine.visible_gpus);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  std::string part;
  for (int i = begin; i < end; ++i) {
    const auto at = static_cast<std::size_t>(i);
    part += concat(part.empty() ? "" : ",", at < names.size() ? names[at] : std::to_string(i));
  }
  return part;
}

// Hosts with how many ranks each may take, and with them the number of ranks where nobody says it.
class Placement {
 public:
  Placement(const LaunchWish& wish, const Machine& machine) : hosts(wish.hosts) {
    if (wish.ranks.count) ranks = *wish.ranks.count;
    else if (wish.ranks.slice) ranks = slice_ranks(wish, machine);
    else if (hosts.empty()) ranks = machine.gpus * wish.machines.count;
    const int count = static_cast<int>(hosts.size());
    int places = 0;
    for (Host& host : hosts) {
      if (host.ranks == 0) host.ranks = ranks > 0 ? (ranks + count - 1) / count : machine.gpus;
      KEEL_CHECK(host.ranks > 0, "how many ranks on ", host.name, "? Write --hosts ", host.name,
                 ":8, or -N 16 for all");
      places += host.ranks;
      most_on_a_host = std::max(most_on_a_host, host.ranks);
    }
    if (ranks == 0) ranks = places;
    KEEL_CHECK(ranks > 0, "how many ranks? -N 4 starts four (this machine has ", machine.processors,
               " processors and no GPU)");
    KEEL_CHECK(hosts.empty() || ranks <= places, "-N ", ranks, " is more than the ", places, " ranks of the hosts");
    const int machines = wish.machines.count;
    KEEL_CHECK(ranks % machines == 0, "-N ", ranks, " ranks are not so many on each of ", machines, " machines");
    KEEL_CHECK(machines == 1 || hosts.empty(),
               "--hosts starts ranks on all machines, --num-machines on this one alone");
    most_on_a_host = machines > 1    ? ranks / machines
                     : hosts.empty() ? (ranks + machine.nodes - 1) / machine.nodes
                                     : std::min(most_on_a_host, ranks);
  }

  int ranks = 0;
  std::vector<Host> hosts;
  int most_on_a_host = 0;
  std::string visible_gpus;  // to set; empty: as they are

 private:
  int slice_ranks(const LaunchWish& wish, const Machine& machine) {
    KEEL_CHECK(hosts.empty(), "-N takes a number of ranks beside --hosts: a slice means GPUs of this machine");
    KEEL_CHECK(machine.gpus > 0,
               "-N with a ':' chooses among the GPUs, and this machine has none; -N 4 starts four ranks");
    const auto [begin, end] = resolve_slice(wish.ranks, machine.gpus);
    KEEL_CHECK(begin < end, "-N chooses none of the ", machine.gpus, " GPUs");
    visible_gpus = visible_part(machine, begin, end);
    return end - begin;
  }
};

std::string host_list(const std::vector<Host>& hosts, bool with_ranks) {
  std::string list;
  for (const Host& host : hosts)
    list += concat(list.empty() ? "" : ",", host.name, with_ranks ? concat(':', host.ranks) : "");
  return list;
}

// What launchers call a binding.
struct BindingName {
  Binding binding;
  std::string_view name;  // ours, and Hydra's
  const char *open_mpi_4, *open_mpi_5, *slurm;
};
constexpr BindingName kBindings[] = {{Binding::none, "none", "none", "none", "none"},
                                     {Binding::core, "core", "core", "core", "cores"},
                                     {Binding::socket, "socket", "socket", "package", "sockets"},
                                     {Binding::numa, "numa", "numa", "numa", "ldoms"}};
const BindingName& names_of(Binding binding) { return kBindings[static_cast<std::size_t>(binding)]; }

Words open_mpi_words(const Placement& place, const Machine& machine, const LaunchPlan& plan, Binding binding,
                     int threads) {
  const bool is_new = machine.launcher.version >= 5;
  // A rank gets as many cores as it has threads.
  const std::string cores = binding == Binding::core && threads > 1 ? concat(":PE=", threads) : "";
  Words words;
  if (machine.is_root) add(words, "--allow-run-as-root");
  add(words, "-n", std::to_string(place.ranks));
  if (!place.hosts.empty()) add(words, "--host", host_list(place.hosts, true));
  // What Open MPI takes for the number of cores need not be what this process may use.
  if (place.hosts.empty() && is_new) add(words, "--map-by", concat("slot", cores, ":OVERSUBSCRIBE"));
  else if (!cores.empty()) add(words, "--map-by", "slot" + cores);
  if (place.hosts.empty() && !is_new) add(words, "--oversubscribe");
  // By default each rank is bound to one core, whatever the number of its threads.
  add(words, "--bind-to", is_new ? names_of(binding).open_mpi_5 : names_of(binding).open_mpi_4);
  // Ranks that end with an error say themselves what it was.
  add(words, "--quiet");
  if (place.most_on_a_host > machine.processors) add(words, "--mca", "mpi_yield_when_idle", "1");
  if (!machine.can_copy_between_processes) {
    if (is_new) add(words, "--mca", "smsc", "^cma");
    else add(words, "--mca", "btl_vader_single_copy_mechanism", "none");
  }
  if (!place.hosts.empty())
    for (const auto& [name, value] : plan.environment) add(words, "-x", name);
  return words;
}

Words hydra_words(const Placement& place, Binding binding, int threads) {
  Words words = {"-n", std::to_string(place.ranks)};
  if (!place.hosts.empty()) add(words, "-hosts", host_list(place.hosts, true));
  const bool has_many = binding == Binding::core && threads > 1;
  add(words, "-bind-to", concat(names_of(binding).name, has_many ? concat(':', threads) : ""));
  return words;
}

// The cluster's default is often none, with which every rank would be alone.
Words slurm_words(const Placement& place, const Machine& machine, Binding binding, int threads) {
  Words words = {"-n", std::to_string(place.ranks)};
  const bool is_hydra = machine.built_with == Launcher::Kind::hydra;
  for (const char* way : {is_hydra ? "pmi2" : "pmix", is_hydra ? "pmix" : "pmi2"}) {
    if (std::find(machine.slurm_ways.begin(), machine.slurm_ways.end(), way) == machine.slurm_ways.end()) continue;
    add(words, concat("--mpi=", way));
    break;
  }
  if (!place.hosts.empty())
    add(words, concat("--nodes=", place.hosts.size()), concat("--nodelist=", host_list(place.hosts, false)));
  add(words, concat("--cpus-per-task=", threads), concat("--cpu-bind=", names_of(binding).slurm),
      "--kill-on-bad-exit=1", "--quiet");
  return words;
}

Words own_words(const Placement& place, const LaunchWish& wish) {
  const Machines& machines = wish.machines;
  Words words = {"launch", "--processes", std::to_string(place.ranks / machines.count)};
  if (machines.count > 1) add(words, "--meet", concat(machines.number, '/', machines.count, '@', machines.address));
  if (!place.hosts.empty()) add(words, "--hosts", host_list(place.hosts, true));
  if (wish.keeps_going) add(words, "--keep-going");
  return words;
}

Words launcher_words(const Placement& place, const Machine& machine, const LaunchPlan& plan, const LaunchWish& wish,
                     int threads) {
  const Binding binding = wish.binding;
  switch (machine.launcher.kind) {
    case Launcher::Kind::open_mpi: return open_mpi_words(place, machine, plan, binding, threads);
    case Launcher::Kind::hydra: return hydra_words(place, binding, threads);
    case Launcher::Kind::slurm: return slurm_words(place, machine, binding, threads);
    case Launcher::Kind::keel: return own_words(place, wish);
    default: break;
  }
  KEEL_CHECK(binding == Binding::none, "keel does not know how ", machine.launcher.path,
             " binds ranks: it is neither of Open MPI nor of MPICH");
  KEEL_CHECK(place.hosts.empty(), "keel does not know how ", machine.launcher.path,
             " takes hosts: it is neither of Open MPI nor of MPICH");
  return {"-n", std::to_string(place.ranks)};
}

// Why the machine's launcher cannot start ranks of keel itself, or any.
void check_launcher(const Machine& machine, bool is_own) {
  const Launcher& launcher = machine.launcher;
  if (launcher.kind == Launcher::Kind::keel) return;
  const char* threads =
      is_own ? "; --threads runs the ranks as threads of one process, --tcp as processes without MPI" : "";
  const auto refuse = [&](const auto&... parts) {
    throw Error(concat(parts..., "; ", kInstall, threads), ErrorKind::unsupported);
  };
  if (is_own && machine.built_with == Launcher::Kind::none) refuse("this build of keel has no MPI");
  if (launcher.kind == Launcher::Kind::none) refuse("no mpirun, mpiexec or srun was found in PATH");
  const bool fits = launcher.kind == machine.built_with || launcher.kind == Launcher::Kind::slurm ||
                    launcher.kind == Launcher::Kind::other;
  if (is_own && !fits)
    throw Error(concat("keel was built with ", name_of(machine.built_with), ", and ", launcher.path, " is of ",
                       name_of(launcher.kind), ": its ranks would not find each other; put the right one first in PATH",
                       threads),
                ErrorKind::unsupported);
}

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text(1, '\'');
  for (const char c : word) {
    if (c == '\'') text += "'\\'";
    text += c;
  }
  return text + '\'';
}

}  // namespace

std::string_view name_of(Launcher::Kind kind) {
  switch (kind) {
    case Launcher::Kind::none: return "no MPI";
    case Launcher::Kind::open_mpi: return "Open MPI";
    case Launcher::Kind::hydra: return "MPICH";
    case Launcher::Kind::slurm: return "Slurm";
    case Launcher::Kind::keel: return "keel";
    case Launcher::Kind::other: break;
  }
  return "another MPI";
}

Machines parse_machines(std::string_view text) {
  const std::size_t slash = text.find('/'), at = text.find('@');
  const auto number = whole_number(text.substr(0, slash));
  const auto count =
      slash < at && at != std::string_view::npos ? whole_number(text.substr(slash + 1, at - slash - 1)) : std::nullopt;
  KEEL_CHECK(number && count, "--meet expects NUMBER/COUNT@HOST:PORT");
  return {*count, *number, std::string(text.substr(at + 1))};
}

Binding parse_binding(std::string_view text) {
  std::string names;
  for (const BindingName& each : kBindings) {
    if (each.name == text) return each.binding;
    names += concat(names.empty() ? "" : ", ", each.name);
  }
  throw Error(concat("--bind-to is one of ", names, "; got '", text.substr(0, 60), "'"));
}

bool names_configuration(std::string_view word) {
  return word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json");
}

bool names_answering(std::string_view word) { return std::ranges::find(kAnswering, word) != std::end(kAnswering); }

bool names_command(std::string_view word) { return word == kTrain || word == "comm" || names_answering(word); }

bool names_training(std::string_view word) { return word == kTrain || names_configuration(word); }

LaunchPlan plan_launch(const LaunchWish& wish, const Machine& machine) {
  KEEL_CHECK(!wish.command.empty(),
             "what shall the ranks run? `keel launch -N 4 c.yaml` or `keel launch -N 4 PROGRAM`");
  const bool trains = names_training(wish.command[0]);
  const bool is_own = trains || names_command(wish.command[0]);
  const bool answers = names_answering(wish.command[0]);
  KEEL_CHECK(trains || answers || wish.strategy.empty(),
             "--strat is for `keel train`: it needs a configuration, not a program");
  KEEL_CHECK(is_own || !wish.threads,
             "--threads is for keel itself: it needs a configuration or `comm`, not a program");
  KEEL_CHECK(!wish.threads || wish.hosts.empty(), "--threads runs all ranks in one process; leave --hosts out");
  KEEL_CHECK(!wish.threads || wish.binding == Binding::none,
             "--bind-to is for ranks that are processes; of --threads, `taskset -c 0-3 keel launch ...` binds the one "
             "process");

  KEEL_CHECK(!wish.threads || wish.machines.count == 1, "--threads runs all ranks in one process, on one machine");

  const bool is_over_tcp = machine.launcher.kind == Launcher::Kind::keel;
  KEEL_CHECK(!wish.keeps_going || is_over_tcp,
             "--keep-going is for ranks that keel starts itself, by --tcp; those of MPI and Slurm end together");
  KEEL_CHECK(!is_over_tcp || wish.binding == Binding::none,
             "--bind-to is for ranks that MPI or Slurm starts; leave it or --tcp out");

  const Placement place(wish, machine);
  LaunchPlan plan;
  plan.ranks = place.ranks;
  plan.hosts = place.hosts;
  plan.reports = wish.reports;
  const int threads = std::max(1, machine.processors / place.most_on_a_host);
  if (!machine.has_thread_count) plan.environment.emplace_back("OMP_NUM_THREADS", std::to_string(threads));
  if (!wish.timeout.empty()) {
    parse_timeout(wish.timeout, "--timeout");
    plan.environment.emplace_back(kTimeoutVariable, wish.timeout);
  }
  if (wish.reports) plan.environment.emplace_back(kReportsVariable, "1");
  if (!place.visible_gpus.empty()) plan.environment.emplace_back("CUDA_VISIBLE_DEVICES", place.visible_gpus);

  Words program = wish.command;
  if (trains) {
    if (program[0] == kTrain) program.erase(program.begin());
    KEEL_CHECK(!program.empty(), "what shall the ranks train? `keel launch -N 4 train c.yaml`");
    Words words = {machine.keel, "train"};
    if (wish.threads && place.ranks > 1) add(words, "--thread-ranks", std::to_string(place.ranks));
    // Behind the configuration, and before values of the user's own, which replace it.
    auto place_of_strategy = std::find_if(program.begin(), program.end(), names_configuration);
    if (place_of_strategy != program.end()) ++place_of_strategy;
    Words said = wish.values;
    if (!wish.strategy.empty()) said.push_back("strategy=" + wish.strategy);
    program.insert(place_of_strategy, said.begin(), said.end());
    words.insert(words.end(), program.begin(), program.end());
    program = std::move(words);
  } else if (is_own) {
    program.insert(program.begin(), machine.keel);
    if (answers && !wish.strategy.empty()) program.insert(program.begin() + 2, {"--strat", wish.strategy});
    if (wish.threads) add(program, "--threads", "-N", std::to_string(place.ranks));
  }
  const bool needs_no_launcher = wish.threads || (place.ranks == 1 && wish.machines.count == 1 && place.hosts.empty() &&
                                                  wish.binding == Binding::none);
  if (!needs_no_launcher) {
    check_launcher(machine, is_own);
    plan.launcher = machine.launcher.kind;
    // A launcher may give ranks a terminal where it has none itself, for them to draw on.
    if (!machine.shows_terminal) plan.environment.emplace_back("TERM", "dumb");
    add(plan.command, machine.launcher.path);
    KEEL_CHECK(wish.binding != Binding::core || !wish.hosts.empty() || place.most_on_a_host <= machine.processors,
               "--bind-to core gives each rank a core of its own, and ", place.ranks, " ranks are more than the ",
               machine.processors, " processors");
    const Words words = launcher_words(place, machine, plan, wish, threads);
    plan.command.insert(plan.command.end(), words.begin(), words.end());
  }
  if (is_over_tcp && !needs_no_launcher) add(plan.command, "--rank");
  else if (!needs_no_launcher || wish.reports) add(plan.command, machine.keel, "launch", "--rank");
  plan.command.insert(plan.command.end(), program.begin(), program.end());
  return plan;
}

std::string to_string(const LaunchPlan& plan) {
  std::string line;
  for (const auto& [name, value] : plan.environment) line += concat(name, '=', shell_word(value), ' ');
  for (const std::string& word : plan.command) line += concat(shell_word(word), ' ');
  line.pop_back();
  return line;
}

}  // namespace keel::cli
