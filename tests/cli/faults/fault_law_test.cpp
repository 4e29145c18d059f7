// Whatever befalls a run of several processes: each of them ends in time, what they say names the fault, no process and
// no stray file is left, and the next session goes on to the bits of a run that nothing befell.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "keel/data/token_file.h"
#include "tests/by_commit.h"
#include "tests/cli/faults/fault.h"
#include "tests/pattern.h"

namespace keel::testing {

Scene::Scene(Way the_way, int ranks) : way(the_way), n(ranks), folder(sandbox / "made") {
  std::filesystem::create_directory(sandbox / "tmp");
  sandbox.write("text.yaml",
                "run: made\n"
                "model: {layers: 1, heads: 2, width: 32, block: 16}\n"
                "batch: {global: 6, micro: 1}\n"
                "strategy: zero2-fp32\n"
                "scheduler: {type: constant}\n"
                "eval: {batches: 2}\n"
                "checkpoint: {every: 6}\n"
                "log: {every: 1}\n"
                "threads: 1\n"
                "data: {type: tokens, path: data.tokens}\n");
  write_tokens(sandbox / "data.tokens");
}

void Scene::write_tokens(const std::string& path, std::uint32_t factor) const {
  TokenFileWriter writer(path, 300, "byte");
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < 40'000; ++i) tokens.push_back(i * i % 251 * factor % 300);
  writer.append(tokens);
  writer.commit();
}

void Scene::train_twelve_steps() const {
  const Outcome outcome = sandbox.keel(concat("train text.yaml steps=12 --thread-ranks ", n));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
}

void Scene::wait_until_it_trains() const {
  ASSERT_TRUE(comes_true([&] { return session->trains() || session->has_ended(); }));
}

namespace {

constexpr int kAtATime = 6;

struct Case {
  Fault fault;
  Way way;
  int n;
};

// By which ranks each fault is tried: two and three in both ways; or as the commit decides, over TCP by two or three,
// and every other time over MPI by the other number.
enum class Tried { all, some };

void expect_one_of(const std::vector<int>& expected, const Session::End& end) {
  for (const int code : end.codes)
    EXPECT_TRUE(std::find(expected.begin(), expected.end(), code) != expected.end()) << "exit code " << code << "\n"
                                                                                     << end.out << end.err;
}

// One rank says what is wrong, in one line.
void expect_one_error_at_most(const std::string& err) {
  int errors = 0;
  for (const std::string& line : lines_of(err)) errors += line.starts_with("keel: error: ") ? 1 : 0;
  EXPECT_LE(errors, 1) << err;
}

void expect_messages(const Scene& scene, const Fault& fault, const Session::End& end) {
  for (const std::string& pattern : fault.says)
    EXPECT_FALSE(first_match(end.out + end.err, pattern).empty()) << pattern << "\nis not in\n" << end.out << end.err;
  for (int r = 0; fault.all_logs_say && r < scene.n; ++r) {
    const std::string name = concat("made/logs/rank-", r, ".log");
    const std::string log = scene.sandbox.has(name) ? scene.sandbox.read(name) : "";
    EXPECT_FALSE(first_match(log, fault.says.front()).empty()) << "rank " << r << ":\n" << log;
  }
  EXPECT_EQ((end.out + end.err).find("please report this"), std::string::npos) << end.out << end.err;
}

// What a run that is whole has in its folder.
void expect_no_strays(const Scene& scene) {
  static constexpr const char* kOwn =
      "^(checkpoints/"
      "latest|config\\.(yaml|json)|metrics\\.jsonl|tokenizer\\.json|model\\.safetensors|checkpoints|logs|logs/"
      "rank-[0-9]+\\.log|"
      "checkpoints/step-[0-9]{8}(/(manifest\\.json|(model|optimizer)(-[0-9]-of-[0-9])?\\.safetensors))?)$";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scene.folder.path())) {
    const std::string path = std::filesystem::relative(entry.path(), scene.folder.path()).string();
    EXPECT_FALSE(first_match(path, kOwn).empty()) << path;
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scene.sandbox / "tmp"))
    ADD_FAILURE() << entry.path();
}

void expect_goes_on(Scene& scene) {
  // Checkpoints, some of which may not be whole: three steps more than any of them has.
  const std::vector<std::int64_t> steps = scene.folder.checkpoint_steps();
  std::int64_t last = steps.empty() ? 3 : steps.back() + 3;
  if (const auto named = first_match(scene.next, "step-([0-9]+)"); !named.empty())
    last = std::max<std::int64_t>(last, std::stoll(named[1]) + 3);
  const std::string what = concat("steps=", last, " eval.every=0 ");
  scene.way = scene.next_way;
  scene.start(concat(what, scene.next));
  const Session::End end = scene.session->wait();
  EXPECT_TRUE(end.was_in_time);
  expect_one_of({0}, end);
  const Outcome whole = scene.sandbox.keel(concat("train text.yaml run=whole ", what, "--thread-ranks ", scene.n));
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_TRUE(scene.sandbox.read("made/model.safetensors") == scene.sandbox.read("whole/model.safetensors"))
      << end.out << end.err;
}

void expect_law(const Case& row) {
  const Fault& fault = row.fault;
  Scene scene(row.way, row.n);
  if (fault.before) fault.before(scene);
  scene.start(fault.session, fault.options);
  if (fault.during) fault.during(scene);
  const Session::End end = scene.session->wait();
  EXPECT_TRUE(end.was_in_time) << "killed after " << kDeadline.count() << " s\n" << end.out << end.err;
  expect_one_of(fault.codes, end);
  if (!fault.each_says) expect_one_error_at_most(end.err);
  expect_messages(scene, fault, end);
  EXPECT_EQ(processes_left_in(scene.sandbox / ""), "");
  if (fault.after) fault.after(scene);
  expect_goes_on(scene);
  EXPECT_EQ(processes_left_in(scene.sandbox / ""), "");
  expect_no_strays(scene);
}

std::vector<Case> cases_of(const std::vector<Fault>& faults, const std::vector<Way>& ways, Tried tried) {
  const char* wish = std::getenv("KEEL_TEST_FAULT");  // a part of its name
  std::mt19937 random = by_commit();
  std::vector<Case> cases;
  for (const Fault& fault : faults) {
    const auto draw = random();
    const int two_or_three = 2 + static_cast<int>(draw % 2);
    const bool also_by_mpi = draw / 2 % 2 == 1 || fault.of_launcher;
    for (const Way way : ways)
      for (const int n : {2, 3}) {
        // Three ranks over MPI where two are tried over TCP, and the other way round.
        const bool is_drawn = way == Way::tcp ? n == two_or_three : also_by_mpi && n != two_or_three;
        if ((tried == Tried::all || is_drawn) && (way == Way::mpi || !fault.of_launcher) &&
            (wish == nullptr || fault.name.find(wish) != std::string::npos))
          cases.push_back({fault, way, n});
      }
  }
  return cases;
}

// Several at a time, as most of it is waiting for launchers.
void expect_law(const std::vector<Fault>& faults, Tried tried) {
  std::vector<Way> ways = {Way::tcp, Way::mpi};
#ifdef KEEL_HAVE_MPI
  const std::string no_mpi = run_keel("launch -N 2 --dry-run true").err;
#else
  const std::string no_mpi = "this build has no MPI";
#endif
  if (!no_mpi.empty()) ways.pop_back();
  const std::vector<Case> cases = cases_of(faults, ways, tried);
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < cases.size(); i = next++) {
      SCOPED_TRACE(concat(cases[i].fault.name, cases[i].way == Way::mpi ? ", MPI, " : ", TCP, ", cases[i].n, " ranks"));
      try {
        expect_law(cases[i]);
      } catch (const std::exception& error) { ADD_FAILURE() << error.what(); }
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < kAtATime; ++i) workers.emplace_back(work);
  }
  if (!no_mpi.empty()) GTEST_SKIP() << "by TCP alone: " << no_mpi;
}

TEST(FaultLaw, HoldsForDamagedCheckpoints) { expect_law(checkpoint_faults(), Tried::some); }
TEST(FaultLaw, HoldsForDataThatChanges) { expect_law(data_faults(), Tried::some); }
TEST(FaultLaw, HoldsForTheRunsFolder) { expect_law(folder_faults(), Tried::some); }
TEST(FaultLaw, HoldsForSignals) { expect_law(signal_faults(), Tried::some); }

TEST(SlowFaultLaw, HoldsForDamagedCheckpoints) { expect_law(checkpoint_faults(), Tried::all); }
TEST(SlowFaultLaw, HoldsForDataThatChanges) { expect_law(data_faults(), Tried::all); }
TEST(SlowFaultLaw, HoldsForTheRunsFolder) { expect_law(folder_faults(), Tried::all); }
TEST(SlowFaultLaw, HoldsForSignals) { expect_law(signal_faults(), Tried::all); }

}  // namespace
}  // namespace keel::testing
