// Answers to the prompts of a file, by any number of ranks.

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "keel/runtime/json.h"
#include "keel/trainer/generate.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

struct TrainedText {
  TrainedText() { train_by(1, config); }
  // How many the last rank counts; `prompts` is what the file of them has.
  std::int64_t answer(int n, const std::string& prompts, bool replaces = false, std::int64_t batch = 2) const {
    const GenerateFiles files = {
        .prompts = place / "prompts.jsonl", .out = place / "out.jsonl", .replaces = replaces, .batch = batch};
    write_text_file(files.prompts, prompts);
    std::int64_t count = 0;
    run_ranks(n, [&](Communicator& ranks) {
      const std::int64_t mine = generate_file(options, files, ranks);
      if (ranks.rank() == n - 1) count = mine;
    });
    return count;
  }
  std::string refusal(int n, const std::string& prompts, std::int64_t batch = 2) const {
    return error_of([&] { answer(n, prompts, false, batch); });
  }
  std::string out() const { return read_text_file(place / "out.jsonl"); }

  TemporaryFolder place;
  Config config = small_run(place, "run", {"steps=1", "scheduler.warmup=0", "eval.every=0", "model.layers=1"});
  GenerateOptions options = {.run = config.run, .prompt = {}, .tokens = 6, .temperature = 0};
};

TEST(GenerateFile, WritesTheAnswerToEachPromptInOrderByAnyNumberOfRanks) {
  const TrainedText trained;
  const std::vector<std::string> asked = {"line 1", "of 2", "line"};
  const std::string prompts =
      "{\"prompt\": \"line 1\", \"text\": \"passed over\"}\n{\"text\": \"of 2\"}\n{\"prompt\": \"line\"}\n";
  EXPECT_EQ(trained.answer(1, prompts), 3);
  const std::string alone = trained.out();
  std::vector<Json> lines;
  std::istringstream stream(alone);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 3U);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    EXPECT_EQ(lines[i].at("example").integer(), static_cast<std::int64_t>(i));
    EXPECT_EQ(lines[i].at("prompt").string(), asked[i]);
    GenerateOptions single = trained.options;
    single.prompt = asked[i];
    std::string text;
    generate(single, [&](std::string_view piece) { text += piece; });
    EXPECT_EQ(lines[i].at("answer").string(), text);
    EXPECT_EQ(text.size(), asked[i].size() + 6);
  }
  for (const int n : {2, 3}) {
    EXPECT_EQ(trained.answer(n, prompts, true), 3) << n;
    EXPECT_EQ(trained.out(), alone) << n;
  }
}

TEST(GenerateFile, RefusesWhatIsNoPromptBeforeAnythingIsWritten) {
  const TrainedText trained;
  const std::string file = trained.place / "prompts.jsonl", good = "{\"prompt\": \"line\"}\n";
  for (const int n : {1, 2}) {
    EXPECT_EQ(trained.refusal(n, good + "{\"question\": \"line\"}\n"),
              concat("'", file, "', line 2 has neither `prompt` nor `text`"));
    EXPECT_EQ(trained.refusal(n, "{\"text\": 7}\n"),
              concat("'", file, "', line 1: `text` is a whole number; a text is wanted, as in {\"prompt\": \"...\"}"));
    EXPECT_EQ(trained.refusal(n, good + good + "{\"prompt\": \"\", \"text\": \"line\"}\n"),
              concat("'", file, "', line 3: the prompt is empty"));
    EXPECT_EQ(trained.refusal(n, "\n"), concat("'", file, "' has no prompt"));
    EXPECT_EQ(trained.refusal(n, good, 0), "a batch has at least one prompt, got 0");
    EXPECT_FALSE(std::filesystem::exists(trained.place / "out.jsonl"));
  }
  write_text_file(trained.place / "out.jsonl", "before");
  for (const int n : {1, 2}) EXPECT_NE(trained.refusal(n, good).find("is there already; --force"), std::string::npos);
  EXPECT_EQ(trained.out(), "before");
}

}  // namespace
}  // namespace keel
