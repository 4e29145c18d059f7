#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "keel/data/safetensors.h"
#include "tests/cli/sandbox.h"
#include "tests/cli/silent_file.h"

namespace keel::cli {
namespace {

using nlohmann::json;
using testing::Outcome;
using testing::RunningProgram;
using testing::Sandbox;

// The records of a metrics file; one that is no JSON object fails the test.
std::vector<json> records_of(const std::string& metrics) {
  std::vector<json> records;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    const json record = json::parse(line, nullptr, false);
    EXPECT_TRUE(record.is_object() && record.contains("step")) << line;
    records.push_back(record);
  }
  return records;
}

std::vector<double> values_of(const std::vector<json>& records, const char* name) {
  std::vector<double> values;
  for (const json& record : records)
    if (record.contains(name)) values.push_back(record[name].get<double>());
  return values;
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  return end == std::string::npos ? "" : text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

TEST(Train, OnASlowerNetworkLearnsTheSame) {
  const Sandbox sandbox;
  const std::string what = "train addition.yaml steps=3 strategy=zero1-fp32 --thread-ranks 2 run=";
  const Outcome quick = sandbox.keel(what + "quick"), slow = sandbox.keel(what + "slow --delay 500 --bandwidth 100M");
  ASSERT_EQ(quick.code, 0) << quick.err;
  ASSERT_EQ(slow.code, 0) << slow.err;
  EXPECT_NE((slow.out + slow.err).find("as on a slower network: every message takes 500 us and its bytes at 100M"),
            std::string::npos)
      << slow.out << slow.err;
  EXPECT_EQ(sandbox.read("slow/model.safetensors"), sandbox.read("quick/model.safetensors"));
  for (const double waited : values_of(records_of(sandbox.read("slow/metrics.jsonl")), "exposed_ms"))
    EXPECT_GE(waited, 0.5);
}

TEST(Train, OnATextLeavesMetricsModelTokenizerAndCheckpoints) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel("train text.yaml run=made");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const char* file :
       {"config.yaml", "config.json", "tokenizer.json", "model.safetensors", "checkpoints/step-00000006/manifest.json",
        "checkpoints/step-00000012/optimizer.safetensors"})
    EXPECT_TRUE(sandbox.has(concat("made/", file))) << file;
  EXPECT_EQ(sandbox.read("made/model.safetensors"), sandbox.read("made/checkpoints/step-00000012/model.safetensors"));

  const std::vector<json> records = records_of(sandbox.read("made/metrics.jsonl"));
  const std::vector<double> losses = values_of(records, "loss");
  ASSERT_EQ(losses.size(), 12u);
  EXPECT_LT(losses.back(), losses.front() - 0.2);
  EXPECT_EQ(values_of(records, "validation_loss").size(), 2u);
  EXPECT_EQ(values_of(records, "tokens").back(), 12 * 4 * 16);
}

TEST(Train, FromTheResolvedConfigurationRepeatsTheRun) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("train text.yaml run=one").code, 0);
  ASSERT_EQ(sandbox.keel("train one/config.yaml run=two").code, 0);
  EXPECT_EQ(sandbox.read("one/model.safetensors"), sandbox.read("two/model.safetensors"));
}

TEST(Train, OnAdditionReportsExactMatch) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel("train addition.yaml run=made");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<double> exact = values_of(records_of(sandbox.read("made/metrics.jsonl")), "exact_match");
  ASSERT_EQ(exact.size(), 1u);
  EXPECT_TRUE(exact[0] >= 0 && exact[0] <= 1);
  EXPECT_NE(outcome.out.find("exact match"), std::string::npos) << outcome.out;
}

TEST(Train, EndsWithThePeakMemoryByPurpose) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel("train text.yaml run=made");
  const std::string line = last_line(outcome.out);
  EXPECT_TRUE(line.starts_with("memory: peak ")) << outcome.out;
  for (const char* part : {"parameter ", "gradient ", "optimizer ", "activation ", "), resident "})
    EXPECT_NE(line.find(part), std::string::npos) << line;
  const std::vector<json> records = records_of(sandbox.read("made/metrics.jsonl"));
  // AdamW keeps two numbers for each parameter.
  EXPECT_EQ(values_of(records, "peak_optimizer_bytes").back(), 2 * values_of(records, "peak_parameter_bytes").back());
}

TEST(Train, PrintsTheConfigurationWithoutTraining) {
  const Sandbox sandbox;
  const auto before = sandbox.contents();
  const Outcome outcome = sandbox.keel("train text.yaml --print-config optimizer.lr=0.5");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out.find("0.5"), std::string::npos) << outcome.out;
  EXPECT_EQ(sandbox.contents(), before);
}

TEST(Train, SaysOnceWhatAnOverrideLeavesOutOfTheFile) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel("train text.yaml --thread-ranks 2 scheduler.type=OneCycleLR");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(
      outcome.err,
      "keel: note: text.yaml:6: scheduler.warmup is left out: it does not apply where scheduler.type is OneCycleLR\n");
}

TEST(Train, StoppedByASignalSavesAndGoesOnToTheSameBits) {
  for (const int signal_number : {SIGINT, SIGTERM}) {
    const Sandbox sandbox;
    const std::string name = signal_number == SIGINT ? "Ctrl-C" : "SIGTERM";
    RunningProgram program = sandbox.start("train text.yaml run=made steps=100000000 checkpoint.every=0 eval.every=0");
    for (int i = 0; i < 6000 && !(sandbox.has("made/metrics.jsonl") && sandbox.read("made/metrics.jsonl") != ""); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    program.send(signal_number);
    const Outcome stopped = program.wait();
    ASSERT_EQ(stopped.code, 128 + signal_number) << stopped.err;
    EXPECT_EQ(last_line(stopped.out),
              concat("stopped by ", name, "; to go on: keel train made/config.yaml resume=auto"));
    EXPECT_TRUE(sandbox.has("made/model.safetensors"));

    const std::int64_t done = records_of(sandbox.read("made/metrics.jsonl")).back()["step"].get<std::int64_t>();
    const std::string rest = concat(" steps=", done + 5);
    const Outcome resumed = sandbox.keel("train made/config.yaml resume=auto" + rest);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_NE(resumed.out.find(concat("goes on after step ", done)), std::string::npos) << resumed.out;
    ASSERT_EQ(sandbox.keel("train made/config.yaml run=whole" + rest).code, 0);
    EXPECT_EQ(sandbox.read("made/model.safetensors"), sandbox.read("whole/model.safetensors"));
    EXPECT_EQ(values_of(records_of(sandbox.read("made/metrics.jsonl")), "loss"),
              values_of(records_of(sandbox.read("whole/metrics.jsonl")), "loss"));
  }
}

TEST(Train, IsEndedBeforeItsFirstStepByTheFirstSignalThoughAFileDoesNotAnswer) {
  for (const char* file : {"c.yaml", "tokenizer.json"})
    for (const int number : {SIGINT, SIGTERM}) {
      SCOPED_TRACE(concat(file, ' ', number));
      const Sandbox sandbox;
      testing::SilentFile silent(sandbox / file);
      RunningProgram program = sandbox.start(
          concat("train ", file == std::string_view("c.yaml") ? file : "text.yaml data.tokenizer=tokenizer.json",
                 " run=made --thread-ranks 2"));
      ASSERT_TRUE(silent.is_awaited());
      program.send(number);
      const Outcome ended = program.wait();
      EXPECT_EQ(ended.code, 128 + number);
      EXPECT_EQ(ended.err, "");
      EXPECT_FALSE(sandbox.has("made/config.yaml"));
    }
}

TEST(Train, WarnedByAJobSystemBeforeItsFirstStepTakesItAndSaves) {
  const Sandbox sandbox;
  testing::SilentFile silent(sandbox / "c.yaml");
  RunningProgram program = sandbox.start("train c.yaml run=made steps=1000000");
  ASSERT_TRUE(silent.is_awaited());
  program.send(SIGUSR1);
  EXPECT_FALSE(program.has_ended());
  silent.answer(sandbox.read("text.yaml"));
  const Outcome stopped = program.wait();
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.err;
  EXPECT_EQ(last_line(stopped.out), "stopped by SIGTERM; to go on: keel train made/config.yaml resume=auto");
  EXPECT_TRUE(sandbox.has("made/model.safetensors"));
}

TEST(Train, AskedBySigusr2SavesAndTheRunGoesOn) {
  const Sandbox sandbox;
  RunningProgram program = sandbox.start("train text.yaml run=made steps=100000000 checkpoint.every=0 eval.every=0");
  const auto wait_for = [&](const char* file) {
    for (int i = 0; i < 6000 && !(sandbox.has(file) && sandbox.read(file) != ""); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  wait_for("made/metrics.jsonl");
  program.send(SIGUSR2);
  wait_for("made/checkpoints/latest");
  const std::string asked_for = sandbox.read("made/checkpoints/latest");
  program.send(SIGTERM);
  const Outcome stopped = program.wait();
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.err;
  const std::size_t saved = stopped.out.find("saved made/checkpoints/" + last_line(asked_for));
  ASSERT_NE(saved, std::string::npos) << stopped.out;
  EXPECT_NE(stopped.out.find("saved made/checkpoints/step-", saved + 1), std::string::npos) << "and at its end";
  EXPECT_NE(sandbox.read("made/checkpoints/latest"), asked_for);
}

TEST(Train, ResumeGoesBackToTheLastWholeCheckpoint) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("train text.yaml run=made").code, 0);
  const std::string whole = sandbox.read("made/model.safetensors");
  const std::string damaged = sandbox / "made/checkpoints/step-00000012/optimizer.safetensors";
  std::filesystem::resize_file(damaged, std::filesystem::file_size(damaged) - 1);
  const Outcome outcome = sandbox.keel("train text.yaml run=made resume=auto");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("goes on after step 6"), std::string::npos) << outcome.out;
  EXPECT_EQ(sandbox.read("made/model.safetensors"), whole);
  EXPECT_EQ(values_of(records_of(sandbox.read("made/metrics.jsonl")), "loss").size(), 12u);
}

TEST(Train, AFullDiskLeavesTheOldCheckpointAndModelIntact) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("train text.yaml run=made steps=6").code, 0);
  auto before = sandbox.contents();
  // Files of more than 32 KiB cannot be written, as on a full disk; the weights need more.
  const Outcome outcome = sandbox.keel("train text.yaml run=made resume=auto", "trap '' XFSZ && ulimit -f 64");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(outcome.err.starts_with("keel: error: cannot write ")) << outcome.err;
  auto after = sandbox.contents();
  for (auto* files : {&before, &after})  // what the run is now, and what it has seen
    for (const char* name : {"made/config.yaml", "made/metrics.jsonl", "made/logs/rank-0.log"}) files->erase(name);
  EXPECT_EQ(after, before);
  ASSERT_EQ(sandbox.keel("train text.yaml run=made resume=auto").code, 0);
  ASSERT_EQ(sandbox.keel("train text.yaml run=whole").code, 0);
  EXPECT_EQ(sandbox.read("made/model.safetensors"), sandbox.read("whole/model.safetensors"));
}

TEST(Train, ANonFiniteLossSavesWhatWasLearntAndNamesTheFirstBadTensor) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel("train text.yaml run=made optimizer.lr=1e30");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_TRUE(outcome.err.starts_with("keel: error: step 2: the loss is ")) << outcome.err;
  EXPECT_NE(outcome.err.find("first bad tensor: output of "), std::string::npos) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(sandbox.has("made/checkpoints/step-00000001/manifest.json"));
}

TEST(Generate, TheSameSeedGivesTheSameText) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("train text.yaml data.tokenizer=character run=made").code, 0);
  const auto text = [&](const char* options) {
    const Outcome outcome = sandbox.keel(concat("generate made --prompt 'The qui' --tokens 40 ", options));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string one = text("--seed 1");
  EXPECT_TRUE(one.starts_with("The qui"));
  EXPECT_EQ(one.size(), 7u + 40u + 1u);  // prompt, one byte a token, newline
  EXPECT_EQ(text("--seed 1"), one);
  EXPECT_NE(text("--seed 2"), one);
  EXPECT_EQ(text("--seed 1 --top-k 1"), text("--seed 2 --temperature 0"));
}

TEST(Generate, AnswersASum) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("train addition.yaml run=made").code, 0);
  const Outcome outcome = sandbox.keel("generate made --prompt 7+35=");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("07+35=")) << outcome.out;
  EXPECT_EQ(sandbox.keel("generate made --prompt '07 + 35'").out, outcome.out);
}

}  // namespace
}  // namespace keel::cli
