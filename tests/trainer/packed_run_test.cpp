// Runs on documents that share rows, and on mixtures of sources.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "keel/data/tokenize_files.h"
#include "keel/runtime/context.h"
#include "keel/runtime/file.h"
#include "keel/tokenizers/plain_tokenizers.h"
#include "tests/error_of.h"
#include "tests/trainer/run_laws.h"

namespace keel {
namespace {

using namespace testing;

// 90 objects of different lengths, and 200 lines.
void write_sources(const TemporaryFolder& place) {
  std::string objects;
  for (int i = 0; i < 90; ++i) objects += concat("{\"text\": \"", std::string(1 + i * i % 29, 'a' + i % 7), "\"}\n");
  write_text_file(place / "a.jsonl", objects);
  write_text_file(place / "b.txt", sample_text());
}

Config packed_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  more.insert(more.begin(), concat("run=", place / run));
  more.insert(more.begin(),
              concat("data.mixture=[{path: ", place / "a.jsonl", ", weight: 3}, {path: ", place / "b.txt", "}]"));
  return parse_config(R"(
steps: 7
model: {layers: 1, heads: 2, width: 16, block: 32, dropout: 0.1}
data: {type: mixture, packing: true}
batch: {global: 6, micro: 2}
optimizer: {lr: 1e-2}
eval: {every: 3}
checkpoint: {every: 3}
log: {every: 1}
threads: 1
)",
                      "packed.yaml", more);
}

TEST(PackedRun, HasTheSameBitsInEveryStageAndAfterAResumeInAnotherOne) {
  for (const char* packing : {"data.packing=true", "data.packing=false"})
    for (const int n : {1, 2, 3, 4}) {
      SCOPED_TRACE(packing);
      const TemporaryFolder place;
      write_sources(place);
      expect_same_bits_in_every_stage(n, 4, [&](const std::string& name, std::vector<std::string> more) {
        more.emplace_back(packing);
        return packed_run(place, name, std::move(more));
      });
    }
}

// The folder that `keel tokenize` writes, alone and in a mixture, has the rows of the texts that it is made of.
TEST(PackedRun, OfShardsIsThatOfTheDocumentsInThem) {
  const TemporaryFolder place;
  std::string with_end;
  for (int i = 0; i < 90; ++i) with_end += std::string(1 + i * i % 29, 'a' + i % 7) + "|\n";
  std::string lines;
  for (const char c : with_end)
    if (c != '|') lines += c;
  write_text_file(place / "lines.txt", lines);
  write_text_file(place / "ended.txt", with_end);
  std::filesystem::create_directory(place / "shards");
  const auto tokenizer = ByteTokenizer();
  TokenizeOptions tokenize{.files = {place / "lines.txt"}, .out = place / "shards/x.bin", .shard_tokens = 300};
  tokenize.documents = Documents::line;
  tokenize.end_of_document = '|';
  tokenize_files(Context::create({.threads = 1}), tokenizer, tokenize);
  write_text_file(place / "shards/tokenizer.json", tokenizer.to_json());
  const auto weights = [&](const std::string& name, const std::vector<std::string>& sources) {
    std::string list;
    for (const std::string& each : sources) list += concat(list.empty() ? "" : ", ", "{path: '", place / each, "'}");
    const Config config = packed_run(place, name, {concat("data.mixture=[", list, "]"), "eval.every=0"});
    train_by(2, config);
    return weights_of(config);
  };
  const std::string of_texts = weights("texts", {"ended.txt"});
  EXPECT_FALSE(weights("endless", {"lines.txt"}) == of_texts) << "ends of documents count";
  EXPECT_TRUE(weights("folder", {"shards"}) == of_texts);
  EXPECT_TRUE(weights("pattern", {"shards/x-*.bin"}) == of_texts);
  const std::string of_both = weights("both", {"shards", "ended.txt"});
  EXPECT_TRUE(of_both == weights("twice", {"ended.txt", "shards"}));
  EXPECT_FALSE(of_both == of_texts) << "a second source counts";
  tokenize.end_of_document.reset();
  tokenize.out = place / "plain.bin";
  tokenize.shard_tokens = 0;
  tokenize_files(Context::create({.threads = 1}), tokenizer, tokenize);
  EXPECT_NE(error_of([&] { weights("plain", {"plain.bin"}); }).find("do not say which of them ends a document"),
            std::string::npos);
}

// Names of shards that stand behind tokenizer.json in their folder, which is no text.
TEST(PackedRun, OfShardsAloneAsksForNoTokenizerOfTexts) {
  const TemporaryFolder place;
  write_text_file(place / "lines.txt", sample_text());
  std::filesystem::create_directory(place / "shards");
  TokenizeOptions tokenize{.files = {place / "lines.txt"}, .out = place / "shards/x.bin"};
  tokenize_files(Context::create({.threads = 1}), ByteTokenizer(), tokenize);
  write_text_file(place / "shards/tokenizer.json", ByteTokenizer().to_json());
  const auto run = [&](const std::string& sources) {
    Recorder silent;
    return error_of([&] {
      train(packed_run(
                place, "r",
                {concat("data.mixture=[", sources, "]"), "data.packing=false", "data.tokenizer=nowhere", "steps=1"}),
            silent);
    });
  };
  EXPECT_NE(run(concat("{path: ", place / "shards", "}, {path: ", place / "lines.txt", "}")).find("nowhere"),
            std::string::npos);
  EXPECT_EQ(run(concat("{path: ", place / "shards", "}")), "");
}

TEST(PackedRun, GoesOnWithoutTheTokenizerThatItsMixtureNames) {
  const TemporaryFolder place;
  write_sources(place);
  std::filesystem::create_directory(place / "named");
  write_text_file(place / "named/tokenizer.json", ByteTokenizer().to_json());
  const auto run = [&](const std::string& name, std::vector<std::string> more) {
    more.push_back(concat("data.tokenizer=", place / "named"));
    return packed_run(place, name, std::move(more));
  };
  train_by(1, run("whole", {}));
  train_by(1, run("resumed", {}), 3);
  std::filesystem::rename(place / "named", place / "moved");
  train_by(1, run("resumed", {"resume=auto"}));
  EXPECT_TRUE(weights_of(run("resumed", {})) == weights_of(run("whole", {})));
}

TEST(PackedRun, RefusesDocumentsThatDifferentTokensEnd) {
  const TemporaryFolder place;
  write_text_file(place / "lines.txt", sample_text());
  const auto tokens = [&](const std::string& name, std::uint32_t end) {
    TokenizeOptions tokenize{.files = {place / "lines.txt"}, .out = place / name};
    tokenize.documents = Documents::line;
    tokenize.end_of_document = end;
    tokenize_files(Context::create({.threads = 1}), ByteTokenizer(), tokenize);
    return place / name;
  };
  std::filesystem::create_directory(place / "both");
  const std::string one = tokens("both/one.bin", '|'), two = tokens("both/two.bin", '~');
  const auto expect = [&](std::vector<std::string> words, const std::string& what) {
    Recorder silent;
    const std::string message = error_of([&] { train(packed_run(place, "r", words), silent); });
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_NE(message.find("by one `keel tokenize --end-of-document TOKEN`"), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(place / "r"));
  };
  expect({concat("data.mixture=[{path: ", place / "both", "}]")},
         concat("'", one, "' says that token 124 ends a document, and '", two, "' that token 126 does"));
  expect({concat("data.mixture=[{path: ", one, "}, {path: ", two, "}]")},
         concat("'", two, "' says that token 126 ends a document, and '", one, "' that token 124 does"));
  expect({concat("data.mixture=[{path: ", one, "}]"), concat("data.validation_path=", two)},
         concat("'", two, "' says that token 126 ends a document, and '", one, "' that token 124 does"));
}

TEST(PackedRun, InStagesHasTheSameBitsAfterAResumeInTheMidstOfThem) {
  for (const char* stages :
       {"data.stages=[{until: 3, weights: [1, 0]}, {until: 5, weights: [1, 2]}, {weights: [0, 1]}]",
        "data.stages=[{until: 0.43, weights: [1, 0]}, {until: 0.7, weights: [1, 2]}, {weights: [0, 1]}]"})
    for (const int n : {1, 2, 3}) {
      const TemporaryFolder place;
      write_sources(place);
      const std::string sources =
          concat("data.mixture=[{path: ", place / "a.jsonl", "}, {path: ", place / "b.txt", "}]");
      const auto run = [&](const std::string& name, std::vector<std::string> more) {
        more.insert(more.end(), {sources, stages});
        return packed_run(place, name, std::move(more));
      };
      train_by(n, run("whole", {"strategy=ddp-fp32"}));
      const std::string bits = weights_of(run("whole", {}));
      for (const int stop : {2, 3, 4}) {
        const std::string name = concat("resumed", stop);
        train_by(n, run(name, {"strategy=zero1-fp32"}), stop);
        train_by(n, run(name, {"strategy=zero3-fp32", "resume=auto"}));
        EXPECT_TRUE(weights_of(run(name, {})) == bits) << stages << ' ' << n << ' ' << stop;
      }
      train_by(n, packed_run(place, "plain", {sources}));
      EXPECT_FALSE(weights_of(packed_run(place, "plain", {sources})) == bits) << "the stages count";
    }
}

TEST(PackedRun, RefusesStagesThatDoNotFitTheirSources) {
  const TemporaryFolder place;
  write_sources(place);
  const std::string sources = "data.mixture=[{path: a}, {path: b}]";
  const auto expect = [&](std::vector<std::string> words, std::string_view what) {
    words.insert(words.begin(), sources);
    const std::string message = error_of([&] { packed_run(place, "r", words); });
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  expect({"data.stages=[{weights: [1]}]"}, "data.stages: stage 1 has 1 weights, and data.mixture 2 files");
  expect({"data.stages=[{weights: [0, 0]}]"}, "stage 1 reads no file");
  expect({"data.stages=[{until: 5, weights: [1, 1]}]"}, "the last stage has no end");
  expect({"data.stages=[{weights: [1, 1]}, {weights: [1, 0]}]"}, "stage 1 has no until");
  expect({"data.stages=[{until: 5, weights: [1, 1]}, {until: 5, weights: [1, 0]}, {weights: [0, 1]}]"},
         "stage 2 ends at 5, and the one before at 5");
  expect({"data.stages=[{until: 1.5, weights: [1, 1]}, {weights: [0, 1]}]"},
         "until is a whole step, or a part below 1");
  expect({"data.stages=[{until: 0.5, weights: [1, 1]}, {until: 6, weights: [1, 1]}, {weights: [0, 1]}]"},
         "all stages end at steps, or all at parts of the run");
  expect({"data.stages=[{weights: [1, -1]}]"}, "expects");
  expect({"data.mixture=[{path: a, weight: 2}, {path: b}]", "data.stages=[{weights: [1, 1]}]"},
         "its stages have the weights");
  Recorder silent;
  EXPECT_NE(error_of([&] {
              train(
                  packed_run(place, "r",
                             {"epochs=1", "data.stages=[{until: 0.5, weights: [1, 1]}, {weights: [0, 1]}]",
                              concat("data.mixture=[{path: ", place / "a.jsonl", "}, {path: ", place / "b.txt", "}]")}),
                  silent);
            }).find("is a part of the run's steps, and the run is as long as epochs"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(place / "r"));
}

TEST(PackedRun, IsEvaluatedAlikeByAnyNumberOfRanks) {
  const TemporaryFolder place;
  write_sources(place);
  double alone = 0;
  for (const int n : {1, 2, 3, 4}) {
    const auto told = train_by(n, packed_run(place, concat("r", n), {"steps=1", "optimizer.lr=1e-30", "eval.every=1"}));
    if (n == 1) alone = told[0]->validation;
    EXPECT_EQ(told[0]->validation, alone) << n;
    EXPECT_GT(alone, 1);
  }
}

TEST(PackedRun, OfOneTextTrainsOnItsLines) {
  const TemporaryFolder place;
  Recorder told;
  train(small_run(place, "r", {"data.packing=true", "steps=40", "eval.every=40"}), told);
  EXPECT_LT(told.losses.back(), 0.9 * told.losses.front());
}

TEST(PackedRun, RefusesSourcesThatDoNotFitTogether) {
  const TemporaryFolder place;
  write_sources(place);
  const auto said = [&](std::vector<std::string> settings) {
    Recorder silent;
    return error_of([&] { train(packed_run(place, "r", std::move(settings)), silent); });
  };
  EXPECT_NE(said({"data.mixture=[]"}).find("data.mixture has no sources"), std::string::npos);
  EXPECT_NE(said({"data.mixture=[{path: nowhere.txt}]"}).find("nowhere.txt"), std::string::npos);
  EXPECT_NE(said({"data.mixture=[{weight: 2}]"}).find("[0].path: is missing"), std::string::npos);
  EXPECT_NE(said({"data.mixture=[{path: a, weight: 0}]"}).find("[0].weight: expects a number > 0"), std::string::npos);
  EXPECT_NE(said({"model.vocabulary=7"}).find("model.vocabulary is 7"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(place / "r"));
}

}  // namespace
}  // namespace keel
