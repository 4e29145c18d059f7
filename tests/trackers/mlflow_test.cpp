// MLflow's file store and REST API; MLflow itself is asked in peers/mlflow_reads.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "keel/runtime/file.h"
#include "keel/trainer/trackers/http_client.h"
#include "keel/trainer/trackers/mlflow_store.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"
#include "tests/trackers/http_server.h"
#include "tests/trackers/session.h"

namespace keel {
namespace {

using testing::description_in;
using testing::Given;
using testing::HttpRequest;
using testing::HttpServer;
using testing::resumed_in;
using testing::TrackedSession;
using Told = std::vector<std::string>;
namespace fs = std::filesystem;

TEST(MlflowNames, AreSuchAsMlflowAccepts) {
  const std::map<std::string, std::string> names = {
      {"loss", "loss"}, {"valid/loss", "valid/loss"}, {"a:b*c", "a_b_c"}, {"../up", ".._up"}, {"/root", "_root"},
      {"a//b", "a__b"}, {"a/../b", "a_.._b"},         {".", "_"},         {"end/", "end_"}};
  for (const auto& [name, clean] : names) EXPECT_EQ(mlflow_name(name), clean);
}

TEST(MlflowNames, HaveLettersDigitsAndFiveSignsAndLeadNowhereElse) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-. ";
  for (int byte = 1; byte < 256; ++byte) {
    const std::string text = {'a', static_cast<char>(byte), 'b'};
    const bool stays = byte == '/' || kPlain.find(static_cast<char>(byte)) != std::string_view::npos;
    EXPECT_EQ(mlflow_name(text), stays ? text : "a_b") << byte;
  }
  const std::map<std::string, std::string> names = {
      {"..", "_"},      {"a/.", "a_."}, {"a/./b", "a_._b"}, {"./a", "._a"},   {"...", "..."},   {"..a", "..a"},
      {"a/..", "a_.."}, {"/", "_"},     {".a", ".a"},       {"a/.b", "a/.b"}, {"a..b", "a..b"}, {"..a/b", "..a_b"}};
  for (const auto& [name, clean] : names) EXPECT_EQ(mlflow_name(name), clean) << name;
}

TEST(HttpTexts, AreEscapedButForLettersDigitsAndThreeSigns) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    const std::string escaped = {'%', kDigits[static_cast<std::size_t>(byte) / 16],
                                 kDigits[static_cast<std::size_t>(byte) % 16]};
    EXPECT_EQ(HttpClient::escaped(text), kPlain.find(text) != std::string_view::npos ? text : escaped) << byte;
  }
}

struct MlflowFileStore : ::testing::Test {
  testing::TemporaryFolder folder;
  std::string root = folder / "mlruns";
  Given given = {{"uri", root}, {"experiment", "\"exp: a\""}};

  MlflowFileStore() { write_text_file(folder / "config.yaml", "seed: 1\n"); }
  std::string id() const {
    const std::string text = read_text_file(folder / "trackers/mlflow.id");
    return text.substr(0, text.find('\n'));
  }
  // The only run's folder.
  std::string run_folder() const {
    for (const auto& experiment : fs::directory_iterator(root))
      if (fs::exists(experiment.path() / id())) return (experiment.path() / id()).string();
    ADD_FAILURE() << "no run " << id();
    return "";
  }
  static std::string without_times(std::string text) {
    std::string steps;
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(line.size() + 1);
      steps += concat(line.substr(line.find(' ') + 1), '\n');
    }
    return steps;
  }
};

TEST_F(MlflowFileStore, HasParamsMetricsTagsArtifactsAndStatus) {
  TrackedSession session("mlflow", given, description_in(folder.path()));
  session->artifact("config", folder / "config.yaml");
  session.log(1, {{"loss", 2.5}, {"tokens", std::int64_t{768}}, {"phase", "warm-up"}});
  session.log(2, {{"loss", NAN}, {"valid/loss", 1e-300}});
  EXPECT_EQ(session.end(RunStatus::killed), Told{});
  const std::string run = run_folder();
  EXPECT_EQ(read_text_file(run + "/params/optimizer.lr"), "3e-4");
  EXPECT_EQ(without_times(read_text_file(run + "/metrics/loss")), "2.5 1\nnan 2\n");
  EXPECT_EQ(without_times(read_text_file(run + "/metrics/valid/loss")), "1e-300 2\n");
  EXPECT_EQ(read_text_file(run + "/tags/phase"), "warm-up");
  EXPECT_EQ(read_text_file(run + "/tags/mlflow.runName"), "try");
  EXPECT_EQ(read_text_file(run + "/artifacts/config.yaml"), "seed: 1\n");
  EXPECT_NE(read_text_file(run + "/meta.yaml").find("status: 5\n"), std::string::npos);
  EXPECT_EQ(id().size(), 32u);
  EXPECT_EQ(id().find_first_not_of("0123456789abcdef"), std::string::npos) << id();
  const std::string meta = read_text_file(fs::path(run).parent_path().string() + "/meta.yaml");
  EXPECT_NE(meta.find("name: \"exp: a\"\n"), std::string::npos) << meta;
}

TEST_F(MlflowFileStore, HasTheBeginningOfATextThatIsTooLongForATag) {
  TrackedSession session("mlflow", given, description_in(folder.path()));
  session->text("whole", std::string(5000, 'a'));
  session->text("cut", std::string(5000, 'b') + "c");
  EXPECT_EQ(session.end(), Told{});
  EXPECT_EQ(read_text_file(run_folder() + "/tags/whole"), std::string(5000, 'a'));
  EXPECT_EQ(read_text_file(run_folder() + "/tags/cut"), std::string(5000, 'b'));
}

TEST_F(MlflowFileStore, HasOneExperimentOfAName) {
  for (const std::string name : {"a", "b"}) {
    RunDescription run = description_in(folder / name);
    TrackedSession("mlflow", given, run).end();
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(root), fs::directory_iterator()), 1);
}

TEST_F(MlflowFileStore, GoesOnBehindTheStepOfTheCheckpoint) {
  TrackedSession first("mlflow", given, description_in(folder.path()));
  for (int step = 1; step <= 4; ++step) first.log(step, {{"loss", 1.0 * step}});
  first.end(RunStatus::failed);
  const std::string run = run_folder();
  RunDescription again = resumed_in(folder.path(), 2);
  again.settings = {{"seed", "2"}};
  TrackedSession second("mlflow", given, again);
  second.log(3, {{"loss", 30.0}});
  EXPECT_EQ(second.end(), Told{});
  EXPECT_EQ(run_folder(), run);
  EXPECT_EQ(without_times(read_text_file(run + "/metrics/loss")), "1 1\n2 2\n30 3\n");
  EXPECT_EQ(read_text_file(run + "/params/seed"), "1");  // a param never changes
  EXPECT_EQ(read_text_file(run + "/tags/keel.resumed_behind_step"), "2");
  EXPECT_NE(read_text_file(run + "/meta.yaml").find("status: 3\n"), std::string::npos);
}

TEST_F(MlflowFileStore, BeginsAnewWhereTheRunIsGoneAndSaysSo) {
  TrackedSession("mlflow", given, description_in(folder.path())).end();
  fs::remove_all(root);
  const Told told = TrackedSession("mlflow", given, resumed_in(folder.path(), 2)).end();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("has no run of the session before"), std::string::npos) << told[0];
  EXPECT_TRUE(fs::exists(run_folder() + "/params/seed"));
}

TEST_F(MlflowFileStore, TakesTheArtifactsThatAreAskedFor) {
  fs::create_directories(folder / "step-5/deep");
  write_text_file(folder / "step-5/deep/file", "numbers");
  write_text_file(folder / "model.safetensors", "weights");
  for (const auto& [which, count] : std::map<std::string, int>{{"none", 0}, {"config", 1}, {"model", 2}, {"all", 3}}) {
    Given chosen = given;
    chosen.emplace_back("artifacts", which);
    TrackedSession session("mlflow", chosen, description_in(folder.path()));
    session->artifact("config", folder / "config.yaml");
    session->artifact("checkpoint", folder / "step-5");
    session->artifact("model", folder / "model.safetensors");
    session->artifact("checkpoint", folder / "removed");
    const Told told = session.end();
    EXPECT_EQ(told.size(), which == "all" ? 1U : 0U);
    int files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(run_folder() + "/artifacts"))
      files += entry.is_regular_file();
    EXPECT_EQ(files, count) << which;
    EXPECT_EQ(fs::exists(run_folder() + "/artifacts/checkpoints/step-5/deep/file"), which == "all");
  }
}

// What a server of MLflow answers, as far as the tracker asks.
std::pair<int, std::string> mlflow_answer(const HttpRequest& request) {
  const auto is = [&](std::string_view call) { return request.target.find(call) != std::string::npos; };
  if (is("experiments/get-by-name")) return {404, R"({"error_code":"RESOURCE_DOES_NOT_EXIST"})"};
  if (is("experiments/create")) return {200, R"({"experiment_id":"7"})"};
  if (is("runs/create") || is("runs/get"))
    return {200, R"({"run":{"info":{"run_id":"r1","artifact_uri":"mlflow-artifacts:/7/r1/artifacts"}}})"};
  return {200, "{}"};
}

struct MlflowServer : ::testing::Test {
  testing::TemporaryFolder folder;

  void SetUp() override {
    try {
      const HttpClient client("http://127.0.0.1");
    } catch (const Error& error) { GTEST_SKIP() << error.what(); }
    write_text_file(folder / "config.yaml", "seed: 1\n");
  }
  static std::vector<std::string> calls_of(const std::vector<HttpRequest>& requests) {
    std::vector<std::string> calls;
    for (const HttpRequest& each : requests) calls.push_back(concat(each.method, ' ', each.target));
    return calls;
  }
};

TEST_F(MlflowServer, IsToldParamsMetricsTagsArtifactsAndStatus) {
  HttpServer server(mlflow_answer);
  TrackedSession session("mlflow", {{"uri", server.uri()}, {"experiment", "a b&c"}}, description_in(folder.path()));
  session->artifact("config", folder / "config.yaml");
  session.log(3, {{"loss", 2.5}, {"norm", INFINITY}});
  EXPECT_EQ(session.end(RunStatus::failed), Told{});
  const std::vector<HttpRequest> requests = server.requests();
  const std::string api = "/api/2.0/mlflow/";
  const std::vector<std::string> expected = {"GET " + api + "experiments/get-by-name?experiment_name=a%20b%26c",
                                             "POST " + api + "experiments/create",
                                             "POST " + api + "runs/create",
                                             "POST " + api + "runs/log-batch",
                                             "POST " + api + "runs/log-batch",
                                             "PUT /api/2.0/mlflow-artifacts/artifacts/7/r1/artifacts/config.yaml",
                                             "POST " + api + "runs/log-batch",
                                             "POST " + api + "runs/update"};
  ASSERT_EQ(calls_of(requests), expected);
  using nlohmann::json;
  EXPECT_EQ(json::parse(requests[2].body)["run_name"], "try");
  const json params = json::parse(requests[4].body)["params"];
  EXPECT_EQ(params[1], json({{"key", "optimizer.lr"}, {"value", "3e-4"}}));
  EXPECT_EQ(requests[5].body, "seed: 1\n");
  json metrics = json::parse(requests[6].body)["metrics"];
  for (json& each : metrics) EXPECT_GT(each["timestamp"], 1600000000000);
  EXPECT_EQ(metrics[0]["value"], 2.5);
  EXPECT_EQ(metrics[0]["step"], 3);
  EXPECT_EQ(metrics[1]["value"], "Infinity");
  EXPECT_EQ(json::parse(requests[7].body)["status"], "FAILED");
  EXPECT_TRUE(requests[7].body.starts_with(R"({"run_id":"r1","status":"FAILED","end_time":)")) << requests[7].body;
}

TEST_F(MlflowServer, GetsBatchesOfTheSizesThatItTakes) {
  HttpServer server(mlflow_answer);
  RunDescription run = description_in(folder.path());
  for (int i = 0; i < 250; ++i) run.settings.emplace_back(concat("key.", i), "1");
  TrackedSession session("mlflow", {{"uri", server.uri()}}, run, {.capacity = 10000, .flush_seconds = 1000});
  for (int step = 1; step <= 2500; ++step) session.log(step, {{"loss", 1.0}});
  EXPECT_EQ(session.end(), Told{});
  std::map<std::string, std::vector<std::size_t>> sizes;
  for (const HttpRequest& each : server.requests())
    if (each.target.ends_with("log-batch")) {
      const auto body = nlohmann::json::parse(each.body);
      for (const auto& [kind, list] : body.items())
        if (list.is_array()) sizes[kind].push_back(list.size());
    }
  EXPECT_EQ(sizes["params"], (std::vector<std::size_t>{100, 100, 54}));
  EXPECT_EQ(sizes["metrics"], (std::vector<std::size_t>{1000, 1000, 500}));
}

TEST_F(MlflowServer, IsToldHowTheRunEndedAndWhatIsNoNumber) {
  const std::pair<RunStatus, const char*> statuses[] = {
      {RunStatus::finished, "FINISHED"}, {RunStatus::failed, "FAILED"}, {RunStatus::killed, "KILLED"}};
  for (const auto& [status, word] : statuses) {
    HttpServer server(mlflow_answer);
    const std::unique_ptr<MlflowStore> store = mlflow_server(server.uri());
    (void)store->open(description_in(folder.path()), "e");
    const MlflowMetric metrics[] = {{"a", INFINITY, 5, 1}, {"b", -INFINITY, 5, 1}, {"c", NAN, 5, 1}, {"d", -0.5, 5, 1}};
    store->log_metrics(metrics);
    store->end(status);
    const auto requests = server.requests();
    EXPECT_EQ(
        requests.at(3).body,
        R"({"run_id":"r1","metrics":[{"key":"a","value":"Infinity","timestamp":5,"step":1},)"
        R"({"key":"b","value":"-Infinity","timestamp":5,"step":1},{"key":"c","value":"NaN","timestamp":5,"step":1},)"
        R"({"key":"d","value":-0.5,"timestamp":5,"step":1}]})");
    EXPECT_EQ(nlohmann::json::parse(requests.back().body)["status"], word);
  }
}

// Where artifacts lie: with a server that takes them, below any number of slashes, or elsewhere.
TEST_F(MlflowServer, GetsArtifactsWhereItTakesThem) {
  const auto told = [&](const std::string& place) {
    HttpServer server([&](const HttpRequest& request) {
      auto answer = mlflow_answer(request);
      if (const std::size_t at = answer.second.find("mlflow-artifacts:/7/r1/artifacts"); at != std::string::npos)
        answer.second.replace(at, 32, place);
      return answer;
    });
    std::string all;
    RunDescription run = description_in(folder.path());
    run.warn = [&](std::string_view text) { all += concat(text, '\n'); };
    const std::unique_ptr<MlflowStore> store = mlflow_server(server.uri());
    (void)store->open(run, "e");
    for (int i = 0; i < 2; ++i) store->upload(folder / "config.yaml", "c");
    for (const HttpRequest& each : server.requests())
      if (each.method == "PUT") all += concat(each.target, ' ', each.body);
    return all;
  };
  const std::string put = "/api/2.0/mlflow-artifacts/artifacts/7/x/c seed: 1\n";
  EXPECT_EQ(told("mlflow-artifacts:/7/x"), put + put);
  EXPECT_EQ(told("mlflow-artifacts:///7/x"), put + put);
  EXPECT_EQ(told("s3://7/x"),
            "artifacts lie at 's3://7/x', where keel writes none; let the server take them (mlflow server "
            "--serve-artifacts)\n");
}

TEST_F(MlflowServer, ThatIsDownIsToldOnce) {
  const std::string uri = HttpServer(mlflow_answer).uri();  // and gone
  TrackedSession session("mlflow", {{"uri", uri}}, description_in(folder.path()));
  for (int step = 1; step <= 100; ++step) session.log(step, {{"loss", 1.0}});
  const Told told = session.end();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("does not answer"), std::string::npos) << told[0];
}

TEST_F(MlflowServer, ThatIsAwayForAWhileMissesNothing) {
  int batches = 0;
  bool is_away = false;  // of the server's thread
  HttpServer server([&](const HttpRequest& request) -> std::pair<int, std::string> {
    if (request.body.find("\"metrics\"") != std::string::npos) is_away = ++batches < 4;
    return is_away && request.body.find("\"metrics\"") != std::string::npos ? std::pair<int, std::string>(503, "")
                                                                            : mlflow_answer(request);
  });
  TrackedSession session("mlflow", {{"uri", server.uri()}}, description_in(folder.path()), {.flush_seconds = 0.001});
  for (int step = 1; step <= 1000; ++step) {
    session.log(step, {{"loss", 1.0}});
    if (server.requests().size() > 9) break;  // three times away, and back
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  session.log(2000, {{"loss", 2.0}});
  const Told told = session.end();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("what is logged waits until it does"), std::string::npos) << told[0];
  std::vector<int> steps;
  for (const HttpRequest& each : server.requests())
    if (each.body.find("\"metrics\"") != std::string::npos) {
      const auto body = nlohmann::json::parse(each.body);
      for (const auto& metric : body["metrics"]) steps.push_back(metric["step"]);
    }
  EXPECT_EQ(std::count(steps.begin(), steps.end(), 1), 4);  // and every later one at least once
  EXPECT_EQ(steps.back(), 2000);
}

TEST_F(MlflowServer, IsToldEachTimeThatItGoesAway) {
  std::atomic<bool> is_away = false;
  HttpServer server([&](const HttpRequest& request) -> std::pair<int, std::string> {
    return is_away ? std::pair<int, std::string>(503, "") : mlflow_answer(request);
  });
  Told told;
  RunDescription run = description_in(folder.path());
  run.warn = [&](std::string_view text) { told.emplace_back(text); };
  const std::unique_ptr<Tracker> tracker = testing::make_tracker("mlflow", {{"uri", server.uri()}});
  tracker->begin(run);
  std::size_t times = 0;
  for (const bool away : {false, true, true, false, true, true, true, false}) {
    times += away && !is_away ? 1 : 0;
    is_away = away;
    tracker->log(1, 0, std::vector<Logged>{{"loss", 1.0}});
    tracker->flush();
    EXPECT_EQ(told.size(), times);
  }
  EXPECT_EQ(times, 2U);
  for (const std::string& each : told) EXPECT_TRUE(each.ends_with("; what is logged waits until it does")) << each;
  tracker->end(RunStatus::finished);
}

TEST_F(MlflowServer, ThatRefusesIsQuoted) {
  HttpServer server([](const HttpRequest& request) -> std::pair<int, std::string> {
    if (request.target.find("runs/create") != std::string::npos) return {403, R"({"message":"not yours"})"};
    return mlflow_answer(request);
  });
  const Told told = TrackedSession("mlflow", {{"uri", server.uri()}}, description_in(folder.path())).end();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("refuses runs/create with status 403: not yours"), std::string::npos) << told[0];
}

TEST(MlflowSettings, RefuseOtherPlaces) {
  EXPECT_NE(testing::error_of([] {
              testing::make_tracker("mlflow", {{"uri", "s3://bucket"}});
            }).find("uri is a folder"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
