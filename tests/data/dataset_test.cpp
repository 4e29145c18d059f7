#include "keel/data/dataset.h"

#include <gtest/gtest.h>

#include "tests/data/list_dataset.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;

Example example_of_all_types() {
  Example example;
  example.set("age", 41).set("height", 1.5).set("name", "Ann").set("pixels", Numbers{{2}, {0, 1}});
  return example.set("ids", Integers{{1, 3}, {5, 6, 7}});
}

TEST(Example, ReturnsWhatWasSetInItsOrder) {
  const Example example = example_of_all_types();
  EXPECT_EQ(example.integer("age"), 41);
  EXPECT_EQ(example.number("age"), 41);
  EXPECT_EQ(example.number("height"), 1.5);
  EXPECT_EQ(example.text("name"), "Ann");
  EXPECT_EQ(std::get<Numbers>(example["pixels"]).values, (std::vector<float>{0, 1}));
  EXPECT_EQ(example.fields()[4].first, "ids");
  EXPECT_EQ(example.find("none"), nullptr);
  EXPECT_TRUE(example.has("ids"));
  EXPECT_EQ(example, Example(example.fields()));
}

TEST(Example, ListsItsFieldsWhereOneIsMissingOrOfAnotherKind) {
  const std::string list =
      "; it has age (a whole number), height (a number), name (a text), pixels (numbers (2)), ids (whole numbers (1, "
      "3))";
  const Example example = example_of_all_types();
  EXPECT_EQ(error_of([&] { (void)example["nme"]; }), "the example has no field 'nme'; did you mean 'name'?" + list);
  EXPECT_EQ(error_of([&] { (void)example.integer("height"); }),
            "field 'height' of the example is a number, not a whole number" + list);
  EXPECT_EQ(error_of([&] { (void)example.number("pixels"); }),
            "field 'pixels' of the example is numbers (2), not a number" + list);
  EXPECT_EQ(error_of([&] { (void)example.text("age"); }),
            "field 'age' of the example is a whole number, not a text" + list);
  EXPECT_EQ(error_of([&] { example_of_all_types().set("age", 1); }), "the example has a field 'age' already");
  EXPECT_EQ(error_of([] { (void)Example().number("x"); }), "the example has no field 'x'");
}

TEST(Dataset, GivesSeveralExamplesAsItGivesEach) {
  const DatasetPtr data = testing::numbered(9);
  const std::vector<std::int64_t> wanted = {3, 8, 3, 0};
  const std::vector<Example> examples = data->examples(wanted);
  ASSERT_EQ(examples.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(examples[i], data->example(wanted[i]));
  EXPECT_EQ(error_of([&] { (void)data->example(9); }), "example 9 is outside the data set's 9");
  EXPECT_NE(error_of([&] { (void)data->example(-1); }), "");
}

}  // namespace
}  // namespace keel
