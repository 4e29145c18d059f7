// Data that is cut short while a run reads it, that ranks see differently, or that was replaced between two sessions.

#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "keel/data/token_file.h"
#include "keel/data/token_fingerprint.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/data_fingerprint.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;
namespace fs = std::filesystem;

void write_tokens(const std::string& path) {
  TokenFileWriter writer(path, 50, "character");
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < 4000; ++i) tokens.push_back(i * i % 47);
  writer.append(tokens);
  writer.commit();
}

Config run_of_tokens(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  more.insert(more.begin(), concat("data={type: tokens, path: ", place / "data.tokens", "}"));
  more.insert(more.end(), {"steps=30", "eval.every=0", "checkpoint.every=0", "scheduler.steps=30"});
  return small_run(place, run, more);
}

// Cuts a file after a step, on one rank.
class Cutting : public Recorder {
 public:
  explicit Cutting(std::string file) : file_(std::move(file)) {}
  void on_step(const StepReport& report) override {
    Recorder::on_step(report);
    if (report.step == 4 && !file_.empty()) fs::resize_file(file_, 64);
  }

 private:
  std::string file_;
};

TEST(CutData, EndsARunWithAMessageAndACheckpointToGoOnFrom) {
  for (const int n : {1, 3}) {
    SCOPED_TRACE(n);
    const TemporaryFolder place;
    const std::string file = place / "data.tokens";
    write_tokens(file);
    train_by(n, run_of_tokens(place, "whole"));
    const Config config = run_of_tokens(place, "cut", {"resume=auto"});
    std::mutex mutex;
    std::vector<std::string> messages;
    EXPECT_THROW(run_ranks(n,
                           [&](Communicator& ranks) {
                             Cutting cutting(ranks.rank() == 0 ? file : "");
                             const std::string message = error_of([&] { train(config, cutting, ranks); });
                             const std::lock_guard lock(mutex);
                             messages.push_back(message);
                             if (!message.empty()) throw Error(MessageLines{message});
                           }),
                 Error);
    ASSERT_EQ(messages.size(), static_cast<std::size_t>(n));
    for (const std::string& message : messages) {
      EXPECT_EQ(message, messages[0]);
      EXPECT_NE(message.find(concat("cannot read '", file, "': it has been cut short to ")), std::string::npos)
          << message;
    }
    const std::vector<std::int64_t> steps = RunFolder(config.run).checkpoint_steps();
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_GE(steps[0], 4);
    write_tokens(file);
    train_by(n, config);
    EXPECT_TRUE(weights_of(config) == weights_of(run_of_tokens(place, "whole")));
  }
}

TEST(ChangedData, BetweenTwoSessionsIsAnErrorThatAKeyAllows) {
  const TemporaryFolder place;
  const std::string text = place / "text.txt";
  Recorder first(6), refused, allowed;
  train(small_run(place, "run"), first);
  std::string changed = sample_text();
  std::swap(changed[2000], changed[2001]);  // the same tokenizer, the same length
  ASSERT_NE(changed, sample_text());
  write_text_file(text, changed);
  const std::string message = error_of([&] { train(small_run(place, "run", {"resume=auto"}), refused); });
  EXPECT_TRUE(message.starts_with(concat("'", text, "' has changed since '"))) << message;
  EXPECT_NE(message.find("data.allow_changes=true"), std::string::npos) << message;
  EXPECT_EQ(refused.losses.size(), 0u);
  train(small_run(place, "run", {"resume=auto", "data.allow_changes=true"}), allowed);
  EXPECT_EQ(allowed.losses.size(), 6u);
  EXPECT_NE(allowed.messages.find(concat("'", text, "' has changed since '")), std::string::npos) << allowed.messages;
}

TEST(ChangedData, ThatWasAskedForByAnotherNameIsAWarning) {
  const TemporaryFolder place;
  Recorder first(6), same, other;
  train(small_run(place, "run"), first);
  fs::copy(place / "run", place / "run2", fs::copy_options::recursive);
  fs::copy_file(place / "text.txt", place / "moved.txt");
  train(small_run(place, "run", {"resume=auto", "data.path=" + (place / "moved.txt")}), same);
  EXPECT_EQ(same.losses.size(), 6u);
  write_text_file(place / "other.txt", sample_text() + sample_text());
  train(small_run(place, "run2", {"resume=auto", "data.path=" + (place / "other.txt")}), other);
  EXPECT_EQ(other.losses.size(), 6u);
  EXPECT_NE(other.messages.find("goes on with other settings than before: data"), std::string::npos);
}

TEST(ChangedData, OfALargeFileIsNoticedAtBothEndsAndInItsPieces) {
  // Longer than what is looked at as a whole.
  std::vector<std::uint32_t> tokens(3 << 20);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint32_t>(i % 199);
  const auto fingerprint = [&] { return fingerprint_of(Tokens(tokens, 256, "values")); };
  const std::string before = fingerprint();
  EXPECT_TRUE(before.starts_with("3145728 tokens, ")) << before;
  EXPECT_EQ(fingerprint(), before);
  const std::size_t last = tokens.size() - 1;
  for (const std::size_t place : {std::size_t{0}, std::size_t{1023}, last - 1023, last}) {
    tokens[place] = 200;
    EXPECT_NE(fingerprint(), before) << place;
    tokens[place] = static_cast<std::uint32_t>(place % 199);
  }
  // Any change that is longer than the distance of two pieces.
  for (const std::size_t begin : {5'000, 1'234'567, 3'000'000}) {
    std::fill_n(tokens.begin() + static_cast<std::ptrdiff_t>(begin), 3 * 1024, 201);
    EXPECT_NE(fingerprint(), before) << begin;
    for (std::size_t i = begin; i < begin + 3 * 1024; ++i) tokens[i] = static_cast<std::uint32_t>(i % 199);
  }
  EXPECT_EQ(fingerprint(), before);
  tokens.pop_back();
  EXPECT_NE(fingerprint(), before);
}

TEST(ChangedData, ThatRanksSeeDifferentlyNamesAllOfThem) {
  EXPECT_EQ(differences_of(std::vector<std::string>(5, "7 tokens, aa")), "");
  EXPECT_EQ(differences_of({"7 tokens, aa", "7 tokens, bb", "7 tokens, aa", "9 tokens, cc", "7 tokens, aa"}),
            "ranks 0, 2 and 4 have 7 tokens, aa, rank 1 has 7 tokens, bb, rank 3 has 9 tokens, cc");
}

// What is validated on, by the keys of two sets or of the only one.
TEST(ChangedData, ToValidateOnIsAnErrorThatNamesTheSetItsFileAndTheKeyThatAllowsIt) {
  const TemporaryFolder place;
  const std::string file = place / "v.txt", other = place / "w.txt";
  for (const bool named : {false, true}) {
    write_text_file(file, sample_text().substr(0, 500));
    write_text_file(other, sample_text().substr(0, 600));
    const std::string name = named ? "named" : "only";
    const auto run = [&](std::vector<std::string> more = {}) {
      more.insert(more.begin(),
                  named ? concat("data.sets=[{name: dev, path: ", other, "}, {name: far, path: ", file, "}]")
                        : concat("data.validation_path=", file));
      return small_run(place, name, std::move(more));
    };
    Recorder first(6), same(7), refused, allowed, moved;
    train(run(), first);
    train(run({"resume=auto"}), same);
    EXPECT_EQ(same.losses.size(), 1u) << same.messages;
    std::filesystem::copy(place / name, place / (name + "-moved"), std::filesystem::copy_options::recursive);
    write_text_file(file, sample_text().substr(100, 500));
    const std::string set = concat("'", file, "', the validation set", named ? " 'far'" : "", ", has changed since '");
    const std::string message = error_of([&] { train(run({"resume=auto"}), refused); });
    EXPECT_TRUE(message.starts_with(set)) << message;
    EXPECT_TRUE(message.ends_with("; data.allow_changes=true goes on with it")) << message;
    EXPECT_EQ(refused.losses.size(), 0u);
    // Asked for by another name it may be another one.
    train(run({"resume=auto", concat("run=", place / (name + "-moved")),
               named ? concat("data.sets=[{name: far, path: ", file, "}]") : concat("data.validation_path=", other)}),
          moved);
    EXPECT_EQ(moved.messages.find("has changed since"), std::string::npos) << moved.messages;
    train(run({"resume=auto", "data.allow_changes=true"}), allowed);
    EXPECT_NE(allowed.messages.find(set), std::string::npos) << allowed.messages;
    EXPECT_EQ(allowed.messages.find("has changed since"), allowed.messages.rfind("has changed since"));
    EXPECT_EQ(allowed.losses.size(), 5u);
  }
}

// It has changed with them, and that is said once.
TEST(ChangedData, OfWhichAPartIsValidatedOnIsToldOnce) {
  const TemporaryFolder place;
  Recorder first(6), allowed;
  train(small_run(place, "run"), first);
  std::string changed = sample_text();
  std::swap(changed[changed.size() - 20], changed[changed.size() - 19]);
  ASSERT_NE(changed, sample_text());
  write_text_file(place / "text.txt", changed);
  train(small_run(place, "run", {"resume=auto", "data.allow_changes=true"}), allowed);
  const std::size_t told = allowed.messages.find("has changed since");
  EXPECT_NE(told, std::string::npos);
  EXPECT_EQ(told, allowed.messages.rfind("has changed since")) << allowed.messages;
}

}  // namespace
}  // namespace keel
