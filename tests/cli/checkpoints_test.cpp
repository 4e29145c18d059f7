// `keel checkpoints` and `keel get` over the folders of runs, whole ones and damaged ones.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/weight_shards.h"
#include "keel/runtime/json.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::Sandbox;

namespace fs = std::filesystem;

// Three ranks' run with checkpoints of steps 4, 6 and 8.
class CheckpointCommands : public ::testing::Test {
 protected:
  CheckpointCommands() {
    const Outcome outcome = sandbox_.keel(
        "train addition.yaml --thread-ranks 3 batch.global=9 strategy=zero2-bf16 checkpoint.every=2 checkpoint.keep=3 "
        "run=run");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }

  static std::string checkpoint(int step) { return concat("run/checkpoints/step-0000000", step); }

  void flip_last_bit(const std::string& file) const {
    std::string bytes = sandbox_.read(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    sandbox_.write(file, bytes);
  }

  void expect(const std::string& arguments, int code, const std::string& out, const std::string& err) const {
    const Outcome outcome = sandbox_.keel(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << ": " << outcome.err;
    EXPECT_NE(outcome.out.find(out), std::string::npos) << arguments << ": " << outcome.out;
    EXPECT_NE(outcome.err.find(err), std::string::npos) << arguments << ": " << outcome.err;
    EXPECT_EQ(outcome.err.empty(), err.empty()) << arguments << ": " << outcome.err;
    EXPECT_LE(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }

  Json listed(const std::string& arguments) const {
    sandbox_.keel(concat("checkpoints ", arguments, " --json list.json"));
    return Json::parse(sandbox_.read("list.json"));
  }

  Sandbox sandbox_;
};

// The line of a step in the table.
std::string row_of(const std::string& table, int step) {
  const std::size_t place = table.find(concat("\n   ", step, ' '));
  return place == std::string::npos ? "" : table.substr(place + 1, table.find('\n', place + 1) - place - 1);
}

TEST_F(CheckpointCommands, ListStepSizeFilesAndRanksOfEachAndWhichOneComesNext) {
  for (const char* verify : {"", "--verify"}) {
    const Outcome outcome = sandbox_.keel(concat("checkpoints run ", verify));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    const std::string state = *verify == 0 ? "valid" : "verified";
    for (const int step : {4, 6, 8}) {
      const std::string row = row_of(outcome.out, step);
      EXPECT_NE(row.find(" KiB      6      3  "), std::string::npos) << outcome.out;
      EXPECT_NE(row.find("  " + state), std::string::npos) << outcome.out;
      EXPECT_EQ(row.ends_with("latest, resume"), step == 8) << outcome.out;
    }
  }
  const Json list = listed("run --verify");
  EXPECT_EQ(list.at("latest").string(), "step-00000008");
  EXPECT_EQ(list.at("resume").integer(), 8);
  EXPECT_TRUE(list.at("verified").boolean());
  ASSERT_EQ(list.at("checkpoints").items().size(), 3u);
  const Json& first = list.at("checkpoints").items().front();
  std::int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(sandbox_ / checkpoint(4)))
    bytes += static_cast<std::int64_t>(entry.file_size());
  EXPECT_EQ(first.at("step").integer(), 4);
  EXPECT_EQ(first.at("bytes").integer(), bytes);
  EXPECT_EQ(first.at("files").integer(), 6);
  EXPECT_EQ(first.at("ranks").integer(), 3);
  EXPECT_TRUE(first.at("valid").boolean());
}

TEST_F(CheckpointCommands, ListWhatIsDamagedAndWhyAndEndWithCode1) {
  fs::remove(sandbox_ / checkpoint(4) + "/optimizer-2-of-3.safetensors");
  expect("checkpoints run", 1, "step 4: cannot read 'run/checkpoints/step-00000004/optimizer-2-of-3.safetensors'", "");
  flip_last_bit(checkpoint(8) + "/model-2-of-3.safetensors");
  // One byte that changed shows when all are read.
  EXPECT_NE(row_of(sandbox_.keel("checkpoints run").out, 8).find("valid    latest, resume"), std::string::npos);
  const Outcome outcome = sandbox_.keel("checkpoints run --verify");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(row_of(outcome.out, 6).ends_with("verified  resume")) << outcome.out;
  EXPECT_TRUE(row_of(outcome.out, 8).ends_with("damaged   latest")) << outcome.out;
  EXPECT_NE(outcome.out.find("\nstep 8: 'run/checkpoints/step-00000008/model-2-of-3.safetensors' has changed"),
            std::string::npos)
      << outcome.out;
  const Json list = listed("run --verify");
  EXPECT_EQ(list.at("resume").integer(), 6);
  EXPECT_FALSE(list.at("checkpoints").items().back().at("valid").boolean());
  EXPECT_NE(list.at("checkpoints").items().back().at("damage").string(), "");

  flip_last_bit(checkpoint(6) + "/manifest.json");
  expect("checkpoints run --verify", 1, "\nno checkpoint is whole\n", "");
  EXPECT_TRUE(listed("run --verify").at("resume").is_null());
  expect(concat("checkpoints ", checkpoint(6)), 1, "step 6: 'run/checkpoints/step-00000006/manifest.json'", "");
}

TEST_F(CheckpointCommands, TakeOneCheckpointToo) {
  for (const char* name : {"run/checkpoints/step-00000006", "run/checkpoints/step-00000006/"}) {
    const Outcome outcome = sandbox_.keel(concat("checkpoints ", name, " --verify"));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(row_of(outcome.out, 6).ends_with("verified")) << outcome.out;
    EXPECT_EQ(row_of(outcome.out, 8), "");
  }
  fs::copy(sandbox_ / checkpoint(6), sandbox_ / "best", fs::copy_options::recursive);
  EXPECT_EQ(listed("best").at("checkpoints").items().front().at("step").integer(), 6);
  // Under the name of another step it is not gone on from.
  fs::rename(sandbox_ / "best", sandbox_ / "step-7");
  expect("checkpoints step-7", 1, "step 7: 'step-7' holds step 6, not the step of its name", "");
}

TEST_F(CheckpointCommands, ListASetAsideCheckpointThatTheNextSessionGoesOnFrom) {
  fs::rename(sandbox_ / checkpoint(8), sandbox_ / checkpoint(8) + ".old");
  const Json list = listed("run");
  EXPECT_EQ(list.at("resume").integer(), 8);
  const Outcome outcome = sandbox_.keel("train run/config.yaml resume=auto");
  EXPECT_NE(outcome.out.find("step-00000008 is done"), std::string::npos) << outcome.out;
}

TEST_F(CheckpointCommands, SayWhereLatestNamesNothing) {
  sandbox_.write("run/checkpoints/latest", "step-0000\033[2J9\n");
  expect("checkpoints run", 1, "'run/checkpoints/latest' names step-0000\\x1b[2J9, which is not there\n", "");
  fs::remove(sandbox_ / "run/checkpoints/latest");
  expect("checkpoints run", 0, "", "");
}

TEST_F(CheckpointCommands, RefuseWhatIsNoRunInOneLine) {
  fs::create_directory(sandbox_ / "empty");
  for (const std::string command : {"checkpoints ", "get --out x.safetensors "}) {
    expect(command + "nowhere", 2, "", "there is no 'nowhere'; name the folder of a run, or a checkpoint");
    expect(command + "corpus.txt", 2, "", "'corpus.txt' is a file; name the folder of a run, or a checkpoint");
    expect(command + "corpus.txt/run", 2, "", "there is no 'corpus.txt/run'; name the folder");
    expect(command + "empty", 2, "", "'empty' is neither the folder of a run nor a checkpoint");
    expect(command + "\"$(printf 'no\\033[2Jwhere\\n')\"", 2, "", "'no\\x1b[2Jwhere'");
  }
  EXPECT_FALSE(sandbox_.has("x.safetensors"));
  expect("checkpoints run --json nowhere/list.json", 2, "", "nowhere");
  fs::remove_all(sandbox_ / "run/checkpoints");
  expect("checkpoints run", 0, "run has no checkpoint yet\n", "");
  expect("get run --out x.safetensors", 2, "", "the run in 'run' has no checkpoint yet");
  sandbox_.write("run/checkpoints", "");
  expect("checkpoints run", 2, "", "cannot read 'run/checkpoints': Not a directory");
}

TEST_F(CheckpointCommands, EscapeWhatNamesHold) {
  const std::string name = "r\033[2Jn";
  fs::rename(sandbox_ / "run", sandbox_ / name);
  fs::resize_file(sandbox_ / name + "/checkpoints/step-00000006/model-1-of-3.safetensors", 5);
  const std::string argument = "\"$(printf 'r\\033[2Jn')\"";
  expect("checkpoints " + argument, 1, "step 6: 'r\\x1b[2Jn/checkpoints/step-00000006/model-1-of-3.safetensors' has 5",
         "");
  expect("get " + argument + " --out a.safetensors", 0, "a.safetensors: ", "");
  // Bytes that are no UTF-8 stay readable JSON.
  fs::rename(sandbox_ / name, sandbox_ / "r\xff");
  EXPECT_EQ(listed("\"$(printf 'r\\377')\"").at("checkpoints").items().size(), 3u);
}

TEST_F(CheckpointCommands, RefuseAFolderWithoutRights) {
  // The superuser may read everything, and becomes somebody else.
  const std::string program =
      concat(::geteuid() == 0 ? "setpriv --reuid 65534 --clear-groups '" : "'", KEEL_PROGRAM, "' ");
  if (::system(concat(program, "version >/dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "root sees every folder, and cannot run keel as somebody else here";
  fs::permissions(sandbox_ / "", fs::perms::all);
  for (const std::string folder : {"run", "run/checkpoints"}) {
    fs::permissions(sandbox_ / folder, fs::perms::none);
    const std::string command =
        concat("cd '", sandbox_ / "", "' && ", program, "checkpoints run 2>'", sandbox_ / "err", '\'');
    EXPECT_EQ(WEXITSTATUS(::system(command.c_str())), 2);
    EXPECT_EQ(sandbox_.read("err"), concat("keel: error: cannot read '", folder, "': Permission denied\n"));
    fs::permissions(sandbox_ / folder, fs::perms::all);
  }
}

TEST_F(CheckpointCommands, GetWritesTheNewestOrTheOneThatIsAskedFor) {
  expect("get run --out newest.safetensors", 0, "newest.safetensors: ", "");
  EXPECT_TRUE(sandbox_.read("newest.safetensors") == sandbox_.read("run/model.safetensors"));
  expect("get run --step 4 --out by-step.safetensors", 0, ", of step 4\n", "");
  expect(concat("get ", checkpoint(4), " --out by-path.safetensors"), 0, ", of step 4\n", "");
  EXPECT_TRUE(sandbox_.read("by-step.safetensors") == sandbox_.read("by-path.safetensors"));
  EXPECT_FALSE(sandbox_.read("by-step.safetensors") == sandbox_.read("newest.safetensors"));
  for (const char* dtype : {"bf16", "f16"}) {
    expect(concat("get run --dtype ", dtype, " --out ", dtype), 0, concat(" numbers in ", dtype, ", of step 8"), "");
    const SafetensorsFile file(sandbox_ / dtype);
    for (const SafetensorsEntry& entry : file.entries()) EXPECT_EQ(name_of(entry.dtype), dtype);
  }
}

TEST_F(CheckpointCommands, GetWritesAFolderOfFilesWithAnIndexAndReplacesNothingElse) {
  expect("get run --out shards --max-shard 4KB", 0, " files\n", "");
  std::size_t tensors = 0;
  const std::vector<std::string> files = files_of_index(sandbox_ / concat("shards/", kShardIndex));
  EXPECT_GT(files.size(), 2u);
  for (const std::string& name : files) tensors += SafetensorsFile(sandbox_ / concat("shards/", name)).entries().size();
  EXPECT_EQ(tensors, SafetensorsFile(sandbox_ / "run/model.safetensors").entries().size());
  expect("get run --out shards --max-shard 5GB", 2, "", "'shards' is there already; --force replaces it");
  expect("get run --out shards --max-shard 5GB --force", 0, ", in 1 file\n", "");
  EXPECT_EQ(files_of_index(sandbox_ / concat("shards/", kShardIndex)).size(), 1u);
  EXPECT_TRUE(sandbox_.read("shards/model-00001-of-00001.safetensors") == sandbox_.read("run/model.safetensors"));
  sandbox_.write("shards/config.json", "{}");
  const auto before = sandbox_.contents();
  const std::pair<std::string, std::string> cases[] = {
      {"run --out shards --max-shard 5GB --force", "'shards' has 'config.json', too, and --force would remove it"},
      {"run --out run --max-shard 5GB --force", ", too, and --force would remove it; name another folder"},
      {"run --out corpus.txt --max-shard 5GB --force", "--out 'corpus.txt' is a file, and --max-shard writes a folder"},
      {"run --out shards --force", "--out 'shards' is a folder; name a file, or give --max-shard"},
      {concat("run --max-shard 5GB --out ", checkpoint(4), "/x"), "lies in a checkpoint"}};
  for (const auto& [arguments, words] : cases) expect("get " + arguments, 2, "", words);
  for (const char* size : {"0", "-1", "x", "5XB", "5GBs", "nan", "1e99"})
    expect(concat("get run --out x --max-shard=", size), 2, "",
           concat("--max-shard is a size as 5GB or 500MB, not '", size, "'"));
  EXPECT_TRUE(sandbox_.contents() == before);
}

TEST_F(CheckpointCommands, GetFallsBackFromDamageAndSaysWhy) {
  flip_last_bit(checkpoint(8) + "/model-2-of-3.safetensors");
  fs::remove(sandbox_ / checkpoint(6) + "/manifest.json");
  const Outcome outcome = sandbox_.keel("get run --out a.safetensors");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.out.ends_with(", of step 4\n")) << outcome.out;
  for (const char* words :
       {"warning: the checkpoint of step 8 is not usable: 'run/checkpoints/step-00000008/model-2-of-",
        "warning: the checkpoint of step 6 is not usable: cannot "})
    EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
  // Who names one gets that one, or nothing.
  const auto before = sandbox_.contents();
  expect("get run --step 8 --out b.safetensors", 2, "", "model-2-of-3.safetensors' has changed");
  expect(concat("get ", checkpoint(8), " --out b.safetensors"), 2, "", "model-2-of-3.safetensors' has changed");
  expect("get run --step 6 --out b.safetensors", 2, "", "manifest.json");
  flip_last_bit(checkpoint(4) + "/manifest.json");
  const Outcome none = sandbox_.keel("get run --out b.safetensors");
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(none.err.ends_with("keel: error: no checkpoint in 'run' is whole\n")) << none.err;
  flip_last_bit(checkpoint(4) + "/manifest.json");
  EXPECT_TRUE(sandbox_.contents() == before);
}

TEST_F(CheckpointCommands, GetReplacesAFileOnlyWhereItIsToldTo) {
  sandbox_.write("here.safetensors", "before");
  const auto before = sandbox_.contents();
  const std::pair<std::string, std::string> cases[] = {
      {"run --out here.safetensors", "'here.safetensors' is there already; --force replaces it"},
      {"run --out run --force", "--out 'run' is a folder; name a file"},
      {"run --out nowhere/x", "nowhere/x"},
      {concat("run --force --out ", checkpoint(4), "/model-1-of-3.safetensors"), "lies in a checkpoint"},
      {"run --step 5 --out x", "the run in 'run' has no checkpoint of step 5; it has 4, 6, 8"},
      {concat(checkpoint(4), " --step 4 --out x"), "is one checkpoint; leave --step out"},
      {"run --out x --dtype f64", "--dtype is f32, bf16 or f16, not 'f64'"},
      {"run", "--out is missing"}};
  for (const auto& [arguments, words] : cases) {
    expect("get " + arguments, 2, "", words);
    EXPECT_TRUE(sandbox_.contents() == before) << arguments;
  }
  fs::create_symlink("nowhere", sandbox_ / "dangling");
  expect("get run --out dangling", 2, "", "'dangling' is there already; --force replaces it");
  expect("get run --out here.safetensors --force", 0, "here.safetensors: ", "");
  EXPECT_TRUE(sandbox_.read("here.safetensors") == sandbox_.read("run/model.safetensors"));
}

}  // namespace
}  // namespace keel::cli
