// Rows of documents without targets.

#include "keel/data/document_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/data/list_dataset.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;
using testing::ListDataset;

const std::vector<std::int64_t>& numbers(const Example& example, const char* field) {
  return std::get<Integers>(example[field]).values;
}

// Documents of these lengths: tokens count through all of them, and `own` is the number of the document.
DatasetPtr documents_of_lengths(const std::vector<std::int64_t>& lengths) {
  std::vector<Example> documents;
  std::int64_t next = 0;
  for (const std::int64_t length : lengths) {
    Integers ids{{length}, {}}, own{{length}, std::vector(static_cast<std::size_t>(length), std::ssize(documents))};
    for (std::int64_t i = 0; i < length; ++i) ids.values.push_back(next++);
    documents.push_back(Example().set("input_ids", ids).set("own", own));
  }
  return std::make_shared<ListDataset>(std::move(documents));
}

TEST(DocumentRows, JoinedHaveEachTokenOnceInOrder) {
  const std::vector<std::int64_t> lengths = {0, 3, 0, 17, 1, 1, 0, 0, 5, 8, 0};
  for (const std::int64_t length : {1, 4, 5, 7, 35, 100}) {
    const DatasetPtr rows =
        joined_documents(documents_of_lengths(lengths), {.length = length, .fields = {"input_ids", "own"}});
    EXPECT_EQ(rows->size(), (35 + length - 1) / length);
    std::int64_t next = 0;
    for (std::int64_t i = 0; i < rows->size(); ++i) {
      const Example row = rows->example(i);
      EXPECT_EQ(std::ssize(numbers(row, "input_ids")), rows->length(i));
      for (std::size_t at = 0; at < numbers(row, "input_ids").size(); ++at, ++next) {
        ASSERT_EQ(numbers(row, "input_ids")[at], next);
        const std::int64_t own = next < 3 ? 1 : next < 20 ? 3 : next < 21 ? 4 : next < 22 ? 5 : next < 27 ? 8 : 9;
        ASSERT_EQ(numbers(row, "own")[at], own);
      }
    }
    EXPECT_EQ(next, 35);
    const std::vector<std::int64_t> some = {rows->size() - 1, 0, rows->size() - 1};
    const std::vector<Example> together = rows->examples(some);
    for (std::size_t i = 0; i < some.size(); ++i) EXPECT_EQ(together[i], rows->example(some[i]));
  }
}

TEST(DocumentRows, CutHaveOneDocumentEach) {
  const DatasetPtr rows =
      cut_documents(documents_of_lengths({0, 3, 17, 5}), {.length = 5, .fields = {"input_ids", "own"}});
  ASSERT_EQ(rows->size(), 1 + 4 + 1);
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < rows->size(); ++i) {
    const Example row = rows->example(i);
    EXPECT_LE(std::ssize(numbers(row, "input_ids")), 5);
    EXPECT_EQ(std::ranges::count(numbers(row, "own"), numbers(row, "own").front()), std::ssize(numbers(row, "own")));
    for (const std::int64_t token : numbers(row, "input_ids")) EXPECT_EQ(token, next++);
  }
  EXPECT_EQ(next, 25);
}

TEST(DocumentRows, OfTokensAreCutLikewise) {
  std::vector<std::uint32_t> values(11);
  for (std::uint32_t i = 0; i < 11; ++i) values[i] = i;
  const DatasetPtr rows = cut_tokens(Tokens(values, 20, "these"), 4, "these");
  ASSERT_EQ(rows->size(), 3);
  EXPECT_EQ(numbers(rows->example(2), "input_ids"), (std::vector<std::int64_t>{8, 9, 10}));
  EXPECT_EQ(rows->length(2), 3);
  EXPECT_NE(cut_tokens(Tokens(values, 20, "these"), 5, "these")->fingerprint(), rows->fingerprint());
}

TEST(DocumentRows, RefuseWhatHasNoRows) {
  const DatasetPtr documents = documents_of_lengths({3});
  EXPECT_NE(error_of([&] { joined_documents(documents, {}); }).find("a row has at least 1 token, not 0"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              cut_documents(testing::numbered(2), {.length = 2, .fields = {"text"}});
            }).find("field 'text' is a text; rows are cut from sequences of whole numbers"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              joined_documents(testing::numbered(8), {.length = 2, .fields = {"ids", "x"}});
            }).find("field 'x' is a whole number"),
            std::string::npos);
}

// Documents of other lengths once they were counted.
class Changing final : public testing::ListDataset {
 public:
  using ListDataset::ListDataset;
  Example example(std::int64_t i) const override {
    Example found = ListDataset::example(i);
    if (!has_changed || i != 2) return found;
    auto [shape, values] = std::get<Integers>(found["input_ids"]);
    ++shape[0];
    values.push_back(0);
    return Example().set("input_ids", Integers{shape, values});
  }
  mutable bool has_changed = false;
};

TEST(DocumentRows, TellOfADocumentThatHasChangedSinceItWasCounted) {
  std::vector<Example> documents;
  for (const std::int64_t length : {4, 1, 3})
    documents.push_back(
        Example().set("input_ids", Integers{{length}, std::vector<std::int64_t>(static_cast<std::size_t>(length), 7)}));
  const auto changing = std::make_shared<const Changing>(documents);
  const DatasetPtr rows = joined_documents(changing, {.length = 4});
  changing->has_changed = true;
  EXPECT_EQ(error_of([&] { rows->example(0); }), "") << "has another document";
  EXPECT_EQ(error_of([&] { rows->example(1); }),
            "example 2 has 4 tokens, and had 3 when the rows were counted; a data set must not change");
}

TEST(DocumentRows, OfOneTokenAreTheShortest) {
  const DatasetPtr documents = documents_of_lengths({0, 2, 0, 1});
  const Tokens tokens(std::vector<std::uint32_t>{0, 1, 2}, 20, "these");
  for (const DatasetPtr& rows : {joined_documents(documents, {.length = 1}), cut_documents(documents, {.length = 1}),
                                 cut_tokens(tokens, 1, "these")}) {
    ASSERT_EQ(rows->size(), 3);
    for (std::int64_t i = 0; i < 3; ++i)
      EXPECT_EQ(numbers(rows->example(i), "input_ids"), (std::vector<std::int64_t>{i}));
  }
  const std::string refusal = "a row has at least 1 token, not 0";
  EXPECT_EQ(error_of([&] { joined_documents(documents, {.length = 0}); }), refusal);
  EXPECT_EQ(error_of([&] { cut_documents(documents, {.length = 0}); }), refusal);
  EXPECT_EQ(error_of([&] { cut_tokens(tokens, 0, "these"); }), refusal);
  EXPECT_NE(error_of([&] { joined_documents(documents, {.length = 1, .fields = {}}); }), "");
  EXPECT_NE(error_of([&] { joined_documents(nullptr, {.length = 1}); }), "");
}

}  // namespace
}  // namespace keel
