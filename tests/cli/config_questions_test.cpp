// `keel config` without another trainer's file: what it asks, and what it makes of the answers.

#include "cli/config_questions.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "keel/trainer/config.h"
#include "keel/trainer/config_keys.h"
#include "tests/cli/sandbox.h"
#include "tests/error_of.h"
#include "tests/names_of.h"

namespace keel::cli {
namespace {

using keel::testing::error_of;
using testing::Outcome;
using testing::Sandbox;

// With answers on the standard input.
Outcome answered(const Sandbox& sandbox, const std::string& arguments, const std::string& answers) {
  const testing::TemporaryFolder files;
  write_text_file(files / "in", answers);
  const int status = std::system(concat("cd '", sandbox / ".", "' && '", KEEL_PROGRAM, "' ", arguments, " <'",
                                        files / "in", "' >'", files / "out", "' 2>'", files / "err", "'")
                                     .c_str());
  return {WEXITSTATUS(status), read_text_file(files / "out"), read_text_file(files / "err")};
}

// The answers make a file that trains: two steps, or as it says.
void expect_trains(const Sandbox& sandbox, const std::string& answers, const std::string& yaml) {
  const Outcome asked = answered(sandbox, "config --out c.yaml", answers);
  ASSERT_EQ(asked.code, 0) << asked.err << asked.out;
  EXPECT_EQ(sandbox.read("c.yaml"), yaml) << asked.out;
  const Outcome trained = sandbox.keel("train c.yaml threads=1");
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(sandbox.read("runs/c/metrics.jsonl").find("\"step\":2"), std::string::npos);
}

std::string sentences() {
  std::string text;
  for (int i = 0; i < 40; ++i) text += concat("Sentence ", i, " has a number.\n");
  return text;
}

TEST(ConfigQuestions, OfAdditionsMakeAFileThatTrains) {
  const Sandbox sandbox;
  const Outcome asked =
      answered(sandbox, "config --out c.yaml eval.samples=4", "\naddition\n1\ncustom\n1\n1\n8\n8\n4\n\n\n2\n\n\n\n2\n");
  EXPECT_EQ(asked.code, 0) << asked.err << asked.out;
  EXPECT_NE(asked.out.find("keel launch -N 2 c.yaml\n"), std::string::npos) << asked.out;
  const std::string text = sandbox.read("c.yaml");
  EXPECT_EQ(
      text,
      "data:\n  type: addition\n  digits: 1\nmodel:\n  name: custom\n  layers: 1\n  heads: 1\n  width: 8\n  block: "
      "8\nbatch:\n  global: 4\nsteps: 2\neval:\n  samples: 4\n");
  EXPECT_EQ(sandbox.keel("train c.yaml threads=1").code, 0);

  const auto before = sandbox.contents();
  EXPECT_EQ(sandbox.keel("config --out d.yaml").err,
            "keel: error: the answers end before task.type; nothing is written\n");
  EXPECT_EQ(sandbox.keel("config --out d.yaml --defaults data.type=addition").err,
            "keel: error: the answers end before steps; nothing is written\n");
  EXPECT_EQ(sandbox.contents(), before);
  EXPECT_EQ(sandbox.keel("config --out d.yaml --defaults data.type=addition steps=2").code, 0);
}

TEST(ConfigQuestions, OfATextMakeAFileThatTrains) {
  const Sandbox sandbox;
  sandbox.write("a.txt", sentences());
  expect_trains(sandbox, "language\ntext\na.txt\ncharacter\ncustom\n1\n1\n8\n8\n4\n2\n\n2\nSGD\n0.1\nfp32\n\n",
                "task:\n  type: language\ndata:\n  type: text\n  path: a.txt\n  tokenizer: character\n"
                "model:\n  name: custom\n  layers: 1\n  heads: 1\n  width: 8\n  block: 8\n"
                "batch:\n  global: 4\n  micro: 2\nsteps: 2\noptimizer:\n  type: SGD\n  lr: 0.1\nprecision: fp32\n");
}

TEST(ConfigQuestions, OfAMixtureMakeAFileThatTrains) {
  const Sandbox sandbox;
  sandbox.write("a.txt", sentences());
  sandbox.write("b.txt", sentences());
  expect_trains(sandbox, "\nmixture\n[{path: a.txt, weight: 2}, {path: b.txt}]\n\n\n1\n1\n8\n8\n4\n\n\n2\n\n\n\n\n",
                "data:\n  type: mixture\n  mixture: [{path: a.txt, weight: 2}, {path: b.txt}]\n"
                "model:\n  layers: 1\n  heads: 1\n  width: 8\n  block: 8\nbatch:\n  global: 4\nsteps: 2\n");
}

TEST(ConfigQuestions, OfHeadsMakeAFileThatTrains) {
  const Sandbox sandbox;
  std::string table = "a,b,far,sky\n";
  for (int i = 0; i < 20; ++i) table += concat(i % 5, ',', i / 5, ',', i % 7, ',', i % 2 == 0 ? "clear" : "rain", '\n');
  sandbox.write("r.csv", table);
  expect_trains(sandbox,
                "supervised\n[{name: sky, type: classification}, {name: far}]\ndense 4 relu\nr.csv\n"
                "9\n\n1\n\n\n\n\n",
                "task:\n  type: supervised\nmodel:\n  heads: [{name: sky, type: classification}, {name: far}]\n"
                "  trunk: dense 4 relu\ndata:\n  path: r.csv\nbatch:\n  global: 9\nepochs: 1\n");
}

TEST(ConfigQuestions, AreAskedAgainOfAPersonWithWhatIsWrong) {
  const auto asked = [](const std::string& answers, const Words& given = {}) {
    std::istringstream in(answers);
    std::ostringstream out;
    const Answers made = ask_questions(keel_keys(), {given, false, true}, in, out);
    (void)parse_config(made.yaml, "made.yaml");
    return concat(made.yaml, out.str());
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  };
  const std::string behind = "\n\n2\n\n\n\n\n\n";
  // A value that its row refuses.
  std::string told =
      asked("chess\nsupervised\n[{name: a, loss: best}]\n[{name: a, weight: -1}]\n\n[{name: a}]\n\nr.csv\n" + behind);
  expect(told, "heads: [{name: a}]\n");
  expect(told, concat("task.type: expects ", testing::task_names(" or "), ", got 'chess'"));
  expect(told, "model.heads: [0].loss: expects ");
  expect(told, "model.heads: [0].weight: expects a number from 0 to 1000000000, got '-1'");
  expect(told, "model.heads: has no default");
  // What the task refuses of several values: the section is asked anew.
  told = asked("supervised\n[{name: a}, {name: a}]\ndense 4\nr.csv\n[{name: a}]\n\n" + behind);
  expect(told, "model.heads: two heads are named 'a'");
  expect(told, "model:\n  heads: [{name: a}]\ndata:");
  told = asked("language\naddition\n1\ncustom\n1\n3\n8\n8\ncustom\n1\n2\n8\n8\n4" + behind);
  expect(told, "model.heads: 3 heads do not divide the width 8");
  expect(told, "  heads: 2\n  width: 8\n  block: 8\nbatch:\n  global: 4\n");
}

TEST(ConfigQuestions, OfWhatIsGivenAreNotAskedAndItsMistakesEndThem) {
  const auto asked = [](const Words& given) {
    std::istringstream in("");
    std::ostringstream out;
    return ask_questions(keel_keys(), {given, true, true}, in, out).yaml;
  };
  EXPECT_EQ(
      asked({"task.type=supervised", "model={heads: [{name: a}], trunk: none}", "data.path=r.csv", "epochs=2"}),
      "task:\n  type: supervised\nmodel:\n  heads: [{name: a}]\n  trunk: none\ndata:\n  path: r.csv\nepochs: 2\n");
  EXPECT_EQ(error_of([&] {
              asked({"data.type=addition", "model.heads=3", "model.width=8"});
            }),
            "model.heads: 3 heads do not divide the width 8; choose a width that is a multiple");
  EXPECT_EQ(error_of([&] {
              asked({"task.type=supervised", "model.heads=[{nam: a}]"});
            }),
            "model.heads: [0].nam: a head has no such key; did you mean 'name'?");
  EXPECT_EQ(error_of([&] { asked({"task.type"}); }), "'task.type': expects KEY=VALUE, as in optimizer.lr=3e-4");
}

TEST(ConfigQuestions, OnAPipeEndWithTheFirstAnswerThatIsWrong) {
  const Sandbox sandbox;
  const auto before = sandbox.contents();
  const Outcome wrong = answered(sandbox, "config --out c.yaml", "supervised\n[{name: a}, {name: a}]\n\nr.csv\n");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("keel: error: model.heads: two heads are named 'a'"), std::string::npos) << wrong.err;
  EXPECT_EQ(sandbox.contents(), before);
}

}  // namespace
}  // namespace keel::cli
