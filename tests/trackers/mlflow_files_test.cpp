// What MLflow's file store holds, byte by byte.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "keel/runtime/file.h"
#include "keel/trainer/trackers/mlflow_store.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"
#include "tests/trackers/session.h"

namespace keel {
namespace {

using testing::description_in;
using testing::Given;
namespace fs = std::filesystem;

struct MlflowFolders : ::testing::Test {
  testing::TemporaryFolder folder;
  std::string root = folder / "mlruns";
  Given given = {{"uri", root}, {"experiment", "e"}};
};

TEST_F(MlflowFolders, SaysWhatBecameOfTheRunAndWhenThingsWereLogged) {
  const std::pair<RunStatus, const char*> statuses[] = {
      {RunStatus::finished, "status: 3\n"}, {RunStatus::failed, "status: 4\n"}, {RunStatus::killed, "status: 5\n"}};
  for (const auto& [status, line] : statuses) {
    const std::unique_ptr<MlflowStore> store = mlflow_files(root);
    const std::string run = concat(root, "/0/", store->open(description_in(folder.path()), "Default"));
    EXPECT_NE(read_text_file(run + "/meta.yaml").find("status: 1\n"), std::string::npos) << "it runs";
    EXPECT_NE(read_text_file(run + "/meta.yaml").find("end_time: null\n"), std::string::npos);
    store->end(status);
    EXPECT_NE(read_text_file(run + "/meta.yaml").find(line), std::string::npos) << line;
  }
  const std::unique_ptr<Tracker> tracker = testing::make_tracker("mlflow", given);
  tracker->begin(description_in(folder.path()));
  const std::vector<Logged> values = {{"loss", 0.5}};
  tracker->log(3, 1.7e9, values);
  tracker->log(4, 0.0016, values);
  tracker->flush();
  for (const auto& experiment : fs::directory_iterator(root)) {
    const std::string name = experiment.path().filename().string();
    if (name == "0") continue;
    EXPECT_EQ(name.size(), 18u);
    EXPECT_EQ(name.front(), '1');
    EXPECT_EQ(name.find_first_not_of("0123456789"), std::string::npos) << name;
    EXPECT_EQ(read_text_file((experiment.path() / tracker->id() / "metrics/loss").string()),
              "1700000000000 0.5 3\n2 0.5 4\n");
  }
}

TEST_F(MlflowFolders, KeepsAHundredThousandNumbersUntilTheyAreSent) {
  const std::unique_ptr<Tracker> tracker = testing::make_tracker("mlflow", given);
  tracker->begin(description_in(folder.path()));
  const std::vector<Logged> many(50000, Logged{"loss", 0.5}), one = {{"loss", 0.5}};
  for (int i = 0; i < 2; ++i) tracker->log(i, 1, many);
  EXPECT_EQ(testing::error_of([&] { tracker->log(2, 1, one); }),
            concat("'", root, "' has been away for too long, and 100001 numbers wait for it"));
}

// A file of metrics that a crash has cut, and one of steps that are behind.
TEST_F(MlflowFolders, TakesBackWhatIsBehindTheStepAlone) {
  RunDescription run = description_in(folder.path());
  run.resumed_id = mlflow_files(root)->open(run, "e");
  run.is_resumed = true;
  std::string metrics;
  for (const auto& experiment : fs::directory_iterator(root))
    metrics = (experiment.path() / run.resumed_id / "metrics/").string();
  const auto left = [&](const std::string& text, std::int64_t step) {
    write_text_file(metrics + "loss", text);
    run.step = step;
    (void)mlflow_files(root)->open(run, "e");
    return read_text_file(metrics + "loss");
  };
  EXPECT_EQ(left("9 1.5 0\n9 1.5 1\n9 1.5 2\n", 1), "9 1.5 0\n9 1.5 1\n");
  EXPECT_EQ(left("9 1.5 0\n9 1.5 1\n9 1.5 2", 2), "9 1.5 0\n9 1.5 1\n9 1.5 2\n");
  EXPECT_EQ(left("9 1.5 10\n9 1.5 2\n", 2), "9 1.5 2\n");
  EXPECT_EQ(left("9 1.5 0\n", 0), "9 1.5 0\n");
}

}  // namespace
}  // namespace keel
