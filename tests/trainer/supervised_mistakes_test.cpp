// What is wrong with a configuration or a file of the task `supervised`: one line, before anything is written.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/error_of.h"
#include "tests/trainer/readings.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

class SupervisedMistakes : public ::testing::Test {
 protected:
  SupervisedMistakes() { write_readings(place_, 20); }

  std::string said(std::vector<std::string> words) const {
    return error_of([&] {
      Recorder silent;
      train(readings_run(place_, "r", std::move(words)), silent);
    });
  }
  // One line, and no folder of the run.
  void expect(std::vector<std::string> words, const std::string& what) const {
    const std::string message = said(std::move(words));
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(place_ / "r")) << what;
  }
  void expect_heads(const std::string& heads, const std::string& what) const {
    expect({"task.regularizers=[]", concat("model.heads=[", heads, "]")}, what);
  }

  TemporaryFolder place_;
};

TEST_F(SupervisedMistakes, OfHeadsAreToldWithTheirKey) {
  expect_heads("", "model.heads: there are none; name at least one");
  expect_heads("{name: a-b}", "head 'a-b': a name is letters, digits and _");
  expect_heads("{name: far}, {name: far}",
               "model.heads: two heads are named 'far'; name each otherwise, and its column by");
  expect_heads("{name: far, weight: -1}", "model.heads[0].weight: expects a number from 0 to 1000000000, got '-1'");
  expect_heads("{name: far, weight: 1e300}",
               "model.heads[0].weight: expects a number from 0 to 1000000000, got '1e300'");
  expect_heads("{name: far, weight: 0}", "every head has the weight 0, so none would learn; give one a weight above 0");
  expect_heads("{name: far, loss: best}",
               "model.heads[0].loss: expects auto, mse, mae, huber or cross_entropy, got 'best'");
  expect_heads("{name: sky, type: classification, loss: mse}", "the loss mse is for regression; leave loss out");
  expect_heads("{name: far, loss: cross_entropy}", "the loss cross_entropy is for classification; leave loss out");
  expect_heads("{name: far, metrics: [f1]}", "model.heads: head 'far': there is no metric 'f1' for this task; ");
  expect_heads("{name: far, metrics: [mae, mae]}", "model.heads: head 'far': metric 'mae' is named twice");
  expect_heads("{name: sky, type: classification, classes: 1}", "one class is nothing to learn; give 2 or more");
  const std::string in_the_file = said({"task.regularizers=[]", "model.heads=[{name: loss}]"});
  EXPECT_TRUE(in_the_file.starts_with("command line, 'model.heads=[{name: loss}]': model.heads: head 'loss': "))
      << in_the_file;
  EXPECT_EQ(error_of([&] {
              (void)parse_config(
                  "steps: 1\ntask: {type: supervised}\nmodel:\n  heads: [{name: a}, {name: a}]\n"
                  "data: {path: r.csv}\n",
                  "c.yaml");
            }),
            "c.yaml:4: model.heads: two heads are named 'a'; name each otherwise, and its column by columns");
}

TEST_F(SupervisedMistakes, OfNamesThatKeelNeedsAreToldBeforeTheirRecordsMeet) {
  for (const char* name : {"loss", "lr", "step", "grad_norm", "validation_loss", "peak_all_bytes"})
    expect_heads(concat("{name: ", name, ", columns: [far]}"), "records have keel's own number of this name");
  expect_heads("{name: inputs, columns: [far]}", "batches have what the model reads under this name");
  const std::string clash = "of this name; call one of them otherwise";
  expect_heads("{name: far}, {name: far_mae, columns: [far]}",
               concat("head 'far_mae': the head 'far' has a metric ", clash));
  expect_heads("{name: sky, type: classification}, {name: sky_probability, columns: [far]}",
               concat("the head 'sky' has a probability in predictions ", clash));
  expect_heads("{name: sky, type: classification, metrics: [confusion]}, {name: sky_confusion_0_1, columns: [far]}",
               clash);
  expect({"task.regularizers=[{head: far, type: square}, {head: far, type: square}]"},
         "task.regularizers: the term 'far_square': is there twice; add up the weights in one");
  expect({"task.regularizers=[{head: far, type: square}]",
          "model.heads=[{name: far}, {name: far_square, columns: [far]}]"},
         "the term 'far_square': a head has this name");
  expect({"task.regularizers=[{head: near, type: square}]"}, "task.regularizers: there is no head 'near'; name one of");
  // Names that only resemble them are free.
  EXPECT_EQ(said({"task.regularizers=[]", "steps=1", "model.heads=[{name: far}, {name: far_mean, columns: [far]}]"}),
            "");
}

TEST_F(SupervisedMistakes, OfColumnsAreToldWithThoseThatThereAre) {
  expect_heads("{name: fra}",
               "r.csv': model.heads: head 'fra': there is no column 'fra'; the columns "
               "are a, b, far, sky; name them by columns");
  expect_heads("{name: far, columns: [distance]}",
               "r.csv': model.heads: head 'far': there is no column 'distance'; the columns are a, b, far, sky");
  expect_heads("{name: sky}", "r.csv': the field 'sky' is a text, and numbers are asked for");
  expect_heads("{name: far, type: classification}", "a class is a whole number or a text");
  expect({"data.inputs=[a, c]"}, "r.csv': data.inputs: there is no column 'c'");
  expect({"data.inputs=[a, a]"}, "data.inputs: the column 'a' is named twice; leave one out");
  expect_heads("{name: far, columns: [a, b, b]}", "head 'far': the column 'b' is named twice; leave one out");
  expect({"data.inputs=[a, far]"}, "data.inputs: 'far' is what a head learns");
  expect({"model.trunk=dense x"}, "model.trunk: ");
  expect({"model.trunk=dense 4; output y 2"}, "leave `output` out");
  expect({concat("data.path=", place_ / "none.csv")}, "none.csv");
  write_text_file(place_ / "text.txt", "a text");
  expect({concat("data.path=", place_ / "text.txt")}, "text.txt' is a text; a table");
}

TEST_F(SupervisedMistakes, OfExamplesAreFoundBeforeTheTraining) {
  const std::string none = "task.regularizers=[]";
  expect({none, "model.heads=[{name: sky, type: classification, classes: 3}]"},
         "r.csv', example 0 (from 0 on): the field 'sky' is ");
  write_text_file(place_ / "r.csv", read_text_file(place_ / "r.csv") + "0.1,0.2,1e300,rain\n");
  expect({none, "model.heads=[{name: far}]"},
         "r.csv', example 20 (from 0 on): far: 1e+300 is beyond the numbers of fp32");
  write_readings(place_, 20);
  const std::string validation = concat("data.validation_path=", place_ / "v.csv");
  write_text_file(place_ / "v.csv", "a,b,far,sky\n0.5,0.1,1030,rain\n0.5,0.1,1030,snow\n");
  expect({validation},
         "v.csv', example 1 (from 0 on): 'snow' is none of the 3 classes that the head 'sky' learns from data.path; "
         "add such");
  write_text_file(place_ / "v.csv", "a,b,sky\n0.5,0.1,rain\n");
  expect({validation}, "v.csv', example 0 (from 0 on): the example has no field 'far'");
  std::string one = "a,sky\n";
  for (int i = 0; i < 9; ++i) one += concat(i, ",rain\n");
  write_text_file(place_ / "one.csv", one);
  expect({none, concat("data.path=", place_ / "one.csv"), "model.heads=[{name: sky, type: classification}]"},
         "one.csv': model.heads: head 'sky': the data has one class alone, 'rain', and nothing is to be learnt");
  // Where nothing asks for all examples before, the one that is read says it.
  write_text_file(place_ / "r.jsonl", "{\"a\": 1, \"far\": 2}\n{\"a\": 1}\n");
  const std::string late = said({concat("data.path=", place_ / "r.jsonl"), "data.validation=0", "data.scale=none", none,
                                 "model.heads=[{name: far}]"});
  EXPECT_NE(late.find("r.jsonl', example 1 (from 0 on): "), std::string::npos) << late;
}

}  // namespace
}  // namespace keel
