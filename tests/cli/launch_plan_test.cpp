#include "cli/launch_plan.h"

#include <gtest/gtest.h>

#include <map>

#include "cli/launched.h"
#include "keel/runtime/error.h"

namespace keel::cli {
namespace {

using Kind = Launcher::Kind;

Machine small_machine(Kind kind = Kind::open_mpi, int version = 4) {
  Machine machine;
  machine.processors = 2;
  machine.keel = "/k/keel";
  machine.built_with = kind == Kind::slurm ? Kind::open_mpi : kind;
  machine.launcher = {kind, version, kind == Kind::slurm ? "/bin/srun" : "/bin/mpirun"};
  return machine;
}

LaunchWish wish(const std::string& ranks, std::vector<std::string> command = {"c.yaml"}) {
  LaunchWish wish;
  if (!ranks.empty()) wish.ranks = parse_ranks(ranks);
  wish.command = std::move(command);
  return wish;
}

std::string line(const LaunchWish& wish, const Machine& machine = small_machine()) {
  return to_string(plan_launch(wish, machine));
}

std::string refusal(const LaunchWish& wish, const Machine& machine = small_machine()) {
  try {
    plan_launch(wish, machine);
  } catch (const Error& error) { return error.what(); }
  return "";
}

TEST(LaunchPlan, MoreRanksThanProcessorsShareThem) {
  EXPECT_EQ(line(wish("4", {"c.yaml", "steps=5", "data.path=my text"})),
            "OMP_NUM_THREADS=1 /bin/mpirun -n 4 --oversubscribe --bind-to none --quiet --mca mpi_yield_when_idle 1 "
            "/k/keel launch --rank /k/keel train c.yaml steps=5 'data.path=my text'");
}

TEST(LaunchPlan, RanksGetTheThreadsThatFallToThem) {
  Machine machine = small_machine();
  machine.processors = 16;
  EXPECT_EQ(line(wish("4"), machine),
            "OMP_NUM_THREADS=4 /bin/mpirun -n 4 --oversubscribe --bind-to none --quiet /k/keel launch --rank /k/keel "
            "train c.yaml");
  EXPECT_TRUE(line(wish("5"), machine).starts_with("OMP_NUM_THREADS=3 "));
  machine.has_thread_count = true;
  EXPECT_TRUE(line(wish("5"), machine).starts_with("/bin/mpirun "));
}

TEST(LaunchPlan, GivesOpenMpiWhatRootAndContainersNeed) {
  Machine machine = small_machine();
  machine.is_root = true;
  machine.can_copy_between_processes = false;
  machine.shows_terminal = false;
  EXPECT_EQ(line(wish("2"), machine),
            "OMP_NUM_THREADS=1 TERM=dumb /bin/mpirun --allow-run-as-root -n 2 --oversubscribe --bind-to none --quiet "
            "--mca btl_vader_single_copy_mechanism none /k/keel launch --rank /k/keel train c.yaml");
  machine.launcher.version = 5;
  EXPECT_EQ(
      line(wish("2"), machine),
      "OMP_NUM_THREADS=1 TERM=dumb /bin/mpirun --allow-run-as-root -n 2 --map-by slot:OVERSUBSCRIBE --bind-to none "
      "--quiet --mca smsc '^cma' /k/keel launch --rank /k/keel train c.yaml");
}

TEST(LaunchPlan, KnowsTheOtherLaunchers) {
  EXPECT_EQ(line(wish("4"), small_machine(Kind::hydra)),
            "OMP_NUM_THREADS=1 /bin/mpirun -n 4 -bind-to none /k/keel launch --rank /k/keel train c.yaml");
  Machine cluster = small_machine(Kind::slurm);
  cluster.processors = 64;
  cluster.nodes = 2;
  EXPECT_EQ(line(wish("16"), cluster),
            "OMP_NUM_THREADS=8 /bin/srun -n 16 --cpus-per-task=8 --cpu-bind=none --kill-on-bad-exit=1 --quiet /k/keel "
            "launch --rank /k/keel train c.yaml");
  const std::string list =
      "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n";
  cluster.slurm_ways = parse_slurm_ways(list);
  EXPECT_EQ(cluster.slurm_ways, (std::vector<std::string>{"pmix", "none", "pmi2"}));
  EXPECT_NE(line(wish("16"), cluster).find(" -n 16 --mpi=pmix --cpus-per-task=8 "), std::string::npos);
  cluster.built_with = Kind::hydra;
  EXPECT_NE(line(wish("16"), cluster).find(" -n 16 --mpi=pmi2 "), std::string::npos);
  EXPECT_EQ(line(wish("4"), small_machine(Kind::other)),
            "OMP_NUM_THREADS=1 /bin/mpirun -n 4 /k/keel launch --rank /k/keel train c.yaml");
}

TEST(LaunchPlan, BindsRanksInTheWordsOfEachLauncher) {
  LaunchWish bound = wish("2");
  const auto words = [&](const char* place, const Machine& machine) {
    bound.binding = parse_binding(place);
    const std::string all = line(bound, machine);
    const std::size_t begin = all.find(" -n 2 ") + 6;
    return all.substr(begin, all.find(" /k/keel") - begin);
  };
  Machine machine = small_machine();
  EXPECT_EQ(words("core", machine), "--oversubscribe --bind-to core --quiet");
  EXPECT_EQ(words("socket", machine), "--oversubscribe --bind-to socket --quiet");
  LaunchWish alone = wish("1");
  alone.binding = Binding::socket;
  EXPECT_NE(line(alone, machine).find("/bin/mpirun -n 1 --oversubscribe --bind-to socket"), std::string::npos);
  machine.processors = 8;
  EXPECT_EQ(words("core", machine), "--map-by slot:PE=4 --oversubscribe --bind-to core --quiet");
  EXPECT_EQ(words("numa", machine), "--oversubscribe --bind-to numa --quiet");
  machine.launcher.version = 5;
  EXPECT_EQ(words("core", machine), "--map-by slot:PE=4:OVERSUBSCRIBE --bind-to core --quiet");
  EXPECT_EQ(words("socket", machine), "--map-by slot:OVERSUBSCRIBE --bind-to package --quiet");
  EXPECT_EQ(words("core", small_machine(Kind::hydra)), "-bind-to core");
  Machine other = small_machine(Kind::hydra);
  other.processors = 8;
  EXPECT_EQ(words("core", other), "-bind-to core:4");
  other = small_machine(Kind::slurm);
  other.processors = 8;
  EXPECT_EQ(words("core", other), "--cpus-per-task=4 --cpu-bind=cores --kill-on-bad-exit=1 --quiet");
  EXPECT_EQ(words("numa", other), "--cpus-per-task=4 --cpu-bind=ldoms --kill-on-bad-exit=1 --quiet");
}

TEST(LaunchPlan, RefusesBindingsThatCannotBe) {
  LaunchWish bound = wish("4");
  bound.binding = Binding::core;
  EXPECT_EQ(refusal(bound),
            "--bind-to core gives each rank a core of its own, and 4 ranks are more than the 2 processors");
  bound.binding = Binding::socket;
  EXPECT_NE(refusal(bound, small_machine(Kind::other)).find("does not know how /bin/mpirun binds ranks"),
            std::string::npos);
  bound.threads = true;
  EXPECT_NE(refusal(bound).find("taskset"), std::string::npos);
  EXPECT_THROW(parse_binding("bone"), Error);
}

TEST(LaunchPlan, HostsGetTheirRanksAndTheEnvironment) {
  LaunchWish hosts = wish("");
  hosts.hosts = parse_hosts("a:8,b:8");
  Machine machine = small_machine();
  machine.processors = 32;
  EXPECT_EQ(
      line(hosts, machine),
      "OMP_NUM_THREADS=4 /bin/mpirun -n 16 --host a:8,b:8 --bind-to none --quiet -x OMP_NUM_THREADS /k/keel launch "
      "--rank /k/keel train c.yaml");
  machine.launcher.kind = machine.built_with = Kind::hydra;
  EXPECT_NE(line(hosts, machine).find(" -n 16 -hosts a:8,b:8 "), std::string::npos);
  machine.launcher.kind = Kind::slurm;
  EXPECT_NE(line(hosts, machine).find(" -n 16 --nodes=2 --nodelist=a,b --cpus-per-task=4 "), std::string::npos);
  hosts.hosts = parse_hosts("a,b");  // -N shares ranks out
  hosts.ranks.count = 6;
  machine.launcher.kind = machine.built_with = Kind::open_mpi;
  EXPECT_NE(line(hosts, machine).find(" -n 6 --host a:3,b:3 "), std::string::npos);
  hosts.ranks = {};
  EXPECT_NE(refusal(hosts, machine).find("how many ranks on a?"), std::string::npos);
  hosts.hosts = parse_hosts("a:2,b:2");
  hosts.ranks.count = 5;
  EXPECT_EQ(refusal(hosts, machine), "-N 5 is more than the 4 ranks of the hosts");
}

TEST(LaunchPlan, ReadsHostsAndHostFiles) {
  const std::vector<Host> two = {{"a", 8}, {"b.example", 4}};
  EXPECT_EQ(parse_hosts("a:8,b.example:4"), two);
  EXPECT_EQ(parse_hosts("=a:8,b.example:4"), two);
  EXPECT_EQ(parse_hostfile("# nodes\na slots=8 max_slots=9\n\nb.example:4 # the small one\n"), two);
  for (const char* text : {"", "a:", "a:0", "a:x", ",a:1", "--host:1"}) EXPECT_THROW(parse_hosts(text), Error) << text;
  for (const char* text : {"", "# none\n", "a slots=0", "a 8", "a slots"})
    EXPECT_THROW(parse_hostfile(text), Error) << text;
}

// As in the trainers before keel: -N 8, -N=8, -N 2:, -N 3:8, -N :4.
TEST(LaunchPlan, ANumberOfRanksIsACountOrASliceOfTheGpus) {
  for (const char* text : {"8", "=8"}) EXPECT_EQ(parse_ranks(text).count, 8) << text;
  Machine machine = small_machine();
  machine.gpus = 8;
  machine.has_thread_count = true;
  const auto chosen = [&](const char* text) {
    const LaunchPlan plan = plan_launch(wish(text), machine);
    return concat(plan.ranks, " on ", plan.environment.empty() ? "" : plan.environment[0].second);
  };
  EXPECT_EQ(chosen("2:"), "6 on 2,3,4,5,6,7");
  EXPECT_EQ(chosen("=2:"), "6 on 2,3,4,5,6,7");
  EXPECT_EQ(chosen("3:8"), "5 on 3,4,5,6,7");
  EXPECT_EQ(chosen(":4"), "4 on 0,1,2,3");
  EXPECT_EQ(chosen("-2:"), "2 on 6,7");
  EXPECT_EQ(chosen("6:99"), "2 on 6,7");
  EXPECT_EQ(chosen("4"), "4 on ");
  EXPECT_EQ(chosen(""), "8 on ");  // one for each GPU
  machine.visible_gpus = "7,GPU-5,3";
  machine.gpus = 3;
  EXPECT_EQ(chosen("1:"), "2 on GPU-5,3");
  EXPECT_EQ(refusal(wish("3:"), machine), "-N chooses none of the 3 GPUs");
  machine.gpus = 0;
  EXPECT_NE(refusal(wish("2:"), machine).find("this machine has none"), std::string::npos);
  EXPECT_NE(refusal(wish(""), machine).find("how many ranks?"), std::string::npos);
  for (const char* text : {"", "0", "-1", "x", "2:x", "1:2:3", "8 "}) EXPECT_THROW(parse_ranks(text), Error) << text;
}

TEST(LaunchPlan, AStrategyIsAnOverrideThatTheUsersOwnMayReplace) {
  LaunchWish with_strategy = wish("8", {"c.yaml", "steps=5"});
  with_strategy.strategy = "deepspeed-2-bf16";
  EXPECT_TRUE(line(with_strategy).ends_with(" /k/keel train c.yaml strategy=deepspeed-2-bf16 steps=5"));
  with_strategy.command = {"train", "--delay", "9", "c.yaml", "steps=5"};
  EXPECT_TRUE(line(with_strategy).ends_with(" /k/keel train --delay 9 c.yaml strategy=deepspeed-2-bf16 steps=5"));
  with_strategy.command = {"./program"};
  EXPECT_NE(refusal(with_strategy).find("--strat is for `keel train`"), std::string::npos);
}

TEST(LaunchPlan, CommandsThatLetAModelAnswerTakeAStrategy) {
  for (const std::string command : {"evaluate", "predict", "generate"}) {
    LaunchWish shared = wish("4", {command, "runs/mine", "--x"});
    shared.strategy = "zero3";
    EXPECT_TRUE(line(shared).ends_with(concat(" /k/keel ", command, " --strat zero3 runs/mine --x"))) << line(shared);
    shared.threads = true;
    EXPECT_TRUE(line(shared).ends_with(concat("/k/keel ", command, " --strat zero3 runs/mine --x --threads -N 4")))
        << line(shared);
  }
}

TEST(LaunchPlan, OneRankAndThreadsNeedNoLauncher) {
  Machine bare = small_machine();
  bare.launcher = {};
  EXPECT_EQ(line(wish("1"), bare), "OMP_NUM_THREADS=2 /k/keel train c.yaml");
  EXPECT_EQ(line(wish("1", {"./program", "-x"}), bare), "OMP_NUM_THREADS=2 ./program -x");
  LaunchWish threads = wish("4");
  threads.threads = true;
  EXPECT_EQ(line(threads, bare), "OMP_NUM_THREADS=1 /k/keel train --thread-ranks 4 c.yaml");
  threads.command = {"./program"};
  EXPECT_NE(refusal(threads, bare).find("--threads is for keel itself"), std::string::npos);
  threads = wish("4");
  threads.threads = true;
  threads.hosts = parse_hosts("a:4");
  EXPECT_NE(refusal(threads, bare).find("leave --hosts out"), std::string::npos);
}

TEST(LaunchPlan, WithoutMpiItSaysHowToInstallItAndNamesThreads) {
  Machine bare = small_machine();
  bare.launcher = {};
  EXPECT_NE(refusal(wish("4"), bare).find("no mpirun, mpiexec or srun was found in PATH; `apt-get install openmpi-bin"),
            std::string::npos);
  EXPECT_TRUE(refusal(wish("4"), bare)
                  .ends_with("--threads runs the ranks as threads of one process, --tcp as processes without MPI"));
  EXPECT_EQ(refusal(wish("4", {"./program"}), bare).find("--threads"), std::string::npos);
  Machine built_without = small_machine();
  built_without.built_with = Kind::none;
  EXPECT_TRUE(refusal(wish("4"), built_without).starts_with("this build of keel has no MPI; "));
  EXPECT_EQ(refusal(wish("4", {"./program"}), built_without), "");
}

TEST(LaunchPlan, KeelsOwnLauncherNeedsNoMpiAndStartsAnyProgram) {
  Machine machine = small_machine(Kind::keel);
  machine.launcher.path = machine.keel;
  machine.built_with = Kind::none;
  EXPECT_EQ(line(wish("4"), machine), "OMP_NUM_THREADS=1 /k/keel launch --processes 4 --rank /k/keel train c.yaml");
  LaunchWish hosts = wish("3", {"./program", "-x"});
  hosts.hosts = parse_hosts("a:2,b:2");
  EXPECT_EQ(line(hosts, machine), "OMP_NUM_THREADS=1 /k/keel launch --processes 3 --hosts a:2,b:2 --rank ./program -x");
  hosts.binding = Binding::core;
  EXPECT_NE(refusal(hosts, machine).find("leave it or --tcp out"), std::string::npos);
}

TEST(LaunchPlan, RanksThatReportHaveAProcessAroundThemAndAreToldSo) {
  LaunchWish one = wish("1");
  one.reports = true;
  EXPECT_EQ(line(one), "OMP_NUM_THREADS=2 KEEL_LAUNCH_REPORTS=1 /k/keel launch --rank /k/keel train c.yaml");
  LaunchWish hosts = wish("2");
  hosts.hosts = parse_hosts("a:1,b:1");
  hosts.reports = true;
  EXPECT_NE(line(hosts).find(" -x KEEL_LAUNCH_REPORTS "), std::string::npos) << line(hosts);
}

TEST(LaunchPlan, ALauncherOfAnotherMpiIsRefusedForKeelItself) {
  Machine machine = small_machine(Kind::hydra);
  machine.built_with = Kind::open_mpi;
  EXPECT_TRUE(refusal(wish("4"), machine).starts_with("keel was built with Open MPI, and /bin/mpirun is of MPICH: "))
      << refusal(wish("4"), machine);
  EXPECT_EQ(refusal(wish("4", {"./program"}), machine), "");
}

TEST(LaunchPlan, RecognisesLaunchersByWhatTheySayOfThemselves) {
  const auto found = [](const char* text) {
    const Launcher launcher = identify_launcher("x", text);
    return concat(name_of(launcher.kind), ' ', launcher.version);
  };
  EXPECT_EQ(found("mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"), "Open MPI 4");
  EXPECT_EQ(found("mpirun (Open MPI) 5.0.1\n"), "Open MPI 5");
  EXPECT_EQ(found("HYDRA build details:\n    Version:                                 4.0.2\n"), "MPICH 4");
  EXPECT_EQ(found("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307\n"), "MPICH 2021");
  EXPECT_EQ(found("slurm 22.05.8\n"), "Slurm 22");
  EXPECT_EQ(found("something else\n"), "another MPI 0");
}

std::string launched_by(const std::map<std::string, std::string>& variables) {
  const auto launched = find_launched([&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
  if (!launched) return "nobody";
  return concat(launched->by, ": ", launched->rank, " of ", launched->size, launched->address.empty() ? "" : " at ",
                launched->address);
}

TEST(Launched, IsSeenInTheEnvironment) {
  EXPECT_EQ(launched_by({}), "nobody");
  EXPECT_EQ(launched_by({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "2"}}),
            "Open MPI: 2 of 4");
  EXPECT_EQ(launched_by({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "3"}}), "MPI: 1 of 3");
  EXPECT_EQ(launched_by({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"PMIX_RANK", "5"}}), "Slurm: 5 of 8");
  // The script of a batch job has a number, but is no step.
  EXPECT_EQ(launched_by({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}), "nobody");
  EXPECT_EQ(launched_by({{"PMI_RANK", "3"}, {"PMI_SIZE", "3"}}), "nobody");
  EXPECT_EQ(launched_by({{"PMI_RANK", "x"}, {"PMI_SIZE", "3"}}), "nobody");
}

TEST(Launched, ByHandIsSeenWithAnAddress) {
  const std::map<std::string, std::string> own = {
      {"KEEL_RANK", "2"}, {"KEEL_SIZE", "3"}, {"KEEL_ADDRESS", "node7:4000"}};
  const std::map<std::string, std::string> torch = {
      {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}};
  const auto with = [](std::map<std::string, std::string> some, const std::map<std::string, std::string>& others) {
    some.insert(others.begin(), others.end());
    return some;
  };
  EXPECT_EQ(launched_by(own), "KEEL_RANK: 2 of 3 at node7:4000");
  EXPECT_EQ(launched_by(torch), "RANK: 1 of 4 at node7:29500");
  EXPECT_EQ(launched_by(with(torch, own)), "KEEL_RANK: 2 of 3 at node7:4000");
  EXPECT_EQ(launched_by(with(torch, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})), "RANK: 1 of 4 at node7:29501");
  EXPECT_EQ(launched_by(with(own, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})), "MPI: 1 of 2");
  EXPECT_EQ(launched_by({{"RANK", "1"}, {"WORLD_SIZE", "4"}}), "nobody");
  EXPECT_EQ(launched_by({{"KEEL_RANK", "0"}, {"KEEL_SIZE", "1"}}), "KEEL_RANK: 0 of 1");
  EXPECT_THROW(launched_by({{"KEEL_RANK", "0"}, {"KEEL_SIZE", "2"}}), Error);
  EXPECT_THROW(launched_by({{"KEEL_RANK", "3"}, {"KEEL_SIZE", "3"}, {"KEEL_ADDRESS", "a:1"}}), Error);
  EXPECT_THROW(launched_by({{"KEEL_ADDRESS", "a:1"}}), Error);
}

}  // namespace
}  // namespace keel::cli
