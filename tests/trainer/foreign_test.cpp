// Files of other trainers: what they become, and what is said of those that cannot be read.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "keel/config/schema_row.h"
#include "keel/runtime/file.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/foreign/kind.h"
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
using testing::kAdditions;
using testing::small;
using testing::TemporaryFolder;
using testing::Words;

struct Golden {
  const char* file;
  int ranks;
  const char* keel;  // the same configuration as a person would write it for keel
};

TEST(Foreign, GoldenFilesAreTheConfigurationsThatTheyMean) {
  const Golden cases[] = {
      {"hps.yaml", 2,
       "batch: {global: 16, micro: 8}\n"
       "optimizer: {type: AdamW, lr: 1e-3, weight_decay: 0.1}\n"
       "scheduler: {type: linear_with_warmup, warmup: 0.5, interval: step}\n"},
      {"parameters.yml", 2,
       "run: models/first\nresume: never\nstrategy: zero2-fp32\nclip: 1.0\ndata: {workers: 0}\n"
       "batch: {global: 16, micro: 4}\n"
       "optimizer: {type: HFAdamW, lr: 2e-5, weight_decay: 0.01}\n"
       "scheduler: {type: linear_with_warmup, warmup: 0.01}\n"},
      {"deepspeed.json", 2,
       "strategy: zero3-fp16\nclip: 0.5\nbatch: {global: 16, micro: 4}\n"
       "optimizer: {type: AdamW, lr: 3e-4, betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.01}\n"
       "scheduler: {type: WarmupDecayLR, base_lr: 0, max_lr: 3e-4, warmup: 2}\n"
       "loss_scale: {type: dynamic, initial: 4096, interval: 500, hysteresis: 2, floor: 1}\n"
       "sharding: {overlap: false, persistence_threshold: 10000}\nlog: {every: 5}\n"},
  };
  for (const Golden& each : cases) {
    const std::string file = golden(each.file);
    const Config read = load_any_config(keel_keys(), {file, {}, {}, each.ranks}, kAdditions);
    EXPECT_EQ(to_yaml(read), to_yaml(parse_config(each.keel, file, kAdditions))) << each.file;
  }
}

TEST(Foreign, GoldenFilesTrainByTwoRanks) {
  struct Run {
    const char* file;
    Words beside;
  };
  for (const Run& each : {Run{"hps.yaml", {}},
                          {"parameters.yml", {}},
                          {"deepspeed.json", {}},
                          {"accelerate.yaml", {"batch.micro=3"}},
                          {"accelerate_json.yaml", {}},
                          {"configs.json", {"scheduler.step_size_up=6", "data={type: addition}"}}}) {
    const TemporaryFolder place;
    Words words = small(each.beside);
    words.insert(words.end(), {"steps=3", "run=" + place / "run", "eval.samples=8", "threads=1"});
    const Config config = load_any_config(keel_keys(), {golden(each.file), {}, {}, 2}, words);
    const auto told = testing::train_by(2, config);
    ASSERT_EQ(told[0]->losses.size(), 3u) << each.file;
    for (const double loss : told[0]->losses) EXPECT_TRUE(std::isfinite(loss) && loss > 0) << each.file;
  }
}

TEST(Foreign, EpochsAreTheLengthWhereNothingSaysSteps) {
  const TemporaryFolder folder;
  const std::string file = folder / "hps.yaml";
  write_text_file(file, "hps:\n  epochs: 2\n  batch_size: 4\n  optimizer: {type: SGD}\n");
  const Words data = {"data.type=addition"};
  EXPECT_EQ(load_any_config(keel_keys(), {file}, data).epochs, 2);
  const Config in_steps = load_any_config(keel_keys(), {golden("hps.yaml")}, data);  // max_steps stands beside them
  EXPECT_EQ(in_steps.epochs, 0);
  EXPECT_EQ(in_steps.steps, 6);
  const Config asked = load_any_config(keel_keys(), {file}, {"data.type=addition", "steps=9"});
  EXPECT_EQ(asked.epochs, 0);
  EXPECT_EQ(asked.steps, 9);
}

TEST(Foreign, RatiosOfAnEpochAreLengths) {
  const Config in_epochs =
      load_any_config(keel_keys(), {golden("parameters.yml")}, {"data.type=text", "data.path=x.txt", "model.width=16"});
  EXPECT_EQ(in_epochs.epochs, 3);
  EXPECT_EQ(in_epochs.log.every.text(), "0.1 epochs");
  EXPECT_EQ(in_epochs.checkpoint.every.text(), "1 epoch");
  const Config in_steps = load_any_config(keel_keys(), {golden("parameters.yml")}, kAdditions);
  EXPECT_EQ(in_steps.log.every.text(), "10");
  EXPECT_EQ(in_steps.checkpoint.every.text(), "500");
}

TEST(Foreign, AcceleratesFileSaysNumbersStageAndProcesses) {
  const std::string file = golden("accelerate.yaml");
  const Config read = load_any_config(keel_keys(), {file}, small({"batch.micro=3"}));
  EXPECT_EQ(to_yaml(read),
            to_yaml(parse_config("strategy: zero2-bf16\ndevice: cpu\nclip: 0.5\nbatch: {global: 12, micro: 3}\n", file,
                                 kAdditions)));
  EXPECT_EQ(launch_of(file).ranks, 2);

  const Config hybrid = load_any_config(keel_keys(), {golden("accelerate_fsdp.yaml")}, kAdditions);
  EXPECT_EQ(to_string(hybrid.strategy), "zero3-fp16");
  EXPECT_EQ(hybrid.sharding.group, 4);
  EXPECT_EQ(hybrid.sharding.prefetch, 1);
  const ForeignLaunch launch = launch_of(golden("accelerate_fsdp.yaml"));
  EXPECT_EQ(launch.machines, 2);
  EXPECT_EQ(launch.machine, 1);
  EXPECT_EQ(concat(launch.address, ':', *launch.port), "10.0.0.1:29600");
}

TEST(Foreign, AcceleratesFilesOfAllVersionsAreRead) {
  const std::string old = golden("accelerate_old.yaml"), newest = golden("accelerate_parallelism.yaml");
  EXPECT_EQ(to_yaml(load_any_config(keel_keys(), {old}, kAdditions)),
            to_yaml(parse_config("strategy: ddp-fp16\n", old, kAdditions)));
  EXPECT_EQ(launch_of(old).ranks, 2);
  EXPECT_EQ(launch_of(old).gpus, "0,2");

  const Words data = {"data.type=addition", "steps=3"};  // and nothing of the model, of which the file says something
  EXPECT_EQ(to_yaml(load_any_config(keel_keys(), {newest}, data)),
            to_yaml(parse_config("strategy: zero3-bf16\nsharding: {reshard_after_forward: false, group: 2}\n"
                                 "model: {recompute: true}\n",
                                 newest, data)));

  const TemporaryFolder folder;
  const auto read = [&](std::string_view text) {
    write_text_file(folder / "a.yaml", text);
    return to_string(load_any_config(keel_keys(), {folder / "a.yaml"}, kAdditions).strategy);
  };
  EXPECT_EQ(read("distributed_type: MULTI_GPU\nfp16: true\n"), "ddp-fp16");
  EXPECT_EQ(read("distributed_type: FSDP\nfsdp_config: {fsdp_version: 1, fsdp_reshard_after_forward: SHARD_GRAD_OP}\n"),
            "zero2-fp32");
  EXPECT_EQ(read("distributed_type: FSDP\nnum_processes: 2\nparallelism_config:\n"
                 "  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 1\n"),
            "ddp-fp32");
}

TEST(Foreign, AutoInDeepSpeedsFileIsWhatAcceleratesFileSays) {
  const Config read = load_any_config(keel_keys(), {golden("accelerate_json.yaml")}, kAdditions);
  EXPECT_EQ(to_string(read.strategy), "zero1-bf16");
  EXPECT_EQ(read.clip, 0.25);
  EXPECT_EQ(read.batch.micro, 2);
  EXPECT_EQ(read.batch.global, 4);
}

TEST(Foreign, KeysOfATaskAreFoundByTheirRoles) {
  const auto read = [](const Words& words) { return load_any_config(keel_keys(), {golden("parameters.yml")}, words); };
  EXPECT_EQ(read({"data.type=text", "data.path=x.txt", "model.width=16"}).integer("model.block"), 32);
  EXPECT_EQ(
      error_of([&] {
        (void)read({"task.type=supervised", "data.path=x.csv", "model.heads=[{name: a}]"});
      }),
      concat(golden("parameters.yml"),
             ":18: transformers-params.max_length: the task that is trained has no key for the length of a sequence; "
             "remove it, or name another task: task.type=NAME"));
  for (const TaskEntry& task : keel_keys()->tasks().entries())
    EXPECT_EQ(keel_keys()->schema(task.name).key_of(KeyRole::data_file), "data.path") << task.name;
}

TEST(Foreign, AutoOfAScheduleIsWhatTheRunHas) {
  const TemporaryFolder folder;
  write_text_file(folder / "ds.json",
                  "{\"train_batch_size\": 4, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\"}},\n"
                  " \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_min_lr\": \"auto\",\n"
                  " \"warmup_max_lr\": \"auto\", \"total_num_steps\": \"auto\",\n \"warmup_num_steps\": \"auto\"}}}\n");
  const auto read = [&](Words more) {
    return load_any_config(keel_keys(), {folder / "ds.json"}, small(std::move(more)));
  };
  Words said = {"optimizer.lr=0.25", "scheduler.warmup=2"};
  EXPECT_EQ(to_yaml(read(said)),
            to_yaml(parse_config("batch: {global: 4, micro: 4}\noptimizer: {type: AdamW, lr: 0.25, weight_decay: 0}\n"
                                 "scheduler: {type: WarmupDecayLR, base_lr: 0, max_lr: auto, steps: auto}\n",
                                 folder / "ds.json", small(said))));
  EXPECT_EQ(
      error_of([&] { (void)read({"optimizer.lr=0.25"}); }),
      concat(folder / "ds.json",
             ":4: scheduler.params.warmup_num_steps: auto: nothing says what it is; give scheduler.warmup=VALUE"));
}

TEST(Foreign, JsonBesideAConfigurationAddsToItAndMayNotContradict) {
  const TemporaryFolder folder;
  const std::string own = folder / "c.yaml", json = folder / "ds.json";
  write_text_file(own,
                  "steps: 3\nclip: 0.5\ndata: {type: addition}\nprecision: bf16\nbatch: {micro: 2}\n"
                  "optimizer: {lr: 0.01}\n");
  write_text_file(json,
                  "{\"train_micro_batch_size_per_gpu\": \"auto\", \"gradient_accumulation_steps\": 3,\n"
                  " \"gradient_clipping\": 0.50, \"bf16\": {\"enabled\": \"auto\"},\n"
                  " \"zero_optimization\": {\"stage\": 2},\n"
                  " \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": \"auto\"}}}\n");
  const Config both = load_any_config(keel_keys(), {own, json, {}, 4});
  EXPECT_EQ(to_string(both.strategy), "zero2-bf16");
  EXPECT_EQ(both.optimizer.type, "SGD");
  EXPECT_EQ(both.optimizer.lr, 0.01);
  EXPECT_EQ(both.batch.global, 2 * 3 * 4);
  EXPECT_EQ(both.scheduler.settings, parse_config(read_text_file(own), own).scheduler.settings);

  write_text_file(json, "{\"gradient_clipping\": 1.0,\n \"train_micro_batch_size_per_gpu\": 4}\n");
  EXPECT_EQ(
      error_of([&] {
        (void)load_any_config(keel_keys(), {own, json, {}, 1});
      }),
      concat(json, ":1: gradient_clipping: makes clip 1.0, and ", own, " says 0.5; remove one of the two\n", json,
             ":2: train_micro_batch_size_per_gpu: makes batch.micro 4, and ", own, " says 2; remove one of the two"));
}

TEST(Foreign, LastRowsOfAnEpochAreThoseOfItsTrainer) {
  const TemporaryFolder folder;
  const std::string json = folder / "ds.json";
  const Words table = {"task.type=supervised", "data.path=t.csv", "model.heads=[{name: y}]", "steps=3"},
              packed = {"data.path=t.txt", "data.packing=true", "steps=3"};
  const auto last_of = [](const std::string& file, Words words, const char* more = nullptr) {
    if (more != nullptr) words.emplace_back(more);
    return load_any_config(keel_keys(), {file}, words).text("data.last");
  };
  for (const Words& data : {table, packed}) {
    write_text_file(json, "{\"train_batch_size\": 4, \"dataloader_drop_last\": true}\n");
    EXPECT_EQ(last_of(json, data), "drop");
    EXPECT_EQ(last_of(json, data, "data.last=join"), "join") << "the user's own word";
    write_text_file(json, "{\"train_batch_size\": 4, \"dataloader_drop_last\": false}\n");
    EXPECT_EQ(last_of(json, data), "fewer");
  }
  EXPECT_EQ(last_of(golden("parameters.yml"), packed), "drop");
  // Windows at random places have no epoch that ends.
  write_text_file(json, "{\"train_batch_size\": 4, \"dataloader_drop_last\": true}\n");
  const Config windows = load_any_config(keel_keys(), {json}, {"data.path=t.txt", "steps=3"});
  EXPECT_EQ(to_yaml(windows).find("last:"), std::string::npos);
}

struct Refusal {
  const char* text;
  const char* message;  // behind the name of the file
};

TEST(Foreign, WhatCannotBeReadIsToldWithItsLineAndKey) {
  const Refusal cases[] = {
      {"hps:\n  max_steps: 2\n  batchsize: 4\n",
       ":3: hps.batchsize: is no key of hps: files of accmt that keel knows, did you mean 'hps.batch_size'?"},
      {"hps:\n  max_steps: 2\n  batch_size: 4\n  optimizer: {type: SGD, momentun: 0.9}\n",
       ":4: hps.optimizer.momentun: keel has no 'optimizer.momentun', did you mean 'optimizer.momentum'?"},
      {"hps:\n  max_steps: 2\n  max_steps: 3\n", ":3: key 'max_steps' is given twice, first on line 2"},
      {"{\"train_batch_size\": 4,\n \"zero_optimization\": {\"stage\": 2, \"zero_quantized_nontrainable_weights\": "
       "true}}",
       ":2: zero_optimization.zero_quantized_nontrainable_weights: sharding.weight_code codes those of frozen blocks "
       "and of others alike"},
      {"{\"train_batch_size\": 4,\n \"data_efficiency\": {\"enabled\": true}}",
       ":2: data_efficiency: is no key of DeepSpeed's JSON that keel knows, and may change results; remove it"},
      {"{\"train_batch_size\": 10,\n \"train_micro_batch_size_per_gpu\": 2,\n \"gradient_accumulation_steps\": 2}",
       ":1: train_batch_size: is not train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks, which is 2 "
       "* "
       "2 * 1 = 4"},
      {"{\"train_batch_size\": 7,\n \"gradient_accumulation_steps\": 2}",
       ":1: train_batch_size: 7 cannot be shared out: 2 micro-batches on 1 rank"},
      {"{\"gradient_accumulation_steps\": 2}",
       ":1: gradient_accumulation_steps: nothing says how many rows a micro-batch has; give batch.micro=ROWS"},
      {"{\"train_batch_size\": 4, \"optimizer\": {\"type\": \"Adam\",\n \"params\": {\"lr\": \"auto\"}}}",
       ":2: optimizer.params.lr: auto: nothing says what it is; give optimizer.lr=VALUE"},
      {"{\"train_batch_size\": 4,\n \"bf16\": {\"enabled\": \"auto\"}}",
       ":2: bf16.enabled: auto: nothing says what it is; give precision=VALUE"},
      {"{\"train_batch_size\": 4, \"fp16\": {\"enabled\": true},\n \"bf16\": {\"enabled\": true}}",
       ":2: bf16.enabled: is true, and FILE:1: fp16.enabled is true; remove one of the two"},
      {"{\"train_batch_size\": 4, \"zero_optimization\": {\"stage\": 3,\n \"offload_param\": {\"device\": \"disk\"}}}",
       ":2: zero_optimization.offload_param.device: expects none, cpu or nvme"},
      {"{\"train_batch_size\": 4, \"optimizer\": {\"type\": \"OneBitAdam\"}}",
       ":1: optimizer.type: keel has no OneBitAdam; see gradient_compression"},
      {"{\"train_batch_size\": \"four\"}", ":1: train_batch_size: expects a number, got 'four'"},
      {"{\"train_batch_size\": 4\n \"bf16\": 1}",
       ":2: inside braces a comma is missing, or the closing }, as in {layers: "
       "2, width: 64}"},
      {"{\"train_batch_size\": 4,\n \"gradient_clipping\": -1}", ":2: clip: expects a number >= 0, got '-1'"},
      {"{\"train_batch_size\": 1e300}", ":1: train_batch_size: expects a whole number from 0 to 16777216, got '1e300'"},
      {"distributed_type: MEGATRON_LM\n",
       ":1: distributed_type: keel has no tensor parallelism; its strategies are ddp, zero1, zero2 and zero3"},
      {"distributed_type: 'NO'\nmixed_precision: fp8\n",
       ":2: mixed_precision: training does not offer fp8 yet; use bf16"},
      {"distributed_type: FSDP\nnum_processes: 4\nparallelism_config:\n  parallelism_config_dp_shard_size: 2\n"
       "  parallelism_config_tp_size: 2\n",
       ":4: parallelism_config.parallelism_config_dp_shard_size: makes 1 copy of 2 ranks, and 1 train; give -N 2\n"
       "FILE:5: parallelism_config.parallelism_config_tp_size: keel has no tensor or sequence parallelism"},
      {"distributed_type: MULTI_GPU\ndynamo_backend: INDUCTOR\n",
       ":2: dynamo_backend: keel's operations are compiled already"},
      {"distributed_type: MULTI_GPU\nnum_proceses: 2\n",
       ":2: num_proceses: is no key of the configuration file of Accelerate that keel knows, did you mean "
       "'num_processes'?"},
      {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: none.json\n",
       ":3: deepspeed_config.deepspeed_config_file: there is no file 'none.json'"},
      {"transformers-params: {mode: test, pretrained_model_dir: bert, num_epochs: null}\n",
       ":1: transformers-params.mode: keel train trains; a run is evaluated while it trains\n"
       "FILE:1: transformers-params.pretrained_model_dir: keel has no classification of sentences with a pretrained "
       "model "
       "yet; say what is trained: task, model and data"},
      {"config_class: x\nmodel_class: models.Net\n",
       ":1: its learning rate always cycles in 12 epochs, and nothing says how many steps those have; give "
       "scheduler.step_size_up=STEPS of 6 epochs, or another scheduler.type\n"
       "FILE:2: model_class: keel has none of its models yet: networks of linear layers and convolutions; say what is "
       "trained: task, model, data"},
      {"config_class: x\npred_names_and_types: [[a, cls]]\nloss_function: [builtins.Mine]\nloss_weights: [1, 2]\n",
       ":1: its learning rate always cycles in 12 epochs, and nothing says how many steps those have; give "
       "scheduler.step_size_up=STEPS of 6 epochs, or another scheduler.type\n"
       "FILE:3: loss_function: keel's heads have no loss 'Mine'; give model.heads\n"
       "FILE:4: loss_weights: says something of 2 predictions, and there are 1; a function of all of them, or of none, "
       "is a task of your own"},
      {"config_class: x\npred_names_and_types: [[a, image]]\n",
       ":1: its learning rate always cycles in 12 epochs, and nothing says how many steps those have; give "
       "scheduler.step_size_up=STEPS of 6 epochs, or another scheduler.type\n"
       "FILE:2: pred_names_and_types: expects names with a type, cls or regr, as in [[digit, cls], [angle, regr]]"},
      {"a: 1\n",
       ":1: is of no kind that keel knows: hps: files of accmt, parameters.yml of pytorch_universal_trainer, the "
       "configuration file of Accelerate, DeepSpeed's JSON, configs.json of generic_trainer"},
  };
  const TemporaryFolder folder;
  const std::string file = folder / "other";
  for (const Refusal& each : cases) {
    write_text_file(file, each.text);
    std::string message = concat(file, each.message);
    for (std::size_t at = message.find("FILE"); at != std::string::npos; at = message.find("FILE"))
      message.replace(at, 4, file);
    EXPECT_EQ(error_of([&] {
                const ForeignTranslation read = translate_file(keel_keys(), file, {}, 1);
                (void)config_of(keel_keys(), read, file, {"data.type=addition", "steps=1"});
              }),
              message)
        << each.text;
  }
}

TEST(Foreign, TheUsersOwnValuesAnswerForKeysThatWouldBeRefused) {
  const ForeignTranslation alone = translate_file(keel_keys(), golden("parameters.yml"), {}, 1);
  const ForeignTranslation answered = translate_file(keel_keys(), golden("parameters.yml"), kAdditions, 1);
  EXPECT_TRUE(alone.is_refused());
  EXPECT_FALSE(answered.is_refused()) << answered.problems();
  EXPECT_EQ(alone.told.size(), answered.told.size());
  std::set<std::string> kinds;
  for (const ForeignTold& told : answered.told) kinds.insert(std::string(name_of(told.verdict)));
  EXPECT_EQ(kinds, (std::set<std::string>{"mapped", "taken", "yours"}));
}

TEST(Foreign, EveryKeyOfAFileIsToldOnce) {
  for (const char* name : {"hps.yaml", "parameters.yml", "accelerate.yaml", "accelerate_fsdp.yaml",
                           "accelerate_old.yaml", "accelerate_parallelism.yaml", "deepspeed_auto.json"}) {
    const ForeignTranslation read = translate_file(keel_keys(), golden(name), kAdditions, 1);
    std::set<std::pair<int, std::string>> places;
    for (const ForeignTold& told : read.told) {
      if (told.key.empty()) continue;  // what its trainer does where no key says so
      EXPECT_TRUE(places.emplace(told.line, told.key).second) << told.key;
    }
    std::ifstream file(golden(name));
    int keys = 0;
    for (std::string line; std::getline(file, line);) keys += line.find(": ") != std::string::npos;
    EXPECT_GE(static_cast<int>(places.size()) + 2, keys) << name;  // a line of JSON may open a section
  }
}

TEST(Foreign, RowsNameKeysOfKeelsAndEachKeyOnce) {
  const Schema& schema = keel_keys()->schema("language");
  for (const ForeignKind* kind : foreign_kinds()) {
    std::set<std::string_view> seen;
    for (const ForeignRow& row : kind->rows) {
      EXPECT_TRUE(seen.insert(row.key).second) << kind->name << ": " << row.key;
      for (const std::string_view key : split_choices(row.to)) {
        const bool is_known =
            key.ends_with(".*") ? schema.is_section(key.substr(0, key.size() - 2)) : schema.is_key(key);
        EXPECT_TRUE(is_known) << kind->name << ": " << row.key << " becomes " << key;
      }
      EXPECT_TRUE(row.role == KeyRole::none || row.to.empty()) << row.key;
      EXPECT_TRUE(row.way == ForeignRow::Way::mapped || !row.note.empty()) << row.key;
    }
  }
}

TEST(Foreign, ThePageIsThatOfTheTables) {
  std::ifstream file(KEEL_SOURCE_DIR "/docs/foreign.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), foreign_reference()) << "run `build/keel docs foreign > docs/foreign.md`";
}

}  // namespace
}  // namespace keel
