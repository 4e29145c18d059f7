// `keel launch`: starts the ranks of a run, or of any program, with the launcher that this machine has.

#include <signal.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "common_options.h"
#include "keel/runtime/context.h"
#include "keel/runtime/device_api.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/strategy.h"
#include "launch.h"
#include "launch_flags.h"
#include "launch_plan.h"
#include "launched.h"
#include "launching.h"
#include "machine.h"
#include "process.h"
#include "rank_report.h"
#include "ranks.h"
#include "started_ranks.h"
#include "supervise.h"
#include "tcp_launcher.h"

namespace keel::cli {
namespace {

constexpr const char* kLaunchFooter = R"(
Examples:
  keel launch -N 4 --strat zero2-bf16 c.yaml steps=500
  keel launch -N 4 --threads c.yaml            ranks as threads of one process, without MPI
  keel launch -N 4 --tcp c.yaml                ranks as processes without MPI
  keel launch -N 4 --tcp --keep-going c.yaml outer.on_failure=drop     groups go on without one that dies
  keel launch -N 4 --tcp --keep-going --rejoin 60 c.yaml outer.on_failure=drop     and with it again after a minute
  keel launch --hosts a:8,b:8 c.yaml           keel and the data have the same path on each host
  keel launch train c.yaml -N 4                the same as keel launch -N 4 c.yaml
  keel launch -N 2: c.yaml                     a rank for each GPU from the third on, as Python slices
  keel launch -N 4 --bind-to core comm         ranks that stay on their cores, to measure
  keel launch -N 4 --restarts 3 c.yaml         starts again from the last checkpoint when a rank dies
  keel launch -N 4 --restarts 3 --min-ranks 2 --rejoin 60 c.yaml     with fewer ranks, and with all again
  keel launch -N 4 --dry-run c.yaml            prints the command that would be run
  keel launch -N 4 PROGRAM arguments...        any MPI program
  keel launch --config_file accelerate.yaml c.yaml     ranks, machines, stage and numbers as Accelerate's file says
  keel launch -N 8 --num_machines 2 --machine_rank 0 --main_process_ip a c.yaml     once on each machine

Options of `accelerate launch` and torchrun are read as well: --mixed_precision bf16 --zero_stage 2, --nproc_per_node 4 and
so on, with _ or -. NODE_RANK, MASTER_ADDR and MASTER_PORT are those of --num_machines. --strat dp is ddp with --threads.

Options stand before PROGRAM. Behind CONFIG.yaml they may stand, too, among those of `keel train`.

Ctrl-C, SIGTERM and SIGUSR1 reach every rank; the exit code is the ranks'. A second Ctrl-C ends all at
once. Where a rank fails, dies or does not come, the others name it, the step and the collective, and all
end.)";

struct LaunchArguments {
  std::vector<std::string> command;
  std::string ranks, strategy, hosts, hostfile, launcher, timeout, binding = "none";
  SupervisionWish supervision;
  bool threads = false, dry_run = false;
  bool tcp = false;
  bool keeps_going = false;
  bool is_rank = false;  // this process stands around one rank
  int processes = 0;     // or is the launcher of so many
  std::string meeting;   // which meet those of other machines
  LaunchFlags flags;
};

// A process that is not a descendant must be readable, as ranks are for each other.
bool can_copy_between_processes() {
  // Open MPI's own setting stands where somebody gave one.
  if (std::getenv("OMPI_MCA_btl_vader_single_copy_mechanism") != nullptr) return true;
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) return false;
  if (child == 0) {
    pid_t seen = 0;
    const iovec to = {&seen, sizeof seen}, from = {const_cast<pid_t*>(&parent), sizeof parent};
    const bool works = ::process_vm_readv(parent, &to, 1, &from, 1, 0) == sizeof seen && seen == parent;
    ::_exit(works ? 0 : 1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  return status == 0;
}

// The launcher of the MPI that keel was built with, else the first that is there.
Launcher find_launcher(Launcher::Kind built_with, const std::string& wish) {
  std::vector<std::string> names = {"mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.hydra"};
  if (std::getenv("SLURM_JOB_ID") != nullptr) names.insert(names.begin(), "srun");
  if (!wish.empty()) names = {wish};
  Launcher first;
  for (const std::string& name : names) {
    const std::string path = name.find('/') == std::string::npos ? program_path(name) : name;
    if (path.empty()) continue;
    const Launcher launcher = identify_launcher(path, output_of({path, "--version"}));
    if (launcher.kind == built_with || launcher.kind == Launcher::Kind::slurm) return launcher;
    if (first.kind == Launcher::Kind::none) first = launcher;
  }
  KEEL_CHECK(wish.empty() || first.kind != Launcher::Kind::none, "there is no launcher '", wish, "'");
  return first;
}

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Machine inspect_machine(const LaunchArguments& arguments, bool several_machines = false) {
  Machine machine;
  machine.processors = usable_processors();
  machine.gpus = count_devices(DeviceType::cuda).count;
  machine.visible_gpus = environment_value("CUDA_VISIBLE_DEVICES");
  machine.nodes = std::max(1, std::atoi(environment_value("SLURM_JOB_NUM_NODES").c_str()));
  machine.is_root = ::geteuid() == 0;
  machine.can_copy_between_processes = can_copy_between_processes();
  // default_threads() refuses what is no number: it is said once, and not replaced.
  machine.has_thread_count = !environment_value("OMP_NUM_THREADS").empty() && default_threads() > 0;
  machine.shows_terminal = ::isatty(STDOUT_FILENO) == 1;
  machine.keel = own_path();
  machine.built_with = mpi_of_this_build();
  if (arguments.tcp || several_machines) machine.launcher = {Launcher::Kind::keel, 0, machine.keel};
  else if (!arguments.threads) machine.launcher = find_launcher(machine.built_with, arguments.launcher);
  if (machine.launcher.kind != Launcher::Kind::slurm) machine.nodes = 1;
  else if (environment_value("SLURM_MPI_TYPE").empty())
    machine.slurm_ways = parse_slurm_ways(output_of({machine.launcher.path, "--mpi=list"}));
  return machine;
}

// A strategy that stands for other options, too. accmt takes a file in its place.
void read_strategy_name(LaunchArguments& arguments) {
  if (arguments.strategy == "dp") {  // one process drives all
    arguments.strategy = "ddp";
    arguments.threads = true;
  } else if (names_configuration(arguments.strategy)) {
    arguments.flags.accelerate_file = std::exchange(arguments.strategy, "");
  }
}

// What options of other trainers' launchers, and files of theirs, say of ranks, machines and training.
void add_flags(LaunchWish& wish, const LaunchArguments& arguments) {
  const auto environment = [](const char* name) -> const char* { return std::getenv(name); };
  LaunchFlags::Said said = arguments.flags.read(wish.command, wish.ranks.count.value_or(0), environment);
  for (const std::string& note : said.notes) std::cerr << concat("keel: note: ", printable(note), '\n');
  wish.values = std::move(said.values);
  const ForeignLaunch& launch = said.launch;
  if (launch.ranks && !wish.ranks.slice && !arguments.threads) wish.ranks.count = *launch.ranks;
  if (launch.ranks && arguments.threads && !wish.ranks.count) wish.ranks.count = *launch.ranks;
  if (!launch.gpus.empty() && launch.gpus != "all" && launch.gpus != "available")
    ::setenv("CUDA_VISIBLE_DEVICES", launch.gpus.c_str(), 1);
  if (arguments.flags.threads > 0) ::setenv("OMP_NUM_THREADS", std::to_string(arguments.flags.threads).c_str(), 1);
  const int count = launch.machines.value_or(1);
  if (count <= 1) return;
  KEEL_CHECK(launch.machine && *launch.machine >= 0 && *launch.machine < count, "which of the ", count,
             " machines is this? --machine-rank, or NODE_RANK, is a number from 0 to ", count - 1);
  KEEL_CHECK(!launch.address.empty(), "where do the ", count,
             " machines meet? --main-process-ip, or MASTER_ADDR, is the host of the first one");
  KEEL_CHECK(arguments.launcher.empty() && arguments.supervision.restarts == 0,
             "keel starts the ranks of one machine of several itself, and does not watch over the others: leave out "
             "--launcher and --restarts, or start all by --hosts");
  wish.machines = {count, *launch.machine, concat(launch.address, ':', *launch.port)};
}

LaunchWish read_wish(const LaunchArguments& arguments) {
  LaunchWish wish;
  if (!arguments.ranks.empty()) wish.ranks = parse_ranks(arguments.ranks);
  if (!arguments.strategy.empty()) {
    const Strategy strategy = parse_strategy(arguments.strategy);
    if (const std::string missing = why_not_offered(strategy); !missing.empty())
      throw Error(concat("--strat ", arguments.strategy, ": ", missing), ErrorKind::unsupported);
  }
  wish.strategy = arguments.strategy;
  KEEL_CHECK(arguments.hosts.empty() || arguments.hostfile.empty(), "give --hosts or --hostfile, not both");
  if (!arguments.hosts.empty()) wish.hosts = parse_hosts(arguments.hosts);
  if (!arguments.hostfile.empty()) wish.hosts = parse_hostfile(read_text(arguments.hostfile));
  KEEL_CHECK(!arguments.tcp || (!arguments.threads && arguments.launcher.empty()),
             "--tcp, --threads and --launcher are three ways to start ranks; give one of them");
  wish.timeout = arguments.timeout;
  wish.binding = parse_binding(arguments.binding);
  wish.threads = arguments.threads;
  wish.keeps_going = arguments.keeps_going;
  KEEL_CHECK(!wish.keeps_going || arguments.supervision.restarts == 0,
             "--keep-going leaves ranks out that die, and --restarts starts all again; give one of them");
  wish.command = arguments.command;
  add_flags(wish, arguments);
  return wish;
}

int exit_code_of(const ProcessEnd& end) { return end.signal == 0 ? end.code : 128 + end.signal; }

// Stands around one rank: gives it the signals that the launcher passes on, and says so if one kills it. The launcher
// sees this process, and no launcher tells in one line which rank died of what.
int run_rank(const std::vector<std::string>& command) {
  const HeldSignals held;
  follow_launcher();
  std::set<int> passed_on;
  StartedRank self;
  const auto launched = find_launched();
  RankReport report = {RankReport::What::started, launched ? launched->rank : 0};
  ProcessOptions options;
  options.signal_at_our_death = SIGKILL;
  options.takes_stops = takes_stops(command);
  options.on_start = [&] {
    self.tell_that_it_started();
    tell_launcher(report);
  };
  options.on_signal = [&](pid_t child, int number) {
    if (number == SIGTERM && passed_on.empty()) self.tell_that_it_was_terminated();
    if (number == SIGTERM) passed_on.insert(SIGKILL);  // by the launcher, which means an end in any way
    if (number == kAsInterrupt) number = SIGINT;
    else if (number == SIGUSR2 || number == SIGALRM) number = SIGTERM;
    passed_on.insert(number);
    ::kill(-child, number);
  };
  const ProcessEnd end = run_process(command, options);
  if (exit_code_of(end) != 0 && passed_on.empty()) self.tell_that_it_failed();
  if (end.signal != 0 && !passed_on.contains(end.signal)) {
    report = {RankReport::What::killed, report.rank, end.signal,
              concat("was killed by signal ", end.signal, " (", ::strsignal(end.signal), "; process ", end.id, " on ",
                     host_name(), ")")};
    std::cerr << concat("keel: error: rank ", report.rank, ' ', report.text, '\n') << std::flush;
    tell_launcher(report);
  } else if (!passed_on.contains(SIGKILL)) {
    tell_launcher(
        {RankReport::What::ended, report.rank, exit_code_of(end), concat("ended with exit code ", exit_code_of(end))});
  }
  return exit_code_of(end);
}

// While it lives, SIGINT and SIGTERM end this process, which waits for nobody but a disk.
class OpenToStops {
 public:
  OpenToStops() {
    sigset_t stops;
    sigemptyset(&stops);
    for (const int number : {SIGINT, SIGTERM}) sigaddset(&stops, number);
    ::sigprocmask(SIG_UNBLOCK, &stops, &before_);
  }
  ~OpenToStops() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  OpenToStops(const OpenToStops&) = delete;
  OpenToStops& operator=(const OpenToStops&) = delete;

 private:
  sigset_t before_;
};

LaunchWish read_wish_of_files(LaunchArguments& arguments) {
  const OpenToStops open;
  read_strategy_name(arguments);
  return read_wish(arguments);
}

// Better said once than by every rank.
void check_that_it_is_there(const std::string& program) {
  if (names_command(program)) return;
  const bool is_path = program.find('/') != std::string::npos || names_configuration(program);
  const bool is_there = is_path ? ::access(program.c_str(), F_OK) == 0 : !program_path(program).empty();
  if (!is_there) throw Error(concat("cannot start '", program, "': there is no such file"), ErrorKind::io);
}

// Without a launcher between them this process becomes the program.
[[noreturn]] void become(const LaunchPlan& plan) {
  for (const auto& [name, value] : plan.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const std::string& word : plan.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  sigset_t mask = mask_for_exec(takes_stops(plan.command)), before;
  ::sigprocmask(SIG_SETMASK, &mask, &before);
  ::execvp(words[0], words.data());
  const int reason = errno;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  throw Error(concat("cannot start '", plan.command[0], "': ", std::strerror(reason)), ErrorKind::io);
}

int run(LaunchArguments& arguments) {
  if (arguments.processes > 0)
    return launch_over_tcp(arguments.processes,
                           arguments.hosts.empty() ? std::vector<Host>() : parse_hosts(arguments.hosts),
                           arguments.meeting.empty() ? Machines() : parse_machines(arguments.meeting),
                           arguments.command, arguments.keeps_going);
  if (arguments.is_rank) return run_rank(arguments.command);
  const HeldSignals held;  // for the ranks, though looking for a launcher takes a while
  const LaunchWish wish = read_wish_of_files(arguments);
  check_supervision(arguments.supervision, wish);
  const Machine machine = inspect_machine(arguments, wish.machines.count > 1);
  const LaunchPlan plan = plan_launch(wish, machine);
  if (arguments.dry_run) {
    std::cout << to_string(plan) << '\n';
    return 0;
  }
  if (arguments.supervision.is_wished(wish)) return supervise(arguments.supervision, wish, machine);
  if (plan.launcher == Launcher::Kind::none) become(plan);
  if (wish.hosts.empty()) check_that_it_is_there(wish.command[0]);
  return Launching(plan).run().code;
}

// Every option, those of other trainers' launchers behind keel's own.
std::vector<Option> launch_options(LaunchArguments* arguments) {
  std::vector<Option> options = {
      {"-N,--num-processes", "RANKS", &arguments->ranks,
       "Number of ranks, or a slice of the GPUs (2:); without it as the configuration says, or one for each GPU."},
      {"--strat", "NAME", &arguments->strategy, "Strategy of the run; see `keel strats`."},
      {"--hosts", "LIST", &arguments->hosts, "Hosts and the ranks on each: a:8,b:8."},
      {"--hostfile,--mpirun-hostfile,--deepspeed-hostfile", "FILE", &arguments->hostfile,
       "The same from a file: a line `a slots=8` for each host."},
      ranks_as_threads(&arguments->threads),
      {"--tcp", "", &arguments->tcp,
       "Ranks are processes that keel starts itself, by ssh on other hosts, and that find each other over TCP."},
      {"--keep-going", "", &arguments->keeps_going,
       "With --tcp, when a rank dies the others go on, as those of a run with outer.on_failure=drop can; the exit code "
       "is 0 where one of them ends well. With --rejoin the dead come back."},
      {"--launcher", "PROGRAM", &arguments->launcher, "The launcher; else the first that is there and fits."},
      {"--bind-to", "PLACE", &arguments->binding,
       "What each rank is bound to: none, core (as many as it has threads), socket or numa. Benchmarks want "
       "one."},
      {"--timeout", "SECONDS", &arguments->timeout,
       "How long a rank waits for the others before the run ends with an error; 300 without it. The "
       "same as KEEL_TIMEOUT in the environment."},
      {"--restarts,--max-restarts",
       "N",
       {&arguments->supervision.restarts, 0, 1'000'000},
       "Start a run of `keel train` again, up to N times, when ranks die: from its newest checkpoint."},
      {"--min-ranks",
       "M",
       {&arguments->supervision.min_ranks, 1, 1'000'000},
       "Then go on without dead ranks and hosts that do not answer, if M ranks are left; without it all are "
       "needed."},
      {"--rejoin",
       "SECONDS",
       {&arguments->supervision.rejoin, 1, 1'000'000},
       "How often to ask whether left-out places answer, or those of --keep-going whose ranks died; once they do, the "
       "run saves and goes on with them."},
      {"--dry-run", "", &arguments->dry_run, "Print the command and end."},
      {"--rank", "", &arguments->is_rank, ""},
      {"--processes", "", {&arguments->processes, 0, 1'000'000}, ""},
      {"--meet", "", &arguments->meeting, ""}};
  const std::vector<Option> others = arguments->flags.options();
  options.insert(options.end(), others.begin(), others.end());
  return options;
}

}  // namespace

std::vector<std::string> words_for_ranks(const std::string& command, const Call& call) {
  std::vector<std::string> words = {command};
  for (const Given& given : call)
    if (given.names != "-N") words.insert(words.end(), given.words.begin(), given.words.end());
  return words;
}

int launch_keel(int ranks, std::vector<std::string> arguments) {
  const HeldSignals held;
  arguments.insert(arguments.begin(), own_path());
  LaunchWish wish;
  wish.ranks.count = ranks;
  wish.command = std::move(arguments);
  const LaunchPlan plan = plan_launch(wish, inspect_machine(LaunchArguments()));
  if (plan.launcher == Launcher::Kind::none) become(plan);
  return Launching(plan).run().code;
}

Command launch_command() {
  const auto arguments = std::make_shared<LaunchArguments>();
  return {
      .name = "launch",
      .help = "Start the ranks of a run, or of any program.",
      .positionals = {{"CONFIG.yaml|PROGRAM", "", Value::rest(&arguments->command, names_training),
                       "What the ranks run: a configuration, a command of keel, or a program, with its arguments."}},
      .options = launch_options(arguments.get()),
      .footer = kLaunchFooter,
      .run = [arguments](const Call&) { return run(*arguments); }};
}

}  // namespace keel::cli
