// The run's folder: removed in mid-run, shared with another run, left behind by ranks that were killed.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdio.h>

#include "tests/cli/faults/fault.h"
#include "tests/pattern.h"

namespace keel::testing {
namespace {

namespace fs = std::filesystem;

const std::string kMadeAgain = "'made' was removed while this run wrote into it; it is made again";

// While the run writes into it.
void remove_all_of(const std::string& path) {
  ASSERT_TRUE(comes_true([&] {
    std::error_code error;
    fs::remove_all(path, error);
    return !error;
  }));
}

Fault removed(const std::string& name, const std::string& what, const std::string& session = "") {
  return {.name = name,
          .session = kEndless + session,
          .during =
              [what](Scene& scene) {
                scene.wait_until_it_trains();
                remove_all_of(scene.sandbox / what);
                EXPECT_TRUE(comes_true([&] { return scene.sandbox.has(what) && scene.session->trains(); }));
                scene.session->send_to_all_ranks(SIGTERM);
              },
          .codes = {128 + SIGTERM},
          .says = {kMadeAgain},
          .after = [](Scene& scene) { EXPECT_FALSE(scene.folder.checkpoint_steps().empty()); }};
}

// What was learnt lies elsewhere then; nobody's file is touched.
Fault taken(const std::string& name, const std::string& file, const std::string& says) {
  return {.name = name,
          .session = kEndless,
          .during =
              [file](Scene& scene) {
                scene.wait_until_it_trains();
                const std::string other = scene.sandbox / "other";
                fs::create_directories(fs::path(concat(other, '/', file)).parent_path());
                write_text_file(concat(other, '/', file), "steps: 1\n");
                // At once, since the run looks for its folder in every step.
                EXPECT_EQ(::renameat2(AT_FDCWD, (other + "/made").c_str(), AT_FDCWD, (scene.sandbox / "made").c_str(),
                                      RENAME_EXCHANGE),
                          0);
              },
          .codes = {2},
          .says = {says, "what was learnt up to step [0-9]+ is in '.*keel-made-step-[0-9]+'"},
          .after =
              [file](Scene& scene) {
                EXPECT_EQ(scene.sandbox.read(file), "steps: 1\n");
                for (const auto& [path, bytes] : scene.sandbox.contents())
                  if (!first_match(path, "^keel-made-step-[0-9]+/$").empty())
                    scene.next = concat("resume=", path.substr(0, path.size() - 1));
                fs::remove_all(scene.sandbox / "made");
              }};
}

constexpr const char* kInUse = "'made' is in use by another run, process [0-9]+ on host .*run=OTHER";

// Another run in the same folder, by the other way.
std::unique_ptr<Session> rival(const Scene& scene, const std::string& arguments) {
  return std::make_unique<Session>(scene.sandbox, scene.way == Way::mpi ? Way::tcp : Way::mpi, scene.n, arguments,
                                   Session::Options{});
}

Fault second_run(const std::string& name, const std::string& resume) {
  return {.name = name,
          .session = kEndless,
          .during =
              [resume](Scene& scene) {
                scene.wait_until_it_trains();
                const Session::End refused = rival(scene, "steps=12 " + resume)->wait();
                for (const int code : refused.codes) EXPECT_EQ(code, 2);
                EXPECT_FALSE(first_match(refused.err, kInUse).empty()) << refused.err;
                EXPECT_EQ(lines_of(refused.err).size(), 1u) << refused.err;
                scene.session->send_to_all_ranks(SIGTERM);
              },
          .codes = {128 + SIGTERM}};
}

// Ranks, or all processes with the launcher, are killed.
Fault killed(const std::string& name, const std::function<void(Scene&)>& kill,
             const std::vector<std::string>& says = {}) {
  return {.name = name,
          .session = kEndless + "checkpoint.every=5",
          .during =
              [kill](Scene& scene) {
                EXPECT_TRUE(comes_true([&] { return !scene.folder.checkpoint_steps().empty(); }));
                kill(scene);
              },
          .codes = {2, 128 + SIGKILL},
          .says = says,
          .each_says = true};
}

bool is_saving(const Scene& scene) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(scene.sandbox / "made/checkpoints", ignored))
    if (!AtomicFolder::target_of(entry.path().string()).empty()) return true;
  return false;
}

// Again until a half-written checkpoint is left.
void kill_in_a_save(Scene& scene) {
  for (int tries = 0; tries < 20; ++tries) {
    EXPECT_TRUE(comes_true([&] { return !scene.folder.checkpoint_steps().empty() && is_saving(scene); }));
    scene.session->kill_all();
    EXPECT_EQ(processes_left_in(scene.sandbox / ""), "");
    scene.next_way = scene.way;  // whose launcher has left folders behind
    if (is_saving(scene)) return;
    scene.session->wait();
    scene.start(kEndless + "checkpoint.every=1 resume=auto");
  }
  ADD_FAILURE() << "no save was hit";
}

}  // namespace

std::vector<Fault> folder_faults() {
  return {
      removed("ARemovedFolder", "made"),
      removed("ARemovedFolderOfCheckpoints", "made/checkpoints"),
      removed("ARemovedFileOfMetrics", "made/metrics.jsonl"),
      removed("AFolderRemovedWhileItSaves", "made", "checkpoint.every=1"),
      taken("AFileInTheFoldersPlace", "made", "cannot make the folder 'made'"),
      taken("AnotherRunInTheFoldersPlace", "made/config.yaml", "holds another run now"),
      second_run("ASecondRunThatResumes", "resume=auto"),
      second_run("ASecondRunThatBegins", "resume=never"),
      {.name = "TwoRunsAtTheSameMoment",
       .session = "steps=12 resume=auto",
       .during =
           [](Scene& scene) {
             const auto second = rival(scene, "steps=12 resume=auto");
             const Session::End one = scene.session->wait(), other = second->wait();
             EXPECT_TRUE(one.codes[0] == 0 || other.codes[0] == 0) << one.err << other.err;
             scene.start("steps=12 resume=auto");
           },
       .codes = {0}},
      killed("TheFirstRankKilled", [](Scene& scene) { scene.session->send_to_rank(0, SIGKILL); },
             {"rank 0 (was killed by signal 9|is gone)"}),
      killed("TheLastRankKilled", [](Scene& scene) { scene.session->send_to_rank(scene.n - 1, SIGKILL); },
             {"rank [12] (was killed by signal 9|is gone)"}),
      killed("AllProcessesKilled",
             [](Scene& scene) {
               scene.session->kill_all();
               scene.next_way = scene.way;  // whose launcher has left folders behind
             }),
      {.name = "AllProcessesKilledInASave",
       .session = kEndless + "checkpoint.every=1",
       .during = kill_in_a_save,
       .codes = {128 + SIGKILL}},
  };
}

}  // namespace keel::testing
