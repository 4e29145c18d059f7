#pragma once
// Trainings by the program `keel` on a file system that lies (lying_files.cpp), and what holds after each of them.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/by_commit.h"
#include "tests/cli/mpi/processes.h"
#include "tests/cli/start_rank.h"

namespace keel::cli {

using testing::by_commit;
// Whether saves of a test that runs in one mode alone are asynchronous.
inline bool mode_by_commit() { return by_commit()() % 2 == 1; }

// How the ranks of a run find each other.
enum class By { tcp, mpi };

// What the processes of one start said. `told`: the newest step that was said to be saved; 0: none.
struct Session {
  int code = 0;  // of the first rank, or of the launcher
  bool has_ended = true;
  std::string out{}, err{};
  std::int64_t told = 0;
};

// A shell and all that it starts, in a process group of their own.
class Group {
 public:
  explicit Group(const std::string& command) : process_(::fork()) {
    KEEL_CHECK(process_ >= 0, "cannot start a process");
    if (process_ == 0) {
      ::setpgid(0, 0);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    ::setpgid(process_, process_);
  }
  ~Group() {
    send(SIGKILL);
    if (!has_ended_) ::waitpid(process_, nullptr, 0);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  void send(int signal_number) const { ::kill(-process_, signal_number); }
  // Whether the shell has ended within the time.
  bool ends_within(std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!has_ended_ && std::chrono::steady_clock::now() < end) {
      has_ended_ = ::waitpid(process_, nullptr, WNOHANG) == process_;
      if (!has_ended_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return has_ended_;
  }

 private:
  pid_t process_;
  bool has_ended_ = false;
};

// Why ranks cannot be processes of MPI here; empty: they can.
inline std::string why_no_mpi() {
#ifdef KEEL_HAVE_MPI
  return testing::run_keel("launch -N 2 true").err;
#else
  return "this build has no MPI";
#endif
}

// A folder in which N ranks train, the same way in every test: six steps, of which two, four and six are saved.
class LyingRun {
 public:
  static constexpr std::int64_t kSteps = 6, kEvery = 2;
  static constexpr auto kDeadline = std::chrono::seconds(30);

  LyingRun(int ranks, By by, bool async, const std::string& more = "") : ranks_(ranks), by_(by) {
    settings_ = concat("text.yaml run=made steps=", kSteps, " checkpoint.every=", kEvery, " batch.global=6 ",
                       "model.width=64 eval.every=100 ", ranks > 1 ? "strategy=zero2-fp32 " : "",
                       async ? "checkpoint.async=true " : "", more, " ");
  }

  ~LyingRun() {
    groups_.clear();
    kill_all();
  }
  LyingRun(const LyingRun&) = delete;
  LyingRun& operator=(const LyingRun&) = delete;

  // Begins, or goes on, with these lies.
  Session run(const std::vector<std::string>& lies, const std::string& more = "") {
    begin(lies, more);
    return end();
  }
  void begin(const std::vector<std::string>& lies, const std::string& more = "") { begin_script(script(lies, more)); }
  // One's own, in the same way.
  void begin_script(const std::string& text) {
    std::filesystem::remove(log());
    groups_.push_back(std::make_unique<Group>(text));
  }
  // What a shell does to start all ranks and to wait for them.
  std::string script(const std::vector<std::string>& lies, const std::string& more = "") const {
    std::string text = concat("cd '", sandbox / "", "'\nrm -f code out-* err-*\nexport KEEL_LIES_LOG='", log(),
                              "' LD_PRELOAD='", KEEL_LYING_FILES, "' KEEL_LIES='");
    for (const std::string& lie : lies) text += lie + "\n";
    text += "'\n";
    if (by_ == By::tcp && ranks_ > 1)
      text += concat("export KEEL_SIZE=", ranks_, " KEEL_ADDRESS=127.0.0.1:", port_.number(), "\n");
    for (int r = 0; r < ranks_; ++r) std::filesystem::create_directories(memory_of(r));
    const std::string train = by_ == By::tcp ? "train " : concat("launch -N ", ranks_, " ");
    for (int r = processes() - 1; r >= 0; --r) {
      if (by_ == By::tcp && ranks_ > 1) text += concat("KEEL_RANK=", r, " ");
      text += concat("KEEL_MEMORY_FOLDER='", memory_of(r), "' '", KEEL_PROGRAM, "' ", train, settings_, more, " >out-",
                     r, " 2>err-", r, " </dev/null", r > 0 ? " &\n" : "\n");
    }
    return text + "echo $? >code\nwait\nunset LD_PRELOAD\n";
  }
  // Waits for what was begun last.
  Session end() {
    Session session;
    session.has_ended = groups_.back()->ends_within(kDeadline);
    groups_.pop_back();
    if (groups_.empty()) kill_all();
    if (sandbox.has("code")) session.code = std::atoi(sandbox.read("code").c_str());
    for (int r = 0; r < processes(); ++r) {
      if (r == 0) session.out = sandbox.read("out-0");
      session.err += sandbox.read(concat("err-", r));
    }
    session.told = step_after(session.out, "saved made/checkpoints/step-");
    return session;
  }

  // The calls of a rank that changed something since the last start, in their order: "write made/checkpoints/...".
  std::vector<std::string> changes_of(int rank) const {
    std::vector<std::string> found;
    std::istringstream lines(sandbox.has("log") ? sandbox.read("log") : "");
    const std::string start = concat(rank, ' ');
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(start)) found.push_back(line.substr(start.size()));
    return found;
  }
  // How many lies were told since the last start.
  std::int64_t lies_told() const {
    const std::vector<std::string> words = words_of_log();
    return std::count(words.begin(), words.end(), "lie");
  }
  // The process that tells the first lie; 0 where none does within the deadline.
  pid_t liar() const {
    pid_t found = 0;
    wait_until([&] {
      const std::vector<std::string> words = words_of_log();
      const auto lie = std::find(words.begin(), words.end(), "lie");
      if (lie != words.end() && words.end() - lie > 2) found = std::stoi(*(lie + 1));
      return found != 0;
    });
    return found;
  }
  // Whether it comes to hold within the deadline.
  template <class F>
  static bool wait_until(const F& holds) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  // Whether that process has stopped by now, or stops within the deadline.
  static bool stops(pid_t process) {
    return wait_until([&] { return status_of(process).find("State:\tT") != std::string::npos; });
  }
  static bool ends(pid_t process) {
    return wait_until([&] {
      const std::string status = status_of(process);
      return status.empty() || status.find("State:\tZ") != std::string::npos;
    });
  }
  // The process of a rank that trains; 0 where there is none.
  pid_t process_of(int rank) const {
    std::istringstream list(testing::processes_in(sandbox / ""));
    for (std::string id; std::getline(list, id);) {
      const std::string environment = text_of(concat("/proc/", id, "/environ"));
      for (const char* name : {"OMPI_COMM_WORLD_RANK=", "KEEL_RANK="})
        if (environment.find(std::string(1, '\0') + concat(name, rank) + std::string(1, '\0')) != std::string::npos &&
            text_of(concat("/proc/", id, "/comm")) == "keel\n")
          return std::stoi(id);
    }
    return 0;
  }

  // Stands for the memory of a rank's host: there are two.
  std::string memory_of(int rank) const { return sandbox / concat("shm-", rank * 2 / ranks_); }
  std::string weights() const {
    return sandbox.has("made/model.safetensors") ? sandbox.read("made/model.safetensors") : "";
  }
  void clear() const { std::filesystem::remove_all(sandbox / "made"); }

  // Goes on from the newest checkpoint, which is whole and no older than what was told, to the bits of `weights`, and
  // nothing half-written is left.
  void expect_goes_on(const Session& before, const std::string& weights_at_the_end, const std::string& more = "") {
    EXPECT_TRUE(before.has_ended) << "its processes did not end by themselves";
    // Or set aside, where a run was killed that replaced it in two steps.
    EXPECT_TRUE(latest().empty() || sandbox.has(latest() + "/manifest.json") ||
                sandbox.has(latest() + ".old/manifest.json"))
        << latest();
    const By by = std::exchange(by_, By::tcp);  // without a launcher it begins sooner
    const Session after = run({}, more + " resume=auto");
    by_ = by;
    EXPECT_EQ(after.code, 0) << after.err;
    const bool is_done = after.out.find(" is done: ") != std::string::npos;
    const std::int64_t taken = step_after(after.out, is_done ? "made/checkpoints/step-" : "goes on after step ");
    EXPECT_GE(taken, before.told) << after.out;
    EXPECT_EQ(after.out.find("not usable"), std::string::npos) << after.out;
    EXPECT_TRUE(sandbox.has(latest() + "/manifest.json") && step_after(latest(), "step-") >= taken) << latest();
    EXPECT_TRUE(weights() == weights_at_the_end) << "other weights; it went on from step " << taken;
    EXPECT_EQ(strays(), "");
  }

  testing::Sandbox sandbox;

 private:
  int processes() const { return by_ == By::tcp ? ranks_ : 1; }
  std::string log() const { return sandbox / "log"; }

  // The checkpoint that the file `latest` names; empty where there is no such file.
  std::string latest() const {
    const std::string file = "made/checkpoints/latest";
    if (!sandbox.has(file)) return "";
    const std::string name = sandbox.read(file);
    return "made/checkpoints/" + name.substr(0, name.find('\n'));
  }

  // A launcher's ranks may be in groups of their own.
  void kill_all() const {
    std::istringstream left(testing::processes_in(sandbox / ""));
    for (std::string id; std::getline(left, id);) ::kill(std::stoi(id), SIGKILL);
    testing::processes_left_in(sandbox / "");
  }

  std::vector<std::string> words_of_log() const {
    std::istringstream words(sandbox.has("log") ? sandbox.read("log") : "");
    return {std::istream_iterator<std::string>(words), {}};
  }

  // Of a file whose size the system does not tell, and that may vanish meanwhile.
  static std::string text_of(const std::string& path) {
    const std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static std::string status_of(pid_t process) { return text_of(concat("/proc/", process, "/status")); }

  static std::int64_t step_after(const std::string& text, const std::string& words) {
    const std::size_t place = text.rfind(words);
    return place == std::string::npos ? 0 : std::atoll(text.c_str() + place + words.size());
  }

  // What a run should not leave behind.
  std::string strays() const {
    std::string found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(sandbox / "made")) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".tmp") || name.ends_with(".old") || name == "lock") found += entry.path().string() + "\n";
    }
    return found;
  }

  int ranks_;
  By by_;
  std::string settings_;
  testing::FreePort port_;
  std::vector<std::unique_ptr<Group>> groups_;
};

// The weights that the ranks learn where nobody lies, and what the ranks do with files.
struct Undisturbed {
  std::string weights;
  std::vector<std::vector<std::string>> changes;  // by rank
};

inline const Undisturbed& undisturbed(int ranks, bool async) {
  static std::map<std::pair<int, bool>, Undisturbed> known;
  Undisturbed& found = known[{ranks, async}];
  if (!found.weights.empty()) return found;
  LyingRun run(ranks, By::tcp, async);
  const Session session = run.run({});
  EXPECT_EQ(session.code, 0) << session.err;
  EXPECT_EQ(session.told, LyingRun::kSteps) << session.out;
  found.weights = run.weights();
  for (int r = 0; r < ranks; ++r) found.changes.push_back(run.changes_of(r));
  return found;
}

}  // namespace keel::cli
