// What texts with labels become: tokens, types, lengths and labels of batches.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "keel/data/jsonl.h"
#include "keel/tasks/class_labels.h"
#include "keel/tasks/metrics/values.h"
#include "keel/tasks/word_tokens.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "tests/error_of.h"
#include "tests/tasks/label_tasks.h"

namespace keel {
namespace {

using testing::error_of;
using testing::GivenKeys;
using testing::label_task;
using testing::TemporaryFolder;

using Whole = std::vector<std::int64_t>;

// A row of a batch, up to its length; found by its example.
Whole row_of(const Batch& batch, std::string_view field, std::int64_t example) {
  const auto row = std::ranges::find(batch.examples(), example) - batch.examples().begin();
  const Whole all = whole_values(batch[field]);
  const std::int64_t time = batch[field].dim(1), length = whole_values(batch["lengths"])[static_cast<std::size_t>(row)];
  const auto begin = all.begin() + row * time;
  return {begin, begin + length};
}

std::int64_t label_of(const Batch& batch, std::int64_t example) {
  const auto row = std::ranges::find(batch.examples(), example) - batch.examples().begin();
  return whole_values(batch["labels"])[static_cast<std::size_t>(row)];
}

class LabelData : public ::testing::Test {
 protected:
  LabelData() { testing::write_word_pieces(place_); }

  Batch batch_of(std::string_view task, const std::string& file, const std::string& text, GivenKeys given = {}) {
    write_text_file(place_ / file, text);
    given.emplace_back("data.path", place_ / file);
    tasks_.push_back(label_task(place_, task, std::move(given)));
    data_ = tasks_.back()->data();
    return data_.training->load_all(0);
  }
  std::string refused(std::string_view task, const std::string& file, const std::string& text, GivenKeys given = {}) {
    const std::string message = error_of([&] { (void)batch_of(task, file, text, std::move(given)); });
    const std::string folder = place_ / "";
    return message.find(folder) == std::string::npos ? message
                                                     : std::string(message).erase(message.find(folder), folder.size());
  }

  TemporaryFolder place_;
  std::vector<std::unique_ptr<TaskBase>> tasks_;
  Data data_;
};

constexpr std::string_view kSequence = "sequence_classification", kToken = "token_classification";

TEST_F(LabelData, ATextHasItsSpecialTokensAndTheNumberOfItsClass) {
  const Batch batch = batch_of(kSequence, "t.csv", "label,text\npos,good films\nneg,bad\npos,\"a good, good film\"\n");
  EXPECT_EQ(row_of(batch, "input_ids", 0), (Whole{2, 4, 6, 7, 3}));
  EXPECT_EQ(row_of(batch, "input_ids", 1), (Whole{2, 5, 3}));
  EXPECT_EQ(batch["input_ids"].shape(), (Dims{3, 7}));
  EXPECT_EQ(batch["token_types"].shape(), (Dims{3, 7}));
  EXPECT_EQ(label_of(batch, 0), 1);
  EXPECT_EQ(label_of(batch, 1), 0) << "neg stands before pos";
  EXPECT_EQ(batch.weight("rows"), 3);
  EXPECT_EQ(batch.weight("tokens"), 5 + 3 + 7);
  EXPECT_EQ(data_.note, "2 classes: neg, pos");
  const auto config = std::ranges::find(data_.derived, "config.json", &std::pair<std::string, std::string>::first);
  ASSERT_NE(config, data_.derived.end());
  const Json json = Json::parse(config->second);
  EXPECT_EQ(json.at("id2label").at("0").string(), "neg");
  EXPECT_EQ(json.at("label2id").at("pos").integer(), 1);
  EXPECT_EQ(json.at("architectures").items().front().string(), "BertForSequenceClassification");
}

TEST_F(LabelData, AFileWithoutAHeaderHasColumnsByNumberAndQuotesOfTabsAreCharacters) {
  const std::string lines = "good \" film\t10\nbad\t9\n\"what\t9\n";
  const Batch batch =
      batch_of(kSequence, "sentiment", lines,
               {{"data.format", "tsv"}, {"data.header", "false"}, {"data.text", "[\"0\"]"}, {"data.label", "[\"1\"]"}});
  EXPECT_EQ(row_of(batch, "input_ids", 0), (Whole{2, 4, 10, 6, 3}));
  EXPECT_EQ(row_of(batch, "input_ids", 2), (Whole{2, 10, 8, 3}));
  EXPECT_EQ(label_of(batch, 0), 1) << "classes that are whole numbers are in the order of their size";
  EXPECT_EQ(data_.note, "2 classes: 9, 10");
}

TEST_F(LabelData, APairHasTypesAndIsCutWhereItIsAskedFor) {
  const std::string lines =
      "{\"q\": \"what film ?\", \"a\": \"a good good good\", \"label\": 0}\n{\"q\": \"a\", \"a\": \"bad\", \"label\": "
      "true}\n";
  const auto first = [&](const char* truncation) {
    const Batch batch =
        batch_of(kSequence, "t.jsonl", lines, {{"data.text", "[q, a]"}, {"data.truncation", truncation}});
    EXPECT_EQ(row_of(batch, "input_ids", 1), (Whole{2, 9, 3, 5, 3}));
    EXPECT_EQ(row_of(batch, "token_types", 1), (Whole{0, 0, 0, 1, 1}));
    return row_of(batch, "input_ids", 0);
  };
  EXPECT_EQ(first("only_second"), (Whole{2, 8, 6, 11, 3, 9, 4, 3}));
  EXPECT_EQ(first("only_first"), (Whole{2, 8, 3, 9, 4, 4, 4, 3}));
  EXPECT_EQ(first("longest_first").size(), 8u);
  const std::string whole =
      refused(kSequence, "t.jsonl", lines, {{"data.text", "[q, a]"}, {"data.truncation", "none"}});
  EXPECT_EQ(whole,
            "'t.jsonl', line 1: the text has 10 tokens, more than the 8 of model.block; make it larger, or let "
            "data.truncation cut texts");
}

TEST_F(LabelData, BatchesAreFilledUpToAMultiple) {
  const std::string table = "text,label\ngood,a\nbad,b\n";
  EXPECT_EQ(batch_of(kSequence, "t.csv", table)["input_ids"].dim(1), 3);
  EXPECT_EQ(batch_of(kSequence, "t.csv", table, {{"data.pad_multiple", "4"}})["input_ids"].dim(1), 4);
  EXPECT_NE(refused(kSequence, "t.csv", table, {{"data.pad_multiple", "3"}}).find("does not divide the longest"),
            std::string::npos);
}

TEST_F(LabelData, ListsAndObjectsAreNoTexts) {
  const std::string text =
      refused(kSequence, "t.jsonl",
              "{\"text\": \"good\", \"label\": \"a\"}\n{\"text\": [\"good\", \"film\"], \"label\": \"b\"}\n");
  EXPECT_TRUE(
      text.starts_with("'t.jsonl', line 2: field 'text' of the example is a list, [\"good\", \"film\"], not a text"))
      << text;
  const std::string words = refused(kToken, "t.jsonl",
                                    "{\"words\": [\"good\"], \"labels\": [\"x\"]}\n"
                                    "{\"words\": [\"good\", 5], \"labels\": [\"x\", \"y\"]}\n");
  EXPECT_TRUE(words.starts_with("'t.jsonl', line 2: 'words' is [\"good\", 5]; a list of texts alone")) << words;
}

TEST_F(LabelData, ALineWithoutATextBeforeOthersIsNamed) {
  EXPECT_EQ(refused(kSequence, "t.tsv", "text\tlabel\ngood\ta\n\nbad\tb\n").substr(0, 40),
            "'t.tsv', line 3: the line is empty, and ");
}

TEST_F(LabelData, RowsOfAStepHaveLikeLengthsWhereTheyAreAskedFor) {
  std::string table = "text,label\n";
  for (int i = 0; i < 32; ++i) {
    std::string text = "good";
    for (int word = 0; word < i % 4; ++word) text += " film";
    table += concat(text, ',', i % 2, '\n');
  }
  (void)batch_of(kSequence, "t.csv", table, {{"data.group_by_length", "true"}});
  std::int64_t padding = 0;
  for (std::int64_t step = 0; step < 4; ++step) {
    const Batch batch = data_.training->load_all(step);
    padding += static_cast<std::int64_t>(batch.weight(kPositionWeight) - batch.weight("tokens"));
  }
  EXPECT_EQ(padding, 0) << "eight rows of each of four lengths";
}

TEST_F(LabelData, NumbersOfARegressionAreThoseOfTheColumns) {
  const Batch batch = batch_of(kSequence, "t.csv", "text,x,y\ngood,0.5,2\nbad,-1,3\n",
                               {{"task.problem", "regression"}, {"data.label", "[x, y]"}});
  EXPECT_EQ(batch["labels"].shape(), (Dims{2, 2}));
  std::vector<float> numbers = batch["labels"].to_vector<float>();
  std::ranges::sort(numbers);
  EXPECT_EQ(numbers, (std::vector<float>{-1, 0.5, 2, 3}));
}

TEST_F(LabelData, AWordsFirstTokenHasItsLabelAndNoOtherTokenHas) {
  const std::string lines =
      "{\"words\": [\"films\", \"a\", \"good\"], \"labels\": [\"N\", \"D\", \"A\"]}\n{\"words\": \"bad film\", "
      "\"labels\": \"A N\"}\n"
      "{\"words\": [\"good\", \"films\", \"films\", \"films\"], \"labels\": [\"A\", \"N\", \"N\", \"N\"]}\n";
  const Batch batch = batch_of(kToken, "t.jsonl", lines);
  EXPECT_EQ(row_of(batch, "input_ids", 0), (Whole{2, 6, 7, 9, 4, 3}));
  EXPECT_EQ(row_of(batch, "labels", 0), (Whole{-100, 2, -100, 1, 0, -100}));
  EXPECT_EQ(row_of(batch, "labels", 1), (Whole{-100, 0, 2, -100}));
  EXPECT_EQ(row_of(batch, "labels", 2), (Whole{-100, 0, 2, -100, 2, -100, 2, -100})) << "the last word is cut in two";
  EXPECT_EQ(batch.weight("labels"), 3 + 2 + 4);
  const Whole all = whole_values(batch["labels"]);
  EXPECT_EQ(std::ranges::count(all, -100), static_cast<std::ptrdiff_t>(all.size()) - 9) << "padding has no label";
}

TEST_F(LabelData, LabelsOfWordsMayBeNumbersAndCellsOfATable) {
  const Batch numbers =
      batch_of(kToken, "t.jsonl",
               "{\"words\": [\"a\", \"film\"], \"labels\": [1, 0]}\n{\"words\": [\"bad\"], \"labels\": [2]}\n");
  EXPECT_EQ(row_of(numbers, "labels", 0), (Whole{-100, 1, 0, -100}));
  const Batch cells = batch_of(kToken, "t.csv", "words,labels\na film,D N\nbad,A\n");
  EXPECT_EQ(row_of(cells, "labels", 0), (Whole{-100, 1, 2, -100}));
}

TEST_F(LabelData, TokensOfBytesAndCharactersNeedNoFile) {
  const std::string table = "text,label\nab,x\nba,y\n";
  const Batch bytes = batch_of(kSequence, "t.csv", table, {{"data.tokenizer", "byte"}});
  EXPECT_EQ(row_of(bytes, "input_ids", 0), (Whole{'a', 'b'}));
  const Batch characters =
      batch_of(kToken, "t.csv", "words,labels\nab c,x y\nd,y\n", {{"data.tokenizer", "character"}});
  EXPECT_EQ(row_of(characters, "labels", 0), (Whole{0, -100, -100, 1})) << "a space is of no word";
}

TEST_F(LabelData, WhatDoesNotFitIsToldWithFileAndLine) {
  EXPECT_EQ(refused(kSequence, "t.csv", "text,label\ngood,a\nbad,b\n , a\n"),
            "'t.csv', line 4: the text 'text' is empty");
  EXPECT_EQ(refused(kSequence, "t.csv", "text,label\ngood,a\nbad,\n"), "'t.csv', line 3: the label 'label' is empty");
  EXPECT_NE(refused(kSequence, "t.csv", "words,label\ngood,a\n").find("'t.csv'"), std::string::npos);
  EXPECT_NE(refused(kSequence, "t.csv", "words,label\ngood,a\n").find("'text'"), std::string::npos);
  const std::string no_label =
      refused(kSequence, "t.jsonl", "{\"text\": \"good\", \"label\": 1}\n{\"text\": \"bad\"}\n");
  EXPECT_TRUE(no_label.starts_with("'t.jsonl', line 2: ")) << no_label;
  EXPECT_NE(no_label.find("label"), std::string::npos) << no_label;
  EXPECT_EQ(refused(kSequence, "t.csv", "text,label\ngood,a\nbad,a\n"),
            "'t.csv': there is one class alone, 'a', and nothing is to be learnt");
  EXPECT_EQ(refused(kSequence, "t.csv", "text,label\ngood,a\nbad,c\n", {{"task.classes", "[b, a]"}}),
            "'t.csv', line 3: the label 'c' is none of the 2 classes that are learnt: b, a; add such examples to "
            "data.path, name it in task.classes, or remove this one");
  EXPECT_EQ(refused(kToken, "t.jsonl", "{\"words\": [\"a\", \"film\"], \"labels\": [\"D\"]}\n"),
            "'t.jsonl', line 1: there are 2 words and 1 labels in 'labels'; each word has one");
  const std::string other = place_ / "other.csv";
  write_text_file(other, "text,label\ngood,a\nbad,z\n");
  EXPECT_EQ(refused(kSequence, "t.csv", "text,label\ngood,a\nbad,b\n", {{"data.validation_path", other}}),
            "'other.csv', line 3: the label 'z' is none of the 2 classes that are learnt: a, b; add such examples to "
            "data.path, name it in task.classes, or remove this one");
  EXPECT_NE(refused(kSequence, "t.txt", "good\n").find("data.format says what it is"), std::string::npos);
}

TEST_F(LabelData, AFileIsOfNoOtherKindThanItsNameSays) {
  const std::string table = "text,label\ngood,a\nbad,b\n", tabs = "text\tlabel\ngood\ta\nbad\tb\n",
                    lines = "{\"text\": \"good\", \"label\": \"a\"}\n{\"text\": \"bad\", \"label\": \"b\"}\n";
  const auto expect = [&](const char* file, const std::string& text, const char* format, std::string_view what) {
    const std::string message = refused(kSequence, file, text, {{"data.format", format}});
    EXPECT_EQ(message, what.empty() ? std::string()
                                    : concat("'", file, "' is ", what,
                                             " by its name or its first bytes, and "
                                             "data.format=",
                                             format,
                                             " says otherwise; leave data.format out, or give the file a name of its "
                                             "kind"));
  };
  expect("t.csv", table, "csv", "");
  expect("t.txt", table, "csv", "");
  expect("t.txt", lines, "jsonl", "");
  expect("t.jsonl", lines, "jsonl", "");
  expect("t.csv", tabs, "tsv", "");  // of tables the key counts
  expect("t.tsv", table, "csv", "");
  expect("t.csv", table, "jsonl", "a table");
  expect("t.tsv", tabs, "columns", "a table");
  expect("t.jsonl", lines, "csv", "JSON lines");
  expect("t.jsonl", lines, "columns", "JSON lines");
  EXPECT_NE(refused(kSequence, "t.csv", table, {{"data.format", "csv"}, {"data.validation_path", place_ / "t.jsonl"}})
                .find("says otherwise"),
            std::string::npos);
  // A pattern has the name of its file.
  write_text_file(place_ / "only.tsv", tabs);
  const auto by_pattern = label_task(place_, kSequence, {{"data.path", place_ / "onl*"}});
  EXPECT_EQ(by_pattern->data().note, "2 classes: a, b");
  // What is to be predicted is what it is.
  write_text_file(place_ / "t.txt", table);
  const auto task = label_task(place_, kSequence, {{"data.path", place_ / "t.txt"}, {"data.format", "csv"}});
  (void)task->data();
  EXPECT_EQ(task->prediction_data(place_ / "t.jsonl")->rows(0), 2);
}

TEST_F(LabelData, KeysThatDoNotFitTogetherAreToldBeforeAnythingIsRead) {
  const std::string table = "text,label\ngood,a\nbad,b\n";
  EXPECT_NE(refused(kSequence, "t.csv", table, {{"data.truncation", "only_second"}}).find("there is one text"),
            std::string::npos);
  EXPECT_NE(refused(kSequence, "t.csv", table, {{"data.text", "[a, b, c]"}}).find("names 3 columns"),
            std::string::npos);
  EXPECT_NE(refused(kSequence, "t.csv", table, {{"data.label", "[label, text]"}}).find("names several columns"),
            std::string::npos);
  EXPECT_NE(refused(kSequence, "t.csv", table, {{"data.tokenizer", "model"}}).find("there is no model.from"),
            std::string::npos);
  EXPECT_NE(refused(kSequence, "t.csv", table, {{"task.classes", "[a, a]"}}).find("the class 'a' is there twice"),
            std::string::npos);
  EXPECT_NE(refused(kSequence, "t.csv", table, {{"task.metrics", "[r2]"}}).find("task.metrics"), std::string::npos);
  EXPECT_EQ(refused(kSequence, "t.csv", table, {{"task.class_weights", "[1, 2, 3]"}}),
            "task.class_weights has 3 numbers, and there are 2 classes: a, b");
  EXPECT_NE(refused(kToken, "t.csv", table, {{"data.text", "[text, label]"}}).find("words are in one"),
            std::string::npos);
}

TEST_F(LabelData, AWordOfSeveralTokensAndATokenOfSeveralWords) {
  const TokenizerPtr bytes = find_tokenizer("byte", "");
  const std::vector<std::string> words = {"ab", "\xff", "c"};
  const WordTokens made = encoded_words(*bytes, words, {.length = 100});
  EXPECT_EQ(made.first_of, (Whole{0, kNoWord, kNoWord, 1, kNoWord, kNoWord, kNoWord, 2})) << "U+FFFD has three bytes";
  EXPECT_EQ(encoded_words(*bytes, words, {.length = 2}).first_of, (Whole{0, kNoWord}));
}

}  // namespace
}  // namespace keel
