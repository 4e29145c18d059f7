// What a list says of the checkpoints of a run.

#include "keel/trainer/checkpoint_list.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <ctime>

#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;
namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

Steps steps_of(const CheckpointList& list) {
  Steps steps;
  for (const ListedCheckpoint& each : list.checkpoints) steps.push_back(each.step);
  return steps;
}

// Changes the last byte of the largest file of a folder.
void damage(const std::string& folder) {
  std::string path;
  std::uintmax_t most = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.file_size() > most) {
      most = entry.file_size();
      path = entry.path().string();
    }
  std::string bytes = read_text_file(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text_file(path, bytes);
}

TEST(CheckpointList, HoldsEachByStepWithWhatLiesInItsFolder) {
  for (const int n : {1, 3}) {
    const TemporaryFolder place;
    const Config config = small_run(place, "run", {"strategy=zero2-fp32", "checkpoint.keep=9"});
    train_by(n, config);
    const RunFolder folder(config.run);
    const CheckpointList list = list_checkpoints(config.run);
    EXPECT_TRUE(list.is_of_run);
    EXPECT_EQ(steps_of(list), (Steps{5, 10, 12}));
    EXPECT_EQ(steps_of(list_checkpoints(config.run + "/checkpoints")), steps_of(list));
    EXPECT_EQ(find_checkpoint(config.run + "/checkpoints/", 10, [](std::string_view) {}).path, folder.checkpoint(10));
    EXPECT_EQ(list.latest, "step-00000012");
    EXPECT_EQ(list.latest_damage, "");
    EXPECT_FALSE(list.is_damaged());
    ASSERT_NE(list.next(), nullptr);
    EXPECT_EQ(list.next()->step, 12);
    for (const ListedCheckpoint& each : list.checkpoints) {
      EXPECT_EQ(each.path, folder.checkpoint(each.step));
      EXPECT_EQ(each.damage, "");
      EXPECT_EQ(each.ranks, n);
      EXPECT_EQ(each.files, static_cast<int>(open_checkpoint(each.path).manifest.files.size()));
      std::uint64_t bytes = 0;
      for (const auto& entry : fs::directory_iterator(each.path)) bytes += entry.file_size();
      EXPECT_EQ(each.bytes, bytes);
      EXPECT_GT(each.written, 0);
      const CheckpointList alone = list_checkpoints(each.path);
      EXPECT_FALSE(alone.is_of_run);
      EXPECT_EQ(steps_of(alone), Steps{each.step});
    }
  }
}

TEST(CheckpointList, CountsTheBytesOfOneThatCannotBeRead) {
  const TemporaryFolder place;
  const RunFolder folder(place.path());
  fs::create_directories(folder.checkpoint(5) + "/deeper");
  write_text_file(folder.config(), "steps: 5\n");
  write_text_file(folder.checkpoint(5) + "/one", "123");
  write_text_file(folder.checkpoint(5) + "/two", "4567");
  const CheckpointList list = list_checkpoints(place.path());
  ASSERT_EQ(steps_of(list), Steps{5});
  EXPECT_NE(list.checkpoints[0].damage, "");
  EXPECT_EQ(list.checkpoints[0].bytes, 7u);
  // Written when its manifest was, or else the folder.
  const auto written_at = [&](std::time_t seconds, const std::string& path) {
    const timespec times[] = {{seconds, 0}, {seconds, 0}};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    return list_checkpoints(place.path()).checkpoints.at(0).written;
  };
  EXPECT_EQ(written_at(1000, folder.checkpoint(5)), 1000);
  write_text_file(concat(folder.checkpoint(5), '/', Manifest::kFile), "no manifest");
  EXPECT_EQ(written_at(2000, concat(folder.checkpoint(5), '/', Manifest::kFile)), 2000);
  EXPECT_EQ(written_at(3000, folder.checkpoint(5)), 2000);
}

TEST(CheckpointList, NamesWhatIsDamagedAndGoesOnFromTheNewestThatIsWhole) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"checkpoint.keep=9"});
  train_by(1, config);
  const RunFolder folder(config.run);
  fs::remove(concat(folder.checkpoint(12), '/', Manifest::kFile));
  damage(folder.checkpoint(5));
  CheckpointList list = list_checkpoints(config.run);
  EXPECT_EQ(steps_of(list), (Steps{5, 10, 12}));
  EXPECT_TRUE(list.is_damaged());
  EXPECT_EQ(list.checkpoints[0].damage, "") << "its bytes are not read";
  EXPECT_NE(list.checkpoints[2].damage, "");
  EXPECT_EQ(list.next(), &list.checkpoints[1]);
  std::uint64_t reached = 0, whole = 0;
  list = list_checkpoints(config.run, [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GE(done, reached);
    EXPECT_LE(done, total);
    reached = done;
    whole = total;
  });
  EXPECT_NE(list.checkpoints[0].damage, "");
  EXPECT_EQ(list.checkpoints[1].damage, "");
  EXPECT_GT(whole, 0u);
  EXPECT_EQ(reached, whole);
  EXPECT_EQ(list.next(), &list.checkpoints[1]);
  std::string complaints;
  const auto complain = [&](std::string_view text) { complaints += concat(text, '\n'); };
  EXPECT_EQ(newest_checkpoint(folder, complain)->state.step, 10);
  EXPECT_TRUE(complaints.starts_with("the checkpoint of step 12 is not usable: ")) << complaints;
  complaints.clear();
  EXPECT_EQ(newest_checkpoint(folder, complain, 10)->state.step, 5);
  EXPECT_EQ(newest_checkpoint(folder, complain, 5), std::nullopt);
  EXPECT_EQ(complaints, "");
}

TEST(CheckpointList, ThatTheLatestIsNotThereIsTold) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"checkpoint.keep=9"});
  train_by(1, config);
  fs::remove_all(RunFolder(config.run).checkpoint(12));
  const CheckpointList list = list_checkpoints(config.run);
  EXPECT_NE(list.latest_damage.find("names step-00000012, which is not there"), std::string::npos);
  EXPECT_TRUE(list.is_damaged());
  fs::remove(RunFolder(config.run).latest());
  EXPECT_FALSE(list_checkpoints(config.run).is_damaged());
}

TEST(CheckpointList, OfNeitherARunNorACheckpointIsAnError) {
  const TemporaryFolder place;
  write_text_file(place / "file", "text");
  EXPECT_NE(error_of([&] { list_checkpoints(place / "nowhere"); }).find("there is no '"), std::string::npos);
  EXPECT_NE(error_of([&] { list_checkpoints(place / "file"); }).find("is a file"), std::string::npos);
  EXPECT_NE(error_of([&] { list_checkpoints(place.path()); }).find("neither the folder of a run nor a checkpoint"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
