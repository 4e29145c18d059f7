// Data that changes under a run, that ranks see differently, or that was replaced between two sessions.

#include <gtest/gtest.h>

#include "tests/cli/faults/fault.h"

namespace keel::testing {
namespace {

namespace fs = std::filesystem;

const std::string kCut = "cannot read 'data.tokens': it has been cut short to ";

// The file is cut while all ranks read it.
Fault cut(const std::string& name, std::uint64_t bytes, const std::string& session = "", const std::string& keys = "") {
  return {.name = name,
          .before =
              [keys](Scene& scene) {  // of all sessions
                scene.sandbox.write("text.yaml", scene.sandbox.read("text.yaml") + keys);
              },
          .session = kEndless + session,
          .during =
              [bytes](Scene& scene) {
                scene.wait_until_it_trains();
                fs::resize_file(scene.sandbox / "data.tokens", bytes);
              },
          .codes = {2},
          .says = {kCut},
          .all_logs_say = true,
          .after =
              [](Scene& scene) {
                EXPECT_FALSE(scene.folder.checkpoint_steps().empty()) << "nothing to go on from";
                scene.write_tokens(scene.sandbox / "data.tokens");
              }};
}

// By numbers that are no tokens.
Fault overwritten() {
  Fault fault = cut("ATokenFileThatIsOverwritten", 0);
  fault.during = [](Scene& scene) {
    scene.wait_until_it_trains();
    std::fstream file(scene.sandbox / "data.tokens", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(64);
    file << std::string(80'000, '\xff');
  };
  fault.says = {"token 65535"};
  return fault;
}

// A text is in memory once a run has begun.
Fault cut_text() {
  Fault fault = cut("ATextThatIsCut", 0);
  fault.before = [](Scene& scene) {
    const std::string keys = scene.sandbox.read("text.yaml");
    scene.sandbox.write("text.yaml", keys.substr(0, keys.find("data:")) + "data: {type: text, path: corpus.txt}\n");
  };
  fault.during = [](Scene& scene) {
    scene.wait_until_it_trains();
    const std::string text = scene.sandbox.read("corpus.txt");
    fs::resize_file(scene.sandbox / "corpus.txt", 0);
    const auto steps = [&] { return lines_of(scene.sandbox.read("made/metrics.jsonl")).size(); };
    const std::size_t then = steps();
    EXPECT_TRUE(comes_true([&] { return steps() > then + 2; }));
    scene.sandbox.write("corpus.txt", text);
    scene.session->send_to_all_ranks(SIGTERM);
  };
  fault.codes = {128 + SIGTERM};
  fault.says = {"stopped by SIGTERM"};
  fault.all_logs_say = false;
  return fault;
}

// Each rank's own folder has all that a run reads; the last rank's is then changed.
Fault differing(const std::string& name, const std::function<void(const Scene&, const std::string&)>& change,
                const std::string& says, const std::string& keys = "") {
  return {.name = name,
          .before =
              [change](Scene& scene) {
                for (int r = 0; r < scene.n; ++r) {
                  const std::string place = scene.sandbox / concat("node-", r);
                  fs::create_directory(place);
                  for (const char* file : {"/text.yaml", "/data.tokens"})
                    fs::copy_file(scene.sandbox / file, place + file);
                }
                change(scene, scene.sandbox / concat("node-", scene.n - 1));
              },
          .session = "steps=6 run=../made " + keys,
          .options = {.in_own_folders = true},
          .codes = {2},
          .says = {says},
          .after = [](Scene& scene) { EXPECT_FALSE(scene.sandbox.has("made")); }};
}

Fault replaced(const std::string& name, const std::string& says, const std::string& keys, int code) {
  return {.name = name,
          .before =
              [](Scene& scene) {
                scene.train_twelve_steps();
                scene.write_tokens(scene.sandbox / "data.tokens", 7);
              },
          .session = "steps=15 resume=auto " + keys,
          .codes = {code},
          .says = {says},
          .after =
              [code](Scene& scene) {
                scene.write_tokens(scene.sandbox / "data.tokens");
                if (code == 0) fs::remove_all(scene.checkpoint(15));  // learnt from the other data
              }};
}

}  // namespace

std::vector<Fault> data_faults() {
  const std::string different = "ranks find different data at 'data.tokens': rank.* 0.* ha(s|ve) .*, rank [12] has ";
  return {
      cut("ATokenFileCutToItsHeader", 64),
      cut("ATokenFileCutToNothing", 0),
      cut("ATokenFileCutInHalf", 40'064),
      cut("ATokenFileCutInValidation", 72'100, "eval.every=1"),
      cut("ATokenFileCutUnderOptimizersThatEvaluateTheLoss", 64, "",
          "optimizer: {type: LBFGS, lr: 0.1, max_iterations: 2}\nclip: 0\n"),
      overwritten(),
      cut_text(),
      differing(
          "OtherContent",
          [](const Scene& scene, const std::string& node) { scene.write_tokens(node + "/data.tokens", 7); }, different),
      differing(
          "OtherLength",
          [](const Scene&, const std::string& node) {
            fs::copy_file(KEEL_PROGRAM, node + "/data.tokens", fs::copy_options::overwrite_existing);
          },
          "rank [12]: 'data.tokens' is not a valid token file"),
      differing(
          "NoDataForOneRank", [](const Scene&, const std::string& node) { fs::remove(node + "/data.tokens"); },
          "rank [12]: .*'data.tokens'.*No such file"),
      differing(
          "AnotherAlphabet",
          [](const Scene& scene, const std::string& node) {
            scene.sandbox.write("node-0/text.txt", std::string(400, 'a') + std::string(400, 'b'));
            if (scene.n == 3) scene.sandbox.write("node-1/text.txt", std::string(400, 'a') + std::string(400, 'b'));
            write_text_file(node + "/text.txt", std::string(300, 'a') + std::string(500, 'c') + "xyz");
          },
          "ranks find different data at 'text.txt': rank", "'data={type: text, path: text.txt}'"),
      differing(
          "OtherSettings",
          [](const Scene& scene, const std::string& node) {
            write_text_file(node + "/text.yaml", scene.sandbox.read("text.yaml") + "clip: 0.5\n");
          },
          "ranks were given different configurations: rank 0 has .*, rank [12] has "),
      replaced("DataReplacedBetweenSessions", "'data.tokens' has changed since '.*step-00000012' was made: it had ", "",
               2),
      replaced("DataReplacedAndAllowed", "'data.tokens' has changed since '.*step-00000012' was made: it had ",
               "data.allow_changes=true", 0),
  };
}

}  // namespace keel::testing
