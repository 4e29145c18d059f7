// Where weights that others have made are found, and by what they are known again.

#include "keel/trainer/weights_source.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/weight_shards.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;
namespace fs = std::filesystem;

void write_two_weights(const std::string& path, float first) {
  const Context host = Context::create({.threads = 1});
  write_safetensors(path, std::vector<NamedTensor>{{"a", from_values(host, std::vector<float>{first, 2}, {2})},
                                                   {"b", from_values(host, std::vector<float>{3}, {1})}});
}

// As n ranks find it, which all have the same.
WeightsSource found_by(int n, const std::string& path, bool identify = true) {
  std::vector<WeightsSource> all(static_cast<std::size_t>(n));
  run_ranks(n, [&](Communicator& ranks) {
    all[static_cast<std::size_t>(ranks.rank())] = find_weights(path, ranks, identify);
  });
  for (const WeightsSource& each : all) {
    EXPECT_EQ(each.folder, all[0].folder);
    EXPECT_EQ(each.identity, all[0].identity);
    EXPECT_EQ(each.is_hub, all[0].is_hub);
    EXPECT_EQ(each.manifest.tensors.size(), all[0].manifest.tensors.size());
  }
  return all[0];
}

TEST(WeightsSource, IsAFileAnIndexAFolderOrACheckpointForAllRanks) {
  const TemporaryFolder place;
  for (const char* folder : {"shards", "hub"}) fs::create_directory(place / folder);
  write_two_weights(place / "one.safetensors", 1);
  write_two_weights(place / "shards/part.safetensors", 1);
  write_two_weights(place / "hub/model.safetensors", 1);
  write_text_file(place / "hub/config.json", "{}");
  const std::string index = concat(place / "shards/", kShardIndex);
  write_text_file(index, R"({"weight_map": {"a": "part.safetensors", "b": "part.safetensors"}})");
  const Config run = small_run(place, "run", {"steps=1", "scheduler.warmup=1", "model.layers=1", "eval.every=0"});
  train_by(1, run);
  const std::string checkpoint = RunFolder(run.run).checkpoint(1);
  struct Case {
    std::string path, folder;
    bool is_checkpoint, is_hub;
  };
  const Case cases[] = {{place / "one.safetensors", place.path(), false, false},
                        {index, place / "shards", false, false},
                        {place / "shards", place / "shards", false, false},
                        {place / "hub", place / "hub", false, true},
                        {checkpoint, checkpoint, true, false},
                        {run.run, checkpoint, true, false}};
  for (const int n : {1, 2})
    for (const Case& each : cases) {
      SCOPED_TRACE(concat(each.path, " by ", n));
      const WeightsSource found = found_by(n, each.path);
      EXPECT_TRUE(fs::equivalent(found.folder, each.folder)) << found.folder;
      EXPECT_EQ(found.is_checkpoint, each.is_checkpoint);
      EXPECT_EQ(found.is_hub, each.is_hub);
      EXPECT_EQ(found.identity.size(), 32u);
      EXPECT_EQ(found_by(n, each.path, false).identity, "");
      if (!each.is_checkpoint) { EXPECT_EQ(found.manifest.tensors.size(), 2u); }
    }
}

TEST(WeightsSource, IsKnownAgainByItsNumbers) {
  const TemporaryFolder place;
  write_two_weights(place / "one", 1);
  write_two_weights(place / "same", 1);
  write_two_weights(place / "other", 1.5);
  const std::string one = found_by(1, place / "one").identity;
  EXPECT_EQ(found_by(2, place / "same").identity, one);
  EXPECT_NE(found_by(2, place / "other").identity, one);
}

TEST(WeightsSource, ThatIsNoneIsToldWithWhatThereMayBe) {
  const TemporaryFolder place;
  fs::create_directory(place / "empty");
  const auto refusal = [](const std::string& path) { return error_of([&] { found_by(2, path); }); };
  EXPECT_NE(refusal(place / "no").find(concat("there are no weights in '", place / "no", "'; name a safetensors file")),
            std::string::npos);
  EXPECT_NE(refusal(place / "empty")
                .find(concat("'", place / "empty",
                             "' is neither a checkpoint nor the folder of a run, "
                             "and has no ",
                             kShardIndex)),
            std::string::npos);
  const RunFolder run(place / "empty");
  write_text_file(run.config(), "steps: 1\n");
  fs::create_directory(place / "empty/checkpoints");
  EXPECT_NE(refusal(place / "empty").find("has no checkpoint, whose weights could be taken"), std::string::npos)
      << refusal(place / "empty");
}

}  // namespace
}  // namespace keel
