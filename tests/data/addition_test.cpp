#include "keel/data/addition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "keel/data/draws.h"
#include "keel/data/token_batch.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;

TEST(Addition, WritesTheSumLastDigitFirst) {
  const AdditionTask task;
  EXPECT_EQ(task.prompt({347, 586}), "347+586=");
  EXPECT_EQ(task.answer({347, 586}), "3390\n");
  EXPECT_EQ(task.prompt({7, 0}), "007+000=");
  EXPECT_EQ(task.answer({999, 999}), "8991\n");
  EXPECT_EQ(AdditionTask(1).answer({5, 4}), "90\n");
  EXPECT_EQ(AdditionTask(9).prompt({999999999, 1}), "999999999+000000001=");
  EXPECT_FALSE(error_of([&] { task.prompt({1000, 1}); }).empty());
  EXPECT_FALSE(error_of([&] { task.prompt({1, -1}); }).empty());
  EXPECT_FALSE(error_of([] { AdditionTask(0); }).empty());
  EXPECT_FALSE(error_of([] { AdditionTask(10); }).empty());
}

TEST(Addition, ReadsBackPromptsAndAnswers) {
  for (const int digits : {1, 3, 9}) {
    const AdditionTask task(digits);
    for (std::int64_t step = 0; step < 100; ++step) {
      const Addends pair = task.training_pair(1, step, 0);
      EXPECT_EQ(task.parse_prompt(task.prompt(pair)), pair);
      EXPECT_EQ(task.parse_answer(task.answer(pair)), pair.first + pair.second);
    }
  }
  const AdditionTask task;
  EXPECT_EQ(task.parse_prompt(" 47 + 5"), (Addends{47, 5}));
  EXPECT_EQ(task.parse_answer("3390"), 933);
  EXPECT_EQ(task.parse_answer("3390\n347+"), 933);
  for (const std::string_view bad : {"", "339\n", "33900\n", "33x0\n", "\n", "-390"})
    EXPECT_FALSE(task.parse_answer(bad)) << bad;
  for (const std::string_view bad :
       {"", "347", "347+", "+347=", "1000+1=", "3a+4=", "1+2+3=", "1-2=", "1+2==", "-1+2="})
    EXPECT_NE(error_of([&] { task.parse_prompt(bad); }).find("such as 333+007="), std::string::npos) << bad;
}

TEST(Addition, LearnsTheAnswerAlone) {
  const AdditionTask task;
  const TokenExample example = task.example({347, 586});
  const std::vector<std::uint32_t> tokens(example.tokens.begin(), example.tokens.end());
  EXPECT_EQ(task.tokenizer()->decode(tokens), "347+586=3390\n");
  EXPECT_EQ(example.learnt, (std::vector<std::uint8_t>{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(static_cast<std::int64_t>(tokens.size()), task.block() + 1);
  const Batch batch = task.training_loader(testing::context(), 6, 1).load_all(0);
  EXPECT_EQ(batch[kInputIds].shape(), (Dims{6, 12}));
  EXPECT_EQ(batch.weight(kTokenWeight), 6 * 5);
}

TEST(Addition, HoldsOutOnePairInElevenInEitherOrder) {
  int held_out = 0;
  for (std::int64_t a = 0; a < 1000; ++a) {
    for (std::int64_t b = 0; b < 1000; ++b) {
      held_out += AdditionTask::held_out({a, b});
      ASSERT_EQ(AdditionTask::held_out({a, b}), AdditionTask::held_out({b, a}));
    }
  }
  EXPECT_NEAR(held_out / 1e6, 1.0 / 11, 0.002);
  EXPECT_EQ(static_cast<int>(AdditionTask().held_out_pairs(1'000'000).size()), held_out);
  EXPECT_TRUE(AdditionTask::held_out({999, 999}));  // the sum of README's picture (scripts/draw-run)
}

TEST(Addition, NeverTrainsOnAHeldOutPair) {
  for (const int digits : {1, 2, 3}) {
    const AdditionTask task(digits);
    const std::vector<Addends> list = task.held_out_pairs(1'000'000);
    ASSERT_FALSE(list.empty());
    std::set<std::pair<std::int64_t, std::int64_t>> held_out;
    for (const Addends& pair : list) held_out.insert({pair.first, pair.second});
    EXPECT_EQ(held_out.size(), list.size());
    std::set<std::pair<std::int64_t, std::int64_t>> trained;
    for (std::int64_t step = 0; step < 300; ++step) {
      for (std::int64_t row = 0; row < 200; ++row) {
        const Addends pair = task.training_pair(5, step, row);
        ASSERT_FALSE(held_out.contains({pair.first, pair.second}));
        trained.insert({pair.first, pair.second});
      }
    }
    // Everything else is drawn, where there is little of it.
    const std::size_t drawn = trained.size() + held_out.size();
    EXPECT_EQ(drawn, digits == 1 ? 100u : drawn);
    EXPECT_GT(drawn, digits == 2 ? 9900u : 99u);
  }
}

TEST(Addition, TrainsOnTheFirstDrawThatIsNotHeldOut) {
  const AdditionTask task;
  const PhiloxKey key = key_of(5, "addition");
  for (std::int64_t row = 0; row < 200; ++row) {
    Addends pair;
    for (std::uint32_t attempt = 0; attempt == 0 || AdditionTask::held_out(pair); ++attempt) {
      const std::int64_t drawn = draw_below(1'000'000, key, 7, row, attempt);
      pair = {drawn / 1000, drawn % 1000};
    }
    EXPECT_EQ(task.training_pair(5, 7, row), pair);
  }
}

TEST(Addition, DrawsEveryDigitEquallyOften) {
  const AdditionTask task;
  int counts[10] = {};
  for (std::int64_t row = 0; row < 50000; ++row) ++counts[task.training_pair(1, 0, row).first / 100];
  for (const int count : counts) EXPECT_NEAR(count, 5000, 400);
}

TEST(Addition, IsTheSameEveryTime) {
  const AdditionTask task, again;
  EXPECT_EQ(task.training_pair(1, 2, 3), again.training_pair(1, 2, 3));
  EXPECT_NE(task.training_pair(1, 2, 3), task.training_pair(2, 2, 3));
  const std::vector<Addends> few = task.held_out_pairs(10), more = again.held_out_pairs(100);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), more.begin()));
  const Context context = testing::context();
  EXPECT_NE(error_of([&] { task.held_out_loader(context, 8, 0); }).find("no held-out pairs of 3-digit numbers"),
            std::string::npos);
  const ExampleLoader loader = task.held_out_loader(context, 8, 20);
  EXPECT_EQ(loader.steps(), 3);
  EXPECT_EQ(loader.rows(2), 4);
  const auto tokens = loader.load_all(0)[kInputIds].to_vector<std::int32_t>();
  EXPECT_EQ(task.tokenizer()->decode(std::vector<std::uint32_t>(tokens.begin(), tokens.begin() + 8)),
            task.prompt(more[0]));
  const auto later = loader.load(2, {3, 4})[kInputIds].to_vector<std::int32_t>();
  EXPECT_EQ(task.tokenizer()->decode(std::vector<std::uint32_t>(later.begin(), later.begin() + 8)),
            task.prompt(more[19]));
  EXPECT_EQ(doubles(loader.load(1, {0, 2})[kInputIds]),
            doubles(task.held_out_loader(context, 8, 500).load(1, {0, 2})[kInputIds]));
}

}  // namespace
}  // namespace keel
