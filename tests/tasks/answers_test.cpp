// What tasks with decoders answer: alone, several at once, with ends.

#include <gtest/gtest.h>

#include "keel/kernels/elementwise.h"
#include "keel/nn/flat_buffer.h"
#include "keel/runtime/file.h"
#include "keel/tasks/catalog.h"
#include "tests/error_of.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

// A task on the characters of a text, with numbers far from uniform.
struct AnsweringTask {
  AnsweringTask(const TemporaryFolder& place, std::string_view name, std::string run = {}) {
    write_text_file(place / "text.txt", "the cat sat on the mat, and the dog \u20ac\u00e9 sat by it.\nthe end\n");
    write_text_file(place / "records.jsonl", "{\"prompt\": \"the cat\", \"response\": \"sat\"}\n");
    const bool is_language = name == "language";
    static const TaskCatalog catalog;
    const TaskEntry& entry = *catalog.find(name);
    TaskSite site;
    std::vector<std::pair<std::string, std::string>> given = {
        {"model.layers", "2"},
        {"model.heads", "2"},
        {"model.width", "16"},
        {"model.block", "48"},
        {"data.validation", "0"},
        {"data.path", place / (is_language ? "text.txt" : "records.jsonl")},
        {"data.tokenizer", is_language ? "character" : "byte"}};
    if (!is_language) given.emplace_back("data.template", "plain");
    site.settings = Settings(entry.rows, given);
    site.host = context;
    site.run = std::move(run);
    task = entry.make(site);
    Module& model = *task->stacks().at(0).module;
    buffers = materialize(model, context, {.seed = 3});
    for (const FlatBuffer& buffer : buffers)
      kernels::copy_into(buffer.values, testing::uniform_tensor(context, buffer.values.shape(), 4));
  }

  std::string answer(std::string_view prompt, const AnswerOptions& options) {
    const NoGrad no_grad;
    Forward pass;
    std::string text;
    task->answer(prompt, options, pass, [&](std::string_view piece) { text += piece; });
    return text;
  }
  std::vector<std::string> answers(const std::vector<std::string>& prompts, const AnswerOptions& options) {
    const NoGrad no_grad;
    Forward pass;
    std::vector<std::string> texts(prompts.size());
    task->answer_all(prompts, options, pass, [&](std::size_t i, std::string_view piece) { texts[i] += piece; });
    return texts;
  }

  Context context = testing::context(1, KernelChoice::plain);
  std::unique_ptr<TaskBase> task;
  std::vector<FlatBuffer> buffers;
};

TEST(Answers, OfSeveralPromptsAreThoseOfEachAlone) {
  const TemporaryFolder place;
  for (const char* name : {"language", "fine_tuning"}) {
    AnsweringTask asked(place, name);
    const std::vector<std::string> prompts = {"the cat", "a", "the mat", "on the mat, and the"};
    for (const AnswerOptions& options :
         {AnswerOptions{.tokens = 30, .seed = 4},
          {.tokens = 30, .temperature = 0, .repetition_penalty = 1.5},
          {.tokens = 40, .top_k = 9, .top_p = 0.9, .stop = {"t", "e"}, .first_row = 5}}) {
      const std::vector<std::string> all = asked.answers(prompts, options);
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        AnswerOptions own = options;
        own.first_row += i;
        EXPECT_EQ(all[i], asked.answer(prompts[i], own)) << name << ", " << prompts[i];
      }
    }
  }
}

TEST(Answers, OfTextsBeginWithThePromptAndEndBeforeAStop) {
  const TemporaryFolder place;
  AnsweringTask asked(place, "language");
  const std::string prompt = "the mat";
  const AnswerOptions options{.tokens = 40, .seed = 2};
  const std::string whole = asked.answer(prompt, options);
  ASSERT_TRUE(whole.starts_with(prompt));
  const std::string written = whole.substr(prompt.size());
  // From a character on: one that has two bytes at least stands in the text.
  for (std::size_t begin = 0; begin < written.size(); begin += 5) {
    while ((static_cast<unsigned char>(written[begin]) & 0xc0) == 0x80) ++begin;
    AnswerOptions ended = options;
    ended.stop = {"never there", written.substr(begin, 4)};
    EXPECT_EQ(asked.answer(prompt, ended), prompt + written.substr(0, written.find(ended.stop[1]))) << begin;
  }
}

TEST(Answers, EndBeforeTheTokensThatTheModelsFilesName) {
  const TemporaryFolder place, run;
  const AnswerOptions greedy{.tokens = 20, .temperature = 0};
  AnsweringTask asked(place, "language");
  const std::string whole = asked.answer("the cat", greedy);
  // Every number of the vocabulary: the first token of any answer ends it.
  std::string all = "0";
  for (int token = 1; token < 64; ++token) all += concat(',', token);
  write_text_file(run / "generation_config.json", concat("{\"eos_token_id\": [", all, "]}"));
  AnsweringTask ended(place, "language", std::string(run.path()));
  EXPECT_EQ(ended.answer("the cat", greedy), "the cat");
  write_text_file(run / "generation_config.json", "{\"eos_token_id\": 1000}");
  EXPECT_EQ(ended.answer("the cat", greedy), whole);
  EXPECT_GT(whole.size(), 26u);
}

TEST(Answers, RefuseWhatMakesNoSense) {
  const TemporaryFolder place;
  for (const char* name : {"language", "fine_tuning"}) {
    AnsweringTask asked(place, name);
    const auto refusal = [&](std::string_view prompt, const AnswerOptions& options) {
      return error_of([&] { asked.answer(prompt, options); });
    };
    EXPECT_NE(refusal("", {}).find("--prompt is empty"), std::string::npos);
    EXPECT_NE(refusal("a", {.stop = {"x", ""}}).find("a stop is empty"), std::string::npos);
    EXPECT_NE(refusal("a", {.top_p = 0}).find("top_p is a share"), std::string::npos);
    EXPECT_NE(refusal("a", {.repetition_penalty = -1}).find("repetition_penalty must be"), std::string::npos);
  }
}

}  // namespace
}  // namespace keel
