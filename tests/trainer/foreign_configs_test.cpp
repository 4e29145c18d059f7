// configs.json of generic_trainer: what becomes of its keys, and of those that it leaves out.

#include <gtest/gtest.h>

#include <string>

#include "keel/runtime/file.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/foreign/load.h"
#include "keel/trainer/foreign/translation.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"
#include "tests/trainer/foreign_support.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using testing::error_of;
using testing::golden;
using testing::small;
using testing::TemporaryFolder;
using testing::Words;

TEST(ForeignConfigs, MultiplyTheRateAndCycle) {
  const std::string file = golden("configs.json");
  const Words beside = small({"scheduler.step_size_up=6"});
  const std::string yaml =
      "seed: 7\nrun: saved\nclip: 0\nstrategy: fp32\nbatch: {global: 16, micro: 8}\n"
      "optimizer: {type: Adam, lr: 0.002, betas: [0.9, 0.98]}\n"
      "scheduler: {type: CyclicLR, base_lr: 0.0002, mode: triangular2, step_size_up: 6, cycle_momentum: false}\n";
  Words text = beside;
  text.emplace_back("data={type: text, path: x.txt}");
  EXPECT_EQ(to_yaml(load_any_config(keel_keys(), {file, {}, {}, 2}, text)), to_yaml(parse_config(yaml, file, text)));
}

// Its predictions by name are heads; the model's layers and the data are the user's.
const Words kReadings = {"data.path=readings.csv", "model.trunk=dense 8 relu", "scheduler.step_size_up=6"};

TEST(ForeignConfigs, WithPredictionsByNameAreATaskWithHeads) {
  const std::string file = golden("configs_heads.json");
  Words beside = kReadings;
  const std::string yaml =
      "task: {type: supervised}\n"
      "model: {heads: [{name: digit, type: classification, loss: cross_entropy, weight: 1.0},"
      " {name: angle, type: regression, loss: huber, weight: 0.5}]}\n"
      "data: {validation: 0.25, last: drop}\nepochs: 4\n"
      "seed: 7\nclip: 0\nbatch: {global: 8, micro: 4}\n"
      "optimizer: {type: Adam, lr: 0.02}\n"
      "scheduler: {type: CyclicLR, base_lr: 0.002, mode: triangular2, step_size_up: 6, cycle_momentum: false}\n";
  EXPECT_EQ(to_yaml(load_any_config(keel_keys(), {file, {}, {}, 2}, beside)),
            to_yaml(parse_config(yaml, file, beside)));
  // The task may be named, too, and heads may be the user's own.
  beside.emplace_back("task.type=supervised");
  EXPECT_EQ(to_yaml(load_any_config(keel_keys(), {file, {}, {}, 2}, beside)),
            to_yaml(parse_config(yaml, file, beside)));
  beside.emplace_back("model.heads=[{name: angle}]");
  EXPECT_EQ(load_any_config(keel_keys(), {file}, beside).parts("model.heads").size(), 1u);
}

TEST(ForeignConfigs, WithPredictionsByNameTrainByTwoRanks) {
  const TemporaryFolder place;
  std::string table = "x,y,digit,angle\n";
  for (int i = 0; i < 64; ++i) table += concat(i % 8, ',', i / 8, ',', i % 8 / 3, ',', i / 8 - 3, '\n');
  write_text_file(place / "readings.csv", table);
  Words beside = kReadings;
  beside.insert(beside.end(), {concat("data.path=", place / "readings.csv"), concat("run=", place / "run"), "threads=1",
                               "epochs=60"});
  const auto told =
      testing::train_by(2, load_any_config(keel_keys(), {golden("configs_heads.json"), {}, {}, 2}, beside));
  ASSERT_EQ(told[0]->losses.size(), 360u);
  EXPECT_LT(told[0]->losses.back(), 0.5 * told[0]->losses.front());
  EXPECT_LT(told[0]->validation, 0.7);
}

// All keys of its training, of parallelism and of prediction, as it writes them where nobody says otherwise.
constexpr const char* kWholeConfigs = R"({
  "config_class": "<class 'Configs'>",
  "model_class": "<class 'models.Net'>", "model_params": {}, "dataset": null,
  "pred_names_and_types": [["digit", "cls"], ["angle", "regr"]], "dataset_creator_name": null,
  "data_label_separation_index": 1, "debug": false, "cpu_only": true, "random_seed": 3, "task_type": "regression",
  "training_configs": {
    "config_class": "<class 'TrainingConfigs'>",
    "training_dataset": null, "validation_dataset": null, "test_dataset": null, "batch_size_per_process": 16,
    "num_epochs": 2, "learning_rate_per_process": 0.01, "optimizer": "<class 'torch.optim.sgd.SGD'>",
    "optimizer_params": {"momentum": 0.9}, "multi_optimizer_param_dicts": [], "model_save_dir": ".",
    "checkpoint_dir": "", "pretrained_model_path": "", "load_pretrained_encoder_only": false,
    "load_pretrained_classifer": false, "validation_ratio": 0.2,
    "loss_function": ["<class 'torch.nn.modules.loss.CrossEntropyLoss'>", "<class 'torch.nn.modules.loss.L1Loss'>"],
    "loss_weights": [0.25, 2], "num_workers": 2, "pin_memory": true, "automatic_mixed_precision": true,
    "save_onnx": false, "curriculum_learning_rate": 0, "post_training_epoch_hook": null,
    "post_validation_epoch_hook": null, "post_test_epoch_hook": null,
    "parallel_configs": {"config_class": "<class 'ParallelConfigs'>", "find_unused_parameters": false,
                         "parallelization_type": "multi_node"}
  },
  "inference_configs": {
    "config_class": "<class 'InferenceConfigs'>", "pretrained_model_path": "best_model.pth",
    "prediction_output_path": "out", "batch_size_per_process": 64, "prediction_postprocessor": "add_softmax"
  }
})";

TEST(ForeignConfigs, EveryKeyOfAWholeFileIsTakenOrMapped) {
  const TemporaryFolder folder;
  write_text_file(folder / "configs.json", kWholeConfigs);
  const ForeignTranslation read = translate_file(keel_keys(), folder / "configs.json", kReadings, 2);
  EXPECT_FALSE(read.is_refused()) << read.problems();
  const std::string yaml =
      "task: {type: supervised}\n"
      "model: {heads: [{name: digit, type: classification, loss: cross_entropy, weight: 0.25},"
      " {name: angle, loss: mae, weight: 2}]}\n"
      "data: {validation: 0.2, workers: 2, last: drop}\nepochs: 2\nseed: 3\nclip: 0\ndevice: cpu\nprecision: fp16\n"
      "batch: {global: 32, micro: 16}\noptimizer: {type: SGD, lr: 0.02, momentum: 0.9}\n"
      "scheduler: {type: CyclicLR, base_lr: 0.002, mode: triangular2, step_size_up: 6, cycle_momentum: false}\n";
  EXPECT_EQ(to_yaml(config_of(keel_keys(), read, folder / "configs.json", kReadings)),
            to_yaml(parse_config(yaml, folder / "configs.json", kReadings)));
}

TEST(ForeignConfigs, SayWhatTheirTrainerDoesWithoutAKey) {
  const TemporaryFolder folder;
  const auto read = [&](std::string_view text) {
    write_text_file(folder / "configs.json", text);
    return load_any_config(keel_keys(), {folder / "configs.json"}, kReadings);
  };
  const Config least = read("{\"pred_names_and_types\": [[\"a\", \"regr\"]]}");
  EXPECT_EQ(least.epochs, 60);
  EXPECT_EQ(least.batch.micro, 64);
  EXPECT_EQ(least.optimizer.type, "Adam");
  // Of a single function no weights count.
  const Config one = read(
      "{\"pred_names_and_types\": [[\"a\", \"regr\"]], \"loss_function\": \"<class 'L1Loss'>\", \"loss_weights\": "
      "[9]}");
  EXPECT_EQ(one.parts("model.heads").at(0).text("loss"), "mae");
  EXPECT_EQ(one.parts("model.heads").at(0).number("weight"), 1);
  // Sections that train are read, whatever else they have.
  EXPECT_NE(error_of([&] {
              (void)read(
                  "{\"pred_names_and_types\": [[\"a\", \"regr\"]],\n \"batch_size_per_process\": 4,\n"
                  " \"s\": {\"prediction_output_path\": \"out\", \"num_epochs\": 1,\n"
                  " \"batch_size_per_process\": 8}}");
            }).find(":4: batch_size_per_process: is 8, and "),
            std::string::npos);
}

}  // namespace
}  // namespace keel
