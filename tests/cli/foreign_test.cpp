// Files of other trainers at the command line: training from them as they are, keel config --from, and the options of
// other launchers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/sandbox.h"
#include "tests/cli/start_rank.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::Sandbox;

std::string golden(const std::string& name) { return concat(KEEL_SOURCE_DIR "/tests/golden/foreign/", name); }

constexpr const char* kTiny =
    " data.type=addition data.digits=1 steps=2 'model={layers: 1, heads: 1, width: 8, block: 8}' eval.every=0 "
    "eval.samples=4 device=cpu threads=1 run=here ";

TEST(ForeignFiles, EachKindTrainsAsItIs) {
  struct Case {
    const char* file;
    const char* more;
  };
  for (const Case& each : {Case{"hps.yaml", ""}, Case{"parameters.yml", ""}, Case{"accelerate.yaml", "batch.micro=3"},
                           Case{"deepspeed.json", "loss_scale.initial=4"}}) {
    SCOPED_TRACE(each.file);
    const Sandbox sandbox;
    const Outcome outcome = sandbox.keel(concat("train ", golden(each.file), kTiny, each.more, " --thread-ranks 2"));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(sandbox.read("here/metrics.jsonl").find("\"step\":2"), std::string::npos);
  }
}

TEST(ForeignFiles, ConfigWritesWhatTrainsTheSame) {
  const Sandbox sandbox;
  const Outcome made =
      sandbox.keel(concat("config --from ", golden("deepspeed.json"), kTiny, " --ranks 2 --out c.yaml"));
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.out.find("fp16.loss_scale_window: 500"), std::string::npos) << made.out;
  const Outcome direct =
      sandbox.keel(concat("train --print-config ", golden("deepspeed.json"), kTiny, " --thread-ranks 2"));
  const Outcome written = sandbox.keel("train --print-config c.yaml");
  EXPECT_EQ(direct.code, 0) << direct.err;
  EXPECT_EQ(written.out, direct.out);

  EXPECT_EQ(sandbox.keel(concat("plan ", golden("deepspeed.json"), kTiny, " -N 2")).code, 0);
  const Outcome again = sandbox.keel(concat("config --from ", golden("deepspeed.json"), kTiny, " --out c.yaml"));
  EXPECT_EQ(again.code, 2);
  EXPECT_EQ(again.err, "keel: error: 'c.yaml' is there already, and is not replaced; name another by --out\n");
}

TEST(ForeignFiles, ConfigShowsEveryKeyAndWritesNothingWhereOneIsRefused) {
  const Sandbox sandbox;
  const auto before = sandbox.contents();
  const Outcome outcome = sandbox.keel(concat("config --from ", golden("parameters.yml"), " --out c.yaml"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("parameters.yml:7: transformers-params.pretrained_model_dir: keel has no"),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.out.find("optimizer.lr: 2e-5"), std::string::npos) << outcome.out;
  EXPECT_EQ(sandbox.contents(), before);
}

TEST(ForeignFiles, ADeepSpeedFileBesideAConfigurationMayNotContradictIt) {
  const Sandbox sandbox;
  sandbox.write("c.yaml",
                "steps: 2\nclip: 0.5\ndata: {type: addition, digits: 1}\n"
                "model: {layers: 1, heads: 1, width: 8, block: 8}\nbatch: {micro: 2, global: 4}\n"
                "eval: {samples: 4}\nthreads: 1\n");
  sandbox.write("ds.json",
                "{\"train_batch_size\": \"auto\",\n \"gradient_clipping\": 0.5, \"zero_optimization\": "
                "{\"stage\": 2}}\n");
  EXPECT_EQ(sandbox.keel("train c.yaml --deepspeed_config_file ds.json").code, 0);
  EXPECT_NE(sandbox.read("runs/c/config.yaml").find("strategy: zero2-fp32"), std::string::npos);
  sandbox.write("ds.json", "{\"train_batch_size\": \"auto\",\n \"gradient_clipping\": 1}\n");
  const auto before = sandbox.contents();
  const Outcome outcome = sandbox.keel("train c.yaml --deepspeed_config_file ds.json run=other");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err,
            "keel: error: ds.json:2: gradient_clipping: makes clip 1, and c.yaml says 0.5; remove one of the two\n");
  EXPECT_EQ(sandbox.contents(), before);
}

TEST(ForeignFiles, DefaultIsTheFileThatAccelerateHasWritten) {
  const Sandbox sandbox;
  sandbox.write("c.yaml", "steps: 2\ndata: {type: addition}\nbatch: {micro: 3}\ndevice: cpu\n");
  const std::string home = sandbox / "hub", file = home + "/accelerate/default_config.yaml";
  std::filesystem::create_directories(home + "/accelerate");
  std::filesystem::copy_file(golden("accelerate.yaml"), file);
  ::setenv("HF_HOME", home.c_str(), 1);
  const Outcome launched = sandbox.keel("launch --dry-run --threads --config_file default c.yaml");
  EXPECT_NE(launched.out.find(concat("train --thread-ranks 2 c.yaml --config-file=", file)), std::string::npos)
      << launched.out << launched.err;
  const Outcome trained = sandbox.keel("train --print-config --config_file default c.yaml");
  EXPECT_NE(trained.out.find("strategy: zero2"), std::string::npos) << trained.out << trained.err;
  std::filesystem::remove(file);
  const Outcome gone = sandbox.keel("launch --dry-run --config_file default c.yaml");
  ::unsetenv("HF_HOME");
  EXPECT_EQ(gone.code, 2);
  EXPECT_EQ(gone.err, concat("keel: error: --config-file default: there is no file '", file,
                             "', which `accelerate config` writes; name one, or ./default\n"));
}

TEST(ForeignFiles, LaunchTakesOptionsAndFilesOfOtherLaunchers) {
  const Sandbox sandbox;
  sandbox.write("c.yaml", "steps: 2\ndata: {type: addition}\nbatch: {micro: 2}\n");
  const auto dry = [&](const std::string& words) {
    const Outcome outcome = sandbox.keel("launch --dry-run " + words);
    EXPECT_EQ(outcome.code, 0) << words << ": " << outcome.err;
    return outcome.out;
  };
  const auto expect = [&](const std::string& words, const std::string& part) {
    const std::string line = dry(words);
    EXPECT_NE(line.find(part), std::string::npos) << words << ": " << line;
  };
  expect("--threads --num_processes 2 --mixed_precision bf16 --zero-stage 2 c.yaml",
         "train --thread-ranks 2 c.yaml strategy=zero2 precision=bf16\n");
  expect("--threads --num_processes 2 --gradient_accumulation_steps 3 --gradient_clipping 0.5 c.yaml",
         "c.yaml clip=0.5 batch.global=12\n");
  expect("--threads --use_fsdp --nproc_per_node 2 --cpu c.yaml", "--thread-ranks 2 c.yaml device=cpu strategy=zero3\n");
  expect("-N 3 --strat dp c.yaml", "train --thread-ranks 3 c.yaml strategy=ddp\n");
  expect("--threads --config_file " + golden("accelerate.yaml") + " c.yaml", "--thread-ranks 2 c.yaml --config-file=");
  expect("--threads " + golden("accelerate.yaml") + " steps=2 batch.micro=1", "train --thread-ranks 2 ");
  expect("-N 4 --num_machines 2 --machine_rank 1 --main_process_ip a --main_process_port 29600 c.yaml",
         "launch --processes 2 --meet 1/2@a:29600 --rank ");
  EXPECT_EQ(sandbox.keel("launch --dry-run --threads -N 2 --monitor_interval 5 --quiet c.yaml").err,
            "keel: note: --monitor-interval: no effect here: keel hears at once when a rank ends\n"
            "keel: note: --quiet: no effect here: the first rank alone prints\n");
  EXPECT_EQ(sandbox.keel("launch --dry-run -N 2 --zero_stage 7 c.yaml").err,
            "keel: error: --zero_stage 7: expects a stage from 0 to 3\n");
  EXPECT_EQ(sandbox.keel("launch --dry-run -N 2 --num_machines 2 --main_process_ip a c.yaml").err,
            "keel: error: which of the 2 machines is this? --machine-rank, or NODE_RANK, is a number from 0 to 1\n");
}

// Options of accelerate launch, torchrun and accmt that a person who had one of them may type.
TEST(ForeignFiles, LaunchSaysOnceOfAnOptionThatItHasNoEffectHere) {
  const Sandbox sandbox;
  sandbox.write("c.yaml", "steps: 2\ndata: {type: addition}\nbatch: {micro: 2}\n");
  const std::vector<std::string> options = {"--same_network",
                                            "--rdzv_backend static",
                                            "--rdzv_conf a=b",
                                            "--rdzv_id 7",
                                            "--standalone",
                                            "--monitor_interval 5",
                                            "--tee 3",
                                            "--redirects 3",
                                            "--log_dir logs",
                                            "--module",
                                            "--no_python",
                                            "--quiet",
                                            "--debug",
                                            "--enable_cpu_affinity",
                                            "--main_training_function main",
                                            "--zero3_init_flag true",
                                            "--zero3_save_16bit_model true",
                                            "--deepspeed_multinode_launcher pdsh",
                                            "--fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP",
                                            "--fsdp_transformer_layer_cls_to_wrap Block",
                                            "--fsdp_min_num_params 1000",
                                            "--fsdp_cpu_ram_efficient_loading true",
                                            "--fsdp_forward_prefetch true",
                                            "--fsdp_state_dict_type SHARDED_STATE_DICT",
                                            "--fsdp_sync_module_states true",
                                            "--fsdp_use_orig_params true",
                                            "--fsdp_version 2",
                                            "--debug_timings",
                                            "--evaluation_device_indices 3",
                                            "--level 2",
                                            "--suppress_queue",
                                            "--queue_file .accmt"};
  const auto dry = [&](const std::string& words) {
    return sandbox.keel(concat("launch --dry-run --threads -N 2 ", words, " c.yaml"));
  };
  const std::string plain = dry("").out;
  for (const char separator : {'_', '-'}) {
    std::string words;
    for (const std::string& option : options) {
      std::string spelt = option;
      std::replace(spelt.begin(), spelt.begin() + static_cast<std::ptrdiff_t>(std::min(spelt.find(' '), spelt.size())),
                   '_', separator);
      words += spelt + ' ';
    }
    const Outcome outcome = dry(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, plain);
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), std::ssize(options)) << outcome.err;
    for (const std::string& option : options) {
      std::string name = option.substr(0, option.find(' '));
      std::ranges::replace(name, '_', '-');
      EXPECT_NE(outcome.err.find(concat("keel: note: ", name, ": no effect here: ")), std::string::npos) << name;
    }
  }
  const Outcome letters = dry("-m -q -e 3 -L 2 -O1 -Q .accmt");
  EXPECT_EQ(letters.out, plain) << letters.err;
  EXPECT_EQ(std::count(letters.err.begin(), letters.err.end(), '\n'), 6) << letters.err;
}

TEST(ForeignFiles, MachinesThatAreStartedByHandTrainTogether) {
  const Sandbox sandbox;
  sandbox.write("c.yaml",
                "steps: 2\ndata: {type: addition, digits: 1}\neval: {samples: 4}\nthreads: 1\n"
                "model: {layers: 1, heads: 1, width: 8, block: 8}\nbatch: {global: 4}\n");
  const testing::FreePort free;
  const std::string port = std::to_string(free.number());
  const std::string both = "export MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + " && ";
  testing::RunningProgram second("launch --nproc_per_node 1 --nnodes 2 c.yaml", sandbox / ".",
                                 both + "export NODE_RANK=1");
  testing::RunningProgram first("launch --nproc_per_node 1 --nnodes 2 c.yaml", sandbox / ".",
                                both + "export NODE_RANK=0");
  const Outcome of_first = first.wait(), of_second = second.wait();
  EXPECT_EQ(of_first.code, 0) << of_first.err;
  EXPECT_EQ(of_second.code, 0) << of_second.err;
  EXPECT_TRUE(sandbox.has("runs/c/logs/rank-1.log"));
}

}  // namespace
}  // namespace keel::cli
