#pragma once
// Runs that die and go on, and what their processes trained.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/elastic.h"
#include "cli/rank_report.h"
#include "keel/data/divide_rows.h"
#include "keel/data/token_file.h"
#include "keel/trainer/metrics.h"
#include "tests/by_commit.h"
#include "tests/cli/mpi/processes.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {

using testing::Outcome;
using testing::RunningProgram;
using testing::Sandbox;
using Clock = std::chrono::steady_clock;

inline constexpr int kEvery = 10;
inline constexpr std::int64_t kBatch = 12, kMicro = 2, kBlock = 16;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Calls f until it is true; false after a minute.
template <class F>
bool soon(const F& f) {
  for (const auto begin = Clock::now(); seconds_since(begin) < 60;) {
    if (f()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

inline int count_of(const std::string& text, const std::string& words) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(words, at)) != std::string::npos; at += words.size()) ++count;
  return count;
}

// Ranks that MPI starts, or keel itself.
struct Way {
  const char* name;
  bool is_tcp;
  std::string options() const { return is_tcp ? "--tcp" : ""; }
};

// A run with a checkpoint at every tenth step. What its processes read of the data is noted.
struct ElasticRun {
  explicit ElasticRun(std::string ways, std::int64_t steps = 100) : steps(steps), ways_(std::move(ways)) {
    sandbox.write("run.yaml", concat("steps: ", steps,
                                     "\n"
                                     "model: {layers: 1, heads: 2, width: 32, block: ",
                                     kBlock,
                                     "}\n"
                                     "data: {type: tokens, path: data.tokens}\n"
                                     "batch: {global: ",
                                     kBatch, ", micro: ", kMicro,
                                     "}\n"
                                     "optimizer: {lr: 3e-3}\n"
                                     "scheduler: {type: constant, warmup: 2}\n"
                                     "eval: {every: 0, batches: 2}\n"
                                     "checkpoint: {every: 10, keep: 2}\n"
                                     "log: {every: 1}\n"
                                     "run: made\n"
                                     "threads: 1\n"));
    TokenFileWriter writer(sandbox / "data.tokens", 300, "byte");
    std::vector<std::uint32_t> tokens;
    for (std::uint32_t i = 0; i < 1U << 21; ++i) tokens.push_back(i * i % 251);
    writer.append(tokens);
    writer.commit();
  }

  RunningProgram start(const std::string& options, const std::string& before = "true") const {
    return RunningProgram(concat("launch ", ways_, ' ', options), sandbox / "",
                          concat(before, " && ", noting("reads")));
  }
  // What a shell does so that what is read of the data is noted in a file.
  std::string noting(const std::string& file) const {
    return concat("export LD_PRELOAD='", KEEL_LOGGED_READS, "' KEEL_READS_OF=/data.tokens KEEL_READS='", sandbox / file,
                  "'");
  }
  pid_t rank(int number) const { return testing::process_of_rank(number, sandbox / ""); }

  // The losses in the metrics, of each step as often as it is there.
  std::multimap<std::int64_t, double> losses(const std::string& run = "made") const {
    std::multimap<std::int64_t, double> found;
    if (!sandbox.has(run + "/metrics.jsonl")) return found;
    for (const Json& record : read_metrics(sandbox / (run + "/metrics.jsonl")))
      if (record.contains("loss")) found.emplace(record.at("step").integer(), record.at("loss").number());
    return found;
  }
  std::int64_t last_step() const {
    const auto all = losses();
    return all.empty() ? 0 : all.rbegin()->first;
  }

  // SIGKILL to a rank once the run has made that step. Returns the last step that was made.
  std::int64_t kill_at(int number, std::int64_t step) const {
    pid_t process = 0;
    const bool came = soon([&] { return last_step() >= step && (process = rank(number)) != 0; });
    EXPECT_TRUE(came) << "no step " << step;
    const std::int64_t last = last_step();
    if (came) ::kill(process, SIGKILL);
    return last;
  }

  // Until a session with so many ranks has made a step of its own.
  double seconds_until_steps(int ranks, pid_t unlike) const {
    const auto begin = Clock::now();
    EXPECT_TRUE(soon([&] {
      const pid_t last = rank(ranks - 1);
      return last != 0 && last != unlike && rank(ranks) == 0;
    }));
    const auto size = [&] { return sandbox.read("made/metrics.jsonl").size(); };
    // The file is shorter once the session has begun, or the same, and then grows.
    for (std::size_t before = size(); soon([&] { return size() != before; }); before = size())
      if (size() > before) break;
    return seconds_since(begin);
  }

  Sandbox sandbox;
  std::int64_t steps;

 private:
  std::string ways_;
};

// A process, and the places of the windows that it has read for training, in their order.
struct Reader {
  int rank = 0;
  std::vector<std::int64_t> places = {};
};

// In the order in which they began, also one that is asked to end before its first step. A window is a read of its
// inputs, and one of its targets: the same a token later.
inline std::vector<Reader> readers_in(const ElasticRun& run, const std::string& file) {
  constexpr std::int64_t kToken = 2, kWindow = kBlock * kToken;  // bytes
  std::map<pid_t, std::size_t> known;
  std::vector<Reader> readers;
  std::vector<std::int64_t> inputs;  // of each reader, where the targets are still to come; else -1
  std::istringstream lines(run.sandbox.read(file));
  int rank = 0;
  pid_t process = 0;
  for (std::int64_t offset = 0, bytes = 0; lines >> rank >> process >> offset >> bytes;) {
    const auto [found, is_new] = known.emplace(process, readers.size());
    if (is_new) readers.push_back({.rank = rank});
    if (is_new) inputs.push_back(-1);
    if (bytes != kWindow) continue;
    std::int64_t& before = inputs[found->second];
    const bool are_targets = before >= 0 && offset == before + kToken;
    if (are_targets) readers[found->second].places.push_back(before);
    before = are_targets ? -1 : offset;
  }
  // A run looks at one row of its training data and one of its validation data before it begins
  // (trainer/batch_check.h).
  for (Reader& each : readers)
    each.places.erase(each.places.begin(), each.places.begin() + std::min<std::ptrdiff_t>(2, std::ssize(each.places)));
  return readers;
}

// From where and by how many ranks the run went on, as its lines say.
struct GoesOn {
  int ranks;
  std::int64_t step;
};
inline std::vector<GoesOn> sessions_of(const std::string& text) {
  std::vector<GoesOn> found;
  const std::regex line("([0-9]+) ranks? go(es)? on from step ([0-9]+)");
  for (auto match = std::sregex_iterator(text.begin(), text.end(), line); match != std::sregex_iterator(); ++match)
    found.push_back({std::stoi((*match)[1]), std::stoll((*match)[3])});
  return found;
}

// The samples of each step that the ranks have trained, by what they have read for it. `ids`: of windows, by place.
inline std::map<std::int64_t, std::multiset<std::int64_t>> committed_samples(
    const ElasticRun& run, int ranks, const std::vector<GoesOn>& sessions,
    const std::map<std::int64_t, std::int64_t>& ids) {
  std::vector<GoesOn> all = {{ranks, 0}};
  all.insert(all.end(), sessions.begin(), sessions.end());
  const std::vector<Reader> readers = readers_in(run, "reads");
  std::map<std::int64_t, std::multiset<std::int64_t>> samples;
  for (int rank = 0; rank < ranks; ++rank) {
    auto reader = readers.begin();
    for (std::size_t s = 0; s < all.size(); ++s) {
      if (rank >= all[s].ranks) continue;
      reader = std::find_if(reader, readers.end(), [&](const Reader& each) { return each.rank == rank; });
      if (reader == readers.end()) return ADD_FAILURE() << "rank " << rank << " of session " << s, samples;
      std::int64_t rows = 0;  // of a step
      for (const Rows range : divide_rows(kBatch, kMicro, rank, all[s].ranks)) rows += range.end - range.begin;
      const std::int64_t end = s + 1 < all.size() ? all[s + 1].step : run.steps;
      for (std::size_t i = 0; i < reader->places.size(); ++i) {
        const std::int64_t step = all[s].step + static_cast<std::int64_t>(i) / rows;
        const auto id = ids.find(reader->places[i]);
        if (step < end) samples[step].insert(id != ids.end() ? id->second : -1);
      }
      ++reader;
    }
  }
  return samples;
}

// The history that is committed: every step once, with the loss of the run that nobody disturbed, and its samples, each
// once.
inline void expect_history(const ElasticRun& run, int ranks, const std::vector<GoesOn>& sessions) {
  ASSERT_EQ(run.sandbox.keel("train run.yaml run=undisturbed", run.noting("reads-undisturbed")).code, 0);
  const auto losses = run.losses(), undisturbed = run.losses("undisturbed");
  ASSERT_EQ(losses.size(), static_cast<std::size_t>(run.steps));
  for (const auto& [step, loss] : undisturbed) {
    ASSERT_EQ(losses.count(step), 1u) << step;
    EXPECT_LE(std::abs(losses.find(step)->second - loss), 1e-4 * loss) << step;
  }
  const std::vector<Reader> one = readers_in(run, "reads-undisturbed");
  ASSERT_EQ(one.size(), 1u);
  const auto count = static_cast<std::size_t>(run.steps * kBatch);
  ASSERT_GE(one[0].places.size(), count);
  std::map<std::int64_t, std::int64_t> ids;
  for (std::size_t i = 0; i < count; ++i) ids.emplace(one[0].places[i], static_cast<std::int64_t>(i));
  ASSERT_EQ(ids.size(), count) << "no window is there twice";
  const auto samples = committed_samples(run, ranks, sessions, ids);
  ASSERT_EQ(samples.size(), static_cast<std::size_t>(run.steps));
  for (const auto& [step, trained] : samples) {
    std::multiset<std::int64_t> expected;
    for (std::int64_t row = 0; row < kBatch; ++row) expected.insert(step * kBatch + row);
    EXPECT_TRUE(trained == expected) << "step " << step << " has " << trained.size() << " samples";
  }
}

class Elastic : public ::testing::Test {
 protected:
  using Test = std::function<void(const Way&)>;

  // In both ways at the same time, as most of it is waiting.
  static void in_both_ways(const Test& test) {
    const std::string& no_mpi = why_no_mpi();
    {
      std::vector<std::jthread> threads;
      for (const Way& way : kWays)
        if (way.is_tcp || no_mpi.empty()) threads.emplace_back([&] { run(test, way); });
    }
    if (!no_mpi.empty()) GTEST_SKIP() << "by TCP alone: " << no_mpi;
  }
  // In one of them, which the commit decides.
  static void in_one_way(const Test& test) {
    const Way& way = kWays[testing::by_commit()() % 2];
    run(test, why_no_mpi().empty() ? way : kWays[1]);
  }
  // Whether the commit gives a case, one of several, to this way: each has one.
  static bool is_drawn(const Way& way, unsigned number) {
    return ((testing::by_commit()() + number) % 2 == 1) == way.is_tcp || !why_no_mpi().empty();
  }
  // Makes steps slow enough for what happens between them.
  static std::string slow() { return " --delay 10000"; }

 private:
  static constexpr Way kWays[] = {{"MPI", false}, {"TCP", true}};

  static void run(const Test& test, const Way& way) {
    SCOPED_TRACE(way.name);
    try {
      test(way);
    } catch (const std::exception& error) { ADD_FAILURE() << error.what(); }
  }
  static const std::string& why_no_mpi() {
#ifdef KEEL_HAVE_MPI
    static const std::string why = testing::run_keel("launch -N 2 true").err;
#else
    static const std::string why = "this build has no MPI";
#endif
    return why;
  }
};

// Two hosts that are this machine: a stand-in for ssh starts their processes. The folder shm-HOST is the memory of one,
// and one with a file down-HOST does not answer.
class ElasticHosts : public Elastic {
 protected:
  static std::string host(const Way& way, int number) { return concat(way.is_tcp ? "127.0.0." : "node", number); }
  static std::string options(const Way& way, int first = 2, int second = 2) {
    return concat(way.options(), " --hosts ", host(way, 1), ':', first, ',', host(way, 2), ':', second);
  }
  static void write_ssh(const Sandbox& sandbox) {
    std::filesystem::create_directory(sandbox / "bin");
    sandbox.write("bin/ssh",
                  "#!/bin/sh\n"
                  "while [ \"${1#-}\" != \"$1\" ]; do [ \"$1\" != -o ] || shift; shift; done\n"
                  "export STANDS_FOR=$1 TMPDIR=$PWD/tmp-$1 KEEL_MEMORY_FOLDER=$PWD/shm-$1; shift\n"
                  "[ ! -e \"down-$STANDS_FOR\" ] || exit 255\n"
                  "mkdir -p \"$TMPDIR\" \"$KEEL_MEMORY_FOLDER\"\n"
                  "exec sh -c \"$*\"\n");
    std::filesystem::permissions(sandbox / "bin/ssh", std::filesystem::perms::owner_all);
  }
  // Open MPI would take memory for shared that two hosts do not share.
  static std::string environment() { return "export PATH=$PWD/bin:$PATH OMPI_MCA_btl=tcp,self OMPI_MCA_pml=ob1"; }
  // As where a host loses its power: whatever runs there is gone at once, the launcher's part included.
  static void lose(const std::string& host, const Sandbox& sandbox) {
    sandbox.write("down-" + host, "");
    std::istringstream list(testing::processes_in(sandbox / ""));
    for (std::string id; std::getline(list, id);)
      if (testing::text_of(concat("/proc/", id, "/environ")).find("STANDS_FOR=" + host) != std::string::npos)
        ::kill(std::stoi(id), SIGKILL);
  }
};

}  // namespace keel::cli
