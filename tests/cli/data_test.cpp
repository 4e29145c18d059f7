#include <gtest/gtest.h>

#include "keel/data/columns.h"
#include "keel/data/token_file.h"
#include "keel/runtime/json.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::Sandbox;

TEST(DataCommand, ShowsTheFieldsAndRowsOfATable) {
  const Sandbox sandbox;
  std::string table = "x,label,text\n";
  for (int i = 0; i < 40; ++i)
    table += concat(i, '.', i % 2 == 0 ? "25" : "5", ',', i % 3, ',', std::string(1 + i, 'a'), '\n');
  sandbox.write("t.csv", table);
  const Outcome outcome = sandbox.keel("data t.csv --rows 1 --columns 100 --json t.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out.substr(0, outcome.out.find("\n\nlengths")),
            "t.csv: a table, 1.1 KiB, 40 examples\n\n"
            "                                       length\n"
            "field  kind      examples  from    to   least  median  mean  most\n"
            "x      a number        40  0.25  39.5\n"
            "label  a number        40     0     2\n"
            "text   a text          40                   1      20  20.5    40");
  EXPECT_NE(outcome.out.find("\nlengths of text, in bytes:\n"), std::string::npos);
  EXPECT_NE(outcome.out.find("\nexample 0\n  x      0.25\n  label  0\n  text   \"a\"\n"), std::string::npos);
  const Json json = Json::parse(sandbox.read("t.json"));
  const Json& file = json.items()[0];
  EXPECT_EQ(file.at("examples").integer(), 40);
  EXPECT_EQ(file.at("fields").items()[2].at("lengths").at("most").integer(), 40);
  EXPECT_EQ(file.at("fields").items()[0].at("from").number(), 0.25);
}

TEST(DataCommand, KnowsEveryKindOfFile) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("tokenize corpus.txt --out corpus.bin").code, 0);
  sandbox.write("a.jsonl", "{\"ids\": [1, 2, 3], \"text\": \"\\u001b[2J\"}\n{\"ids\": []}\n");
  {
    ColumnsWriter writer(sandbox / "c.keel", {{.name = "n", .type = ColumnType::i64}});
    for (std::int64_t i = 0; i < 3; ++i) writer.append(Example().set("n", i));
    writer.commit();
  }
  std::filesystem::create_directory(sandbox / "texts");
  sandbox.write("texts/a.txt", "abc");
  const Outcome outcome = sandbox.keel("data corpus.txt corpus.bin a.jsonl c.keel texts");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* said :
       {"corpus.txt: a text, ", ", 30 examples\n", "corpus.bin: a file of tokens, ",
        " tokens, 40 different ones of a vocabulary of 256, tokenizer byte\n", "\nthe first window of 16 tokens:\n",
        "  text      \"The quick brown \"\n", "a.jsonl: JSON lines, ", ", 2 examples\n", "  text  \"\\x1b[2J\"\n",
        "c.keel: a columnar file, ", ", 3 examples\n", "texts: a folder of files, 3 B, 1 example\n"})
    EXPECT_NE(outcome.out.find(said), std::string::npos) << said << outcome.out;
}

TEST(DataCommand, ShowsThePartsOfAMixtureWithTheirShares) {
  const Sandbox sandbox;
  sandbox.write("a.txt", std::string(3000, 'a') + '\n');
  ASSERT_EQ(sandbox.keel("tokenize corpus.txt --out b.bin").code, 0);
  sandbox.write("c.yaml",
                "steps: 2\ndata: {type: mixture, mixture: [{path: a.txt, weight: 3}, {path: b.bin, weight: 2}, "
                "{path: corpus.txt, weight: 1}]}\n");
  const Outcome outcome = sandbox.keel("data c.yaml --rows 0 --json m.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string table = outcome.out.substr(0, outcome.out.find("\n\na.txt: "));
  EXPECT_EQ(table.substr(0, 32), "c.yaml: trains on 3 files\n\nfile ");
  for (const char* said : {"    3     50 %", "    2  33.33 %", "    1  16.67 %"})
    EXPECT_NE(table.find(said), std::string::npos) << said << table;
  for (const char* said :
       {"\n\na.txt: a text, 2.9 KiB, 1 example\n", "\nb.bin: a file of tokens, ", "\ncorpus.txt: a text, "})
    EXPECT_NE(outcome.out.find(said), std::string::npos) << said << outcome.out;
  const Json json = Json::parse(sandbox.read("m.json"));
  ASSERT_EQ(json.items().size(), 3u);
  EXPECT_EQ(json.items()[0].at("share").number(), 0.5);
  EXPECT_EQ(json.items()[1].at("weight").number(), 2);
  EXPECT_EQ(json.items()[1].at("path").string(), "b.bin");

  sandbox.write("made_up.yaml", "steps: 2\ndata: {type: addition}\n");
  const Outcome none = sandbox.keel("data made_up.yaml");
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(none.err,
            "keel: error: 'made_up.yaml' trains on no file: it has neither data.path nor data.mixture; name a "
            "file of data\n");
}

TEST(DataCommand, NamesThePlaceOfWhatIsMalformed) {
  const Sandbox sandbox;
  sandbox.write("t.csv", "a,b\n1,2\n3,x\n");
  Outcome outcome = sandbox.keel("data t.csv");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "keel: error: 't.csv', line 3, column 2 ('b'): expected a finite number, found 'x'\n");
  sandbox.write("t.jsonl", "{\"a\": 1}\n{\"a\": }\n");
  outcome = sandbox.keel("data t.jsonl --json t.json");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("'t.jsonl', line 2, column 7: expected "), std::string::npos) << outcome.err;
  EXPECT_FALSE(sandbox.has("t.json"));
  EXPECT_EQ(sandbox.keel("data missing.csv").code, 2);
  EXPECT_EQ(sandbox.keel("data").code, 2);
}

TEST(DataCommand, ShowsPackedTokensAsTheModelSeesThem) {
  const Sandbox sandbox;
  sandbox.write("d.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"de\"}\n");
  sandbox.write(
      "c.yaml",
      "steps: 2\nmodel: {block: 8}\ndata: {path: d.jsonl, packing: true, validation: 0}\nbatch: {global: 1}\n");
  const Outcome outcome = sandbox.keel("data c.yaml --block 7 --json d.json --columns 100");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::size_t at = outcome.out.find("\nas the model sees it");
  ASSERT_NE(at, std::string::npos) << outcome.out;
  EXPECT_EQ(
      outcome.out.substr(at),
      "\nas the model sees it: the first 1 of 1 rows of the first step; labels of -100 are not learnt; documents of "
      "-1 are padding\n"
      "\nrow 0, example 0\n"
      "  input_ids  text  documents  labels  text  positions\n"
      "         97  'a'           0      98  'b'           0\n"
      "         98  'b'           0      99  'c'           1\n"
      "         99  'c'           0    -100                2\n"
      "        100  'd'           1     101  'e'           0\n"
      "        101  'e'           1    -100                1\n"
      "          0               -1    -100                0\n"
      "          0               -1    -100                0\n"
      "  ... 1 more (--block)\n");
  const Json json = Json::parse(sandbox.read("d.json"));
  const Json& seen = json.items()[0].at("as_the_model_sees_it");
  EXPECT_EQ(seen.at("rows").items()[0].at("fields").at("documents").items()[4].integer(), 1);
  EXPECT_EQ(sandbox.keel("data c.yaml --rows 0").out.find("as the model sees it"), std::string::npos);
}

TEST(DataCommand, ShowsNumbersAndClassesAsTheModelSeesThem) {
  const Sandbox sandbox;
  sandbox.write("t.csv", "a,sky,fold\n1,rain,x\n3,clear,x\n2,clear,y\n");
  sandbox.write("c.yaml",
                "steps: 2\ntask: {type: supervised}\nmodel: {heads: [{name: sky, type: classification}]}\n"
                "data: {path: t.csv, split_column: fold, sets: [{name: dev, values: [y]}]}\nbatch: {global: 2}\n");
  const Outcome outcome = sandbox.keel("data c.yaml");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("\nas the model sees it: the first 2 of 2 rows of the first step\n"), std::string::npos)
      << outcome.out;
  for (const char* said : {"  inputs  -1\n  sky     1\n", "  inputs  1\n  sky     0\n", "validation set dev: 1 rows\n"})
    EXPECT_NE(outcome.out.find(said), std::string::npos) << said << outcome.out;
}

TEST(DataCommand, ShowsTheSharesOfACurriculum) {
  const Sandbox sandbox;
  sandbox.write("a.txt", std::string(3000, 'a') + '\n');
  sandbox.write("c.yaml",
                "steps: 9\ndata: {type: mixture, mixture: [{path: a.txt}, {path: corpus.txt}], stages: [{until: 5, "
                "weights: [1, 0]}, {weights: [1, 3]}]}\n");
  const Outcome outcome = sandbox.keel("data c.yaml --rows 0 --json m.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* said : {"to step 5   then\n", "    share  share\n", "    100 %   25 %\n", "      0 %   75 %\n"})
    EXPECT_NE(outcome.out.find(said), std::string::npos) << said << outcome.out;
  const Json json = Json::parse(sandbox.read("m.json"));
  EXPECT_EQ(json.items()[1].at("shares").items()[1].number(), 0.75);
}

}  // namespace
}  // namespace keel::cli
