// DeepSpeed's JSON.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/config/values.h"
#include "keel/runtime/error.h"
#include "keel/trainer/foreign/reading.h"

namespace keel::foreign {
namespace {

using Offload = Strategy::Offload;
using Precision = Strategy::Precision;
using Stage = Strategy::Stage;

void read_global(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto rows = reading.whole_number(entry)) reading.state(reading.facts().global, *rows, entry);
}
void read_each_rank(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto rows = reading.whole_number(entry)) reading.state(reading.facts().micro, *rows, entry);
}
void read_steps_between(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto times = reading.count(entry)) reading.state(reading.facts().accumulation, std::int64_t{*times}, entry);
}

void read_zero_stage(ForeignReading& reading, const ForeignEntry& entry) {
  const auto number = reading.whole_number(entry);
  if (!number) return;
  if (*number > 3) return reading.refuse(entry, "expects a stage from 0 to 3");
  reading.state(reading.facts().stage, static_cast<Stage>(static_cast<int>(Stage::ddp) + static_cast<int>(*number)),
                entry);
}

void read_fp16_enabled(ForeignReading& reading, const ForeignEntry& entry) {
  if (reading.flag(entry).value_or(false)) reading.state(reading.facts().precision, Precision::fp16, entry);
}
void read_bf16_enabled(ForeignReading& reading, const ForeignEntry& entry) {
  if (reading.flag(entry).value_or(false)) reading.state(reading.facts().precision, Precision::bf16, entry);
}

void read_loss_scale(ForeignReading& reading, const ForeignEntry& entry) {
  reading.facts().loss_scale.push_back(entry);
}

// 0: dynamic, from 2^initial_scale_power on.
void put_loss_scale(ForeignReading& reading, const ForeignEntry& entry) {
  const std::string_view word = std::string_view(entry.key).substr(entry.key.rfind('.') + 1);
  if (word == "loss_scale_window") return reading.put("loss_scale.interval", entry.value, entry);
  if (word == "hysteresis") return reading.put("loss_scale.hysteresis", entry.value, entry);
  if (word == "min_loss_scale") return reading.put("loss_scale.floor", entry.value, entry);
  const auto number = reading.number(entry);
  if (!number) return;
  if (word == "initial_scale_power") {
    if (!reading.has("loss_scale.initial")) reading.put("loss_scale.initial", yaml_of(std::exp2(*number)), entry);
    return;
  }
  reading.put("loss_scale.type", *number == 0 ? "dynamic" : "fixed", entry);
  if (*number != 0) reading.put("loss_scale.initial", entry.value, entry);
}

void finish_loss_scale(ForeignReading& reading) {
  if (!reading.is_fp16()) return;
  for (const ForeignEntry& entry : reading.facts().loss_scale) put_loss_scale(reading, entry);
  const ForeignEntry whole = reading.whole();
  if (!reading.has("loss_scale.type")) reading.put("loss_scale.type", "dynamic", whole);
  if (!reading.has("loss_scale.interval")) reading.put("loss_scale.interval", "1000", whole);
  if (!reading.has("loss_scale.hysteresis")) reading.put("loss_scale.hysteresis", "2", whole);
}

Offload offload_of(ForeignReading& reading, const ForeignEntry& entry) {
  if (entry.value.text == "cpu") return Offload::cpu;
  if (entry.value.text == "nvme") return Offload::nvme;
  if (entry.value.text != "none") reading.refuse(entry, "expects none, cpu or nvme");
  return Offload::none;
}
void read_optimizer_place(ForeignReading& reading, const ForeignEntry& entry) {
  reading.state(reading.facts().optimizer, offload_of(reading, entry), entry);
}
void read_parameter_place(ForeignReading& reading, const ForeignEntry& entry) {
  reading.state(reading.facts().parameter, offload_of(reading, entry), entry);
}

void read_folder(ForeignReading& reading, const ForeignEntry& entry) {
  const std::string& path = entry.value.text;
  if (path != "none" && path != "null" && !path.empty()) reading.state(reading.facts().folder, path, entry);
}

void read_persistence(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto elements = reading.whole_number(entry, std::int64_t{1} << 53))
    reading.put("sharding.persistence_threshold", std::to_string(*elements), entry);
}

void read_secondary(ForeignReading& reading, const ForeignEntry& entry) {
  const auto ranks = reading.whole_number(entry, 1048576);
  if (!ranks || *ranks == 1) return;
  reading.put("sharding.subgroup", std::to_string(*ranks), entry);
  reading.put("sharding.secondary", "true", entry);
}

// Its Adam decays the weights themselves unless adam_w_mode is false, and none of them decays where nothing says so.
void read_optimizer(ForeignReading& reading, const ForeignEntry& entry) {
  const YamlNode* params = nullptr;
  ForeignEntry type = entry;
  type.value = {};
  for (const ForeignEntry& each : reading.entries_of(entry)) {
    if (each.key == "optimizer.type") type = each;
    else if (each.key == "optimizer.legacy_fusion") continue;
    else if (each.key != "optimizer.params")
      reading.refuse(each, "is no key of DeepSpeed's optimizer; options stand in params");
  }
  for (const YamlEntry& each : entry.value.entries)
    if (each.key == "params") params = &each.value;
  if (type.value.kind != YamlNode::Kind::scalar) return reading.refuse(entry, "has no type");
  std::string name = type.value.text;
  for (const std::string_view kind : {"OneBitAdam", "ZeroOneAdam", "OneBitLamb", "MuAdam", "MuAdamW", "MuSGD", "Muon"})
    if (name == kind) return reading.refuse(type, concat("keel has no ", name, "; see gradient_compression"));
  bool has_decay = false, has_eps = false, decouples = true;
  const ForeignEntry section = {entry.file, "optimizer.params", entry.line, params == nullptr ? YamlNode{} : *params};
  for (const ForeignEntry& each : reading.entries_of(section)) {
    const std::string word = each.key.substr(each.key.rfind('.') + 1);
    if (word == "torch_adam") continue;
    if (word == "adam_w_mode") {
      if (const auto flag = reading.flag(each)) decouples = *flag;
      continue;
    }
    has_decay |= word == "weight_decay";
    has_eps |= word == "eps";
    if (each.value.text == "auto") {
      if (!reading.own(concat("optimizer.", word)))
        reading.refuse(each, concat("auto: nothing says what it is; give optimizer.", word, "=VALUE"));
      continue;
    }
    reading.put(concat("optimizer.", word), each.value, each);
  }
  if (name == "Adam" && decouples) name = "AdamW";
  reading.put("optimizer.type", name, type);
  if (name == "Lamb" && !has_eps) reading.put("optimizer.eps", "1e-8", type);
  if (!has_decay && (name == "AdamW" || name == "Lamb" || name == "LAMB" || name == "FusedAdam"))
    reading.put("optimizer.weight_decay", "0", type);
}

// What keel makes of `auto` here anyway.
bool keel_makes(std::string_view word) {
  for (const std::string_view each : {"total_num_steps", "warmup_max_lr", "warmup_min_lr", "cycle_max_lr"})
    if (word == each) return true;
  return false;
}

void read_scheduler(ForeignReading& reading, const ForeignEntry& entry) {
  for (const ForeignEntry& each : reading.entries_of(entry)) {
    if (each.key == "scheduler.type") {
      reading.put("scheduler.type", each.value, each);
    } else if (each.key == "scheduler.params") {
      for (const ForeignEntry& option : reading.entries_of(each)) {
        const std::string word = option.key.substr(option.key.rfind('.') + 1);
        YamlNode none;
        const std::string key = reading.request().schema.own_key(concat("scheduler.", word), none);
        if (option.value.text != "auto") reading.put(key, option.value, option);
        else if (!keel_makes(word) && !reading.own(key))
          reading.refuse(option, concat("auto: nothing says what it is; give ", key, "=VALUE"));
      }
    } else {
      reading.refuse(each, "is no key of DeepSpeed's scheduler; parameters stand in params");
    }
  }
}

// Of its own section; the other one, of data_efficiency, has metrics of samples that keel does not have.
void read_curriculum(ForeignReading& reading, const ForeignEntry& entry) {
  const auto last_word = [](const ForeignEntry& each) { return each.key.substr(each.key.rfind('.') + 1); };
  bool is_enabled = false;
  std::vector<ForeignEntry> entries;
  for (const ForeignEntry& each : reading.entries_of(entry)) {
    if (last_word(each) == "enabled") is_enabled = reading.flag(each).value_or(false);
    else if (last_word(each) != "schedule_config") entries.push_back(each);
    else
      for (const ForeignEntry& option : reading.entries_of(each)) entries.push_back(option);
  }
  if (!is_enabled) return;
  const auto schedule = std::ranges::find(entries, "schedule_type", last_word);
  if (schedule == entries.end()) return reading.refuse(entry, "is enabled and has no schedule_type");
  const bool is_discrete = schedule->value.text == "fixed_discrete";
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"schedule_type", "type"},        {"min_difficulty", "min_length"},
      {"max_difficulty", "max_length"}, {"total_curriculum_step", "steps"},
      {"difficulty_step", "multiple"},  {"root_degree", "root"},
      {"difficulty", "lengths"},        {"max_step", "until"}};
  for (const ForeignEntry& each : entries) {
    const std::string word = last_word(each);
    if (word == "curriculum_type") {
      if (each.value.text != "seqlen") reading.refuse(each, "keel's grows with the length of sequences: seqlen");
      continue;
    }
    const auto found = std::ranges::find(kWords, word, [](const auto& pair) { return pair.first; });
    if (found == std::end(kWords)) reading.refuse(each, "is no key of DeepSpeed's curriculum of lengths");
    // A list says its own ends.
    else if (!is_discrete || !word.ends_with("_difficulty"))
      reading.put(concat("curriculum.", found->second), each.value, each);
  }
}

void read_drop_last(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto are_dropped = reading.flag(entry)) put_last_rows(reading, entry, *are_dropped);
}

void finish_deepspeed(ForeignReading& reading) {
  const ForeignEntry whole = reading.whole();
  finish_loss_scale(reading);
  const bool says_training = reading.is_of(kDeepSpeed) && reading.request().own_yaml.empty();
  if (says_training && reading.has("optimizer.type") && !reading.has("scheduler.type"))
    reading.put("scheduler.type", "constant", whole);
}

constexpr std::string_view kSizes = "how much is gathered or summed at a time changes no result; keel goes by blocks";
constexpr std::string_view kBuffers = "changes no result; keel's is sharding.offload_budget, in bytes";
constexpr std::string_view kNoOther = "keel has nothing like it";
constexpr std::string_view kDeepSpeedOff = "false|False|0|none|null";
constexpr std::string_view kKeels = "keel's own";

constexpr ForeignRow kDeepSpeedRows[] = {
    with_auto(mapped("train_batch_size", "batch.global", read_global,
                     "= train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks"),
              "what the other two make"),
    mapped("train_micro_batch_size_per_gpu", "batch.micro", read_each_rank),
    with_auto(mapped("gradient_accumulation_steps", "batch.global", read_steps_between), "what the batches make, or 1"),
    with_auto(mapped("gradient_clipping", "clip"), "clip 1.0, which is keel's, too"),
    refused("prescale_gradients", "keel divides once, after the sum", kDeepSpeedOff),
    refused("gradient_predivide_factor", "keel divides once, after the sum", "1|1.0"),
    words("communication_data_type", "sharding.wire", "fp32=fp32|fp16=fp16|bf16=bf16|bfp16=bf16"),
    words("seq_parallel_communication_data_type", "sharding.wire", "fp32=fp32"),
    words("data_types.grad_accum_dtype", "sharding.gradient", "fp32=fp32|fp16=fp16|bf16=bf16"),
    with_auto(mapped("steps_per_print", "log.every"), kKeels),
    taken("wall_clock_breakdown", "keel's metrics always say where time goes"),
    taken("memory_breakdown", "keel's metrics always say what memory is for"),
    taken("dump_state", "`keel train --print-config` shows the configuration"),
    mapped("optimizer", "optimizer.type", read_optimizer,
           "with its params; Adam is AdamW unless adam_w_mode is false, and without weight_decay nothing decays"),
    mapped("scheduler", "scheduler.type", read_scheduler, "with its params; without one the rate is constant"),
    mapped("curriculum_learning", "curriculum.type", read_curriculum,
           "where it is enabled, of type seqlen, with its schedule; sequences are cut at their end"),
    mapped("fp16.enabled", "precision", read_fp16_enabled),
    refused("fp16.auto_cast", "keel's inputs are token numbers, or are cast by the task", "false|true"),
    with_auto(mapped("fp16.loss_scale", "loss_scale.type", read_loss_scale,
                     "where fp16 is on; 0: dynamic, else the scale is fixed"),
              "dynamic"),
    with_auto(mapped("fp16.initial_scale_power", "loss_scale.initial", read_loss_scale,
                     "2 to that power, where fp16 is on and the scale dynamic"),
              "16"),
    with_auto(mapped("fp16.loss_scale_window", "loss_scale.interval", read_loss_scale, "where fp16 is on; else 1000"),
              "1000"),
    with_auto(mapped("fp16.hysteresis", "loss_scale.hysteresis", read_loss_scale, "where fp16 is on; else 2"), "2"),
    refused("fp16.consecutive_hysteresis", "keel counts skipped steps since the last growth", kDeepSpeedOff),
    with_auto(mapped("fp16.min_loss_scale", "loss_scale.floor", read_loss_scale, "where fp16 is on"), "1"),
    refused("fp16.fp16_master_weights_and_grads", "keel's masters are fp32", kDeepSpeedOff),
    mapped("bf16.enabled", "precision", read_bf16_enabled),
    refused("bf16.immediate_grad_update", "keel updates at the end of a step", "false|true"),
    refused("amp.enabled", "keel has no apex; enable bf16 or fp16", kDeepSpeedOff),
    refused("amp.*", "keel has no apex", kDeepSpeedOff),
    mapped("zero_optimization.stage", "strategy", read_zero_stage, "ddp, zero1, zero2 or zero3"),
    taken("zero_optimization.contiguous_gradients", "keel's are"),
    taken("zero_optimization.reduce_scatter", "keel's zero2 and zero3 do; the sums are the same"),
    taken("zero_optimization.reduce_bucket_size", kSizes),
    taken("zero_optimization.allgather_partitions", "the weights are the same either way"),
    taken("zero_optimization.allgather_bucket_size", kSizes),
    with_auto(mapped("zero_optimization.overlap_comm", "sharding.overlap"), kKeels),
    taken("zero_optimization.round_robin_gradients", "changes no result"),
    taken("zero_optimization.sub_group_size", kSizes),
    taken("zero_optimization.stage3_prefetch_bucket_size", "changes no result; keel's is sharding.prefetch, in blocks"),
    with_auto(mapped("zero_optimization.stage3_param_persistence_threshold", "sharding.persistence_threshold",
                     read_persistence, "of the numbers of a block, not of a parameter; changes no result"),
              kKeels),
    taken("zero_optimization.stage3_max_live_parameters", kSizes),
    taken("zero_optimization.stage3_max_reuse_distance", kSizes),
    taken("zero_optimization.stage3_gather_16bit_weights_on_model_save",
          "keel get writes whole weights of any checkpoint"),
    taken("zero_optimization.stage3_gather_fp16_weights_on_model_save",
          "keel get writes whole weights of any checkpoint"),
    taken("zero_optimization.ignore_unused_parameters", "keel's gradient of one is zero; see sharding.strict"),
    taken("zero_optimization.load_from_fp32_weights", "keel's checkpoints hold the fp32 masters"),
    taken("zero_optimization.elastic_checkpoint", "any number of ranks goes on from keel's checkpoints"),
    mapped("zero_optimization.zero_hpz_partition_size", "sharding.subgroup", read_secondary,
           "with sharding.secondary where it is above 1"),
    words("zero_optimization.zero_quantized_weights", "sharding.weight_code", "true=int8|false=exact"),
    refused("zero_optimization.zero_quantized_nontrainable_weights",
            "sharding.weight_code codes those of frozen blocks and of others alike", kDeepSpeedOff),
    words("zero_optimization.zero_quantized_gradients", "gradient_compression.type", "true=qgz|false=none"),
    refused("zero_optimization.mics_shard_size", "keel's is sharding.group", "-1|0"),
    refused("zero_optimization.legacy_stage1", "keel has one stage 1", kDeepSpeedOff),
    refused("zero_optimization.cpu_offload", "write offload_optimizer: {device: cpu}", kDeepSpeedOff),
    mapped("zero_optimization.offload_optimizer.device", "sharding.offload_optimizer", read_optimizer_place),
    mapped("zero_optimization.offload_optimizer.nvme_path", "sharding.offload_folder", read_folder,
           "read with device nvme alone"),
    taken("zero_optimization.offload_optimizer.pin_memory", "keel's always is"),
    taken("zero_optimization.offload_optimizer.buffer_count", kBuffers),
    taken("zero_optimization.offload_optimizer.fast_init", "changes no result"),
    refused("zero_optimization.offload_optimizer.ratio", "keel keeps all of it on one side", "1|1.0"),
    taken("zero_optimization.offload_optimizer.pipeline", "changes no result"),
    taken("zero_optimization.offload_optimizer.pipeline_read", "changes no result"),
    taken("zero_optimization.offload_optimizer.pipeline_write", "changes no result"),
    mapped("zero_optimization.offload_param.device", "sharding.offload_parameters", read_parameter_place),
    mapped("zero_optimization.offload_param.nvme_path", "sharding.offload_folder", read_folder,
           "read with device nvme alone"),
    taken("zero_optimization.offload_param.pin_memory", "keel's always is"),
    taken("zero_optimization.offload_param.buffer_count", kBuffers),
    taken("zero_optimization.offload_param.buffer_size", kBuffers),
    taken("zero_optimization.offload_param.max_in_cpu", kBuffers),
    refused("activation_checkpointing.partition_activations", kNoOther, kDeepSpeedOff),
    refused("activation_checkpointing.cpu_checkpointing", kNoOther, kDeepSpeedOff),
    taken("activation_checkpointing.contiguous_memory_optimization", "changes no result"),
    taken("activation_checkpointing.number_checkpoints", "changes no result"),
    taken("activation_checkpointing.synchronize_checkpoint_boundary", "changes no result"),
    taken("activation_checkpointing.profile", "changes no result"),
    taken("aio.*", "changes no result; keel's are sharding.offload_budget and sharding.offload_threads"),
    taken("flops_profiler.*", "changes no result; keel's metrics have the speed"),
    taken("comms_logger.*", "changes no result; keel's is log.trace"),
    taken("zero_allow_untested_optimizer", "keel's stages take every optimizer that fits them, and say which does not"),
    taken("zero_force_ds_cpu_optimizer", "keel's update on the processor has the same bits"),
    taken("disable_allgather", "changes no result"),
    refused("sparse_gradients", "keel's embeddings say so themselves", kDeepSpeedOff),
    with_auto(mapped("dataloader_drop_last", "", read_drop_last, "`data.last`: drop or fewer, where data has epochs"),
              "as keel does"),
    taken("tensorboard.*", "changes no result; keel's trackers are chosen by `tracker`"),
    taken("csv_monitor.*", "changes no result; keel's trackers are chosen by `tracker`"),
    taken("wandb.*", "changes no result; keel's trackers are chosen by `tracker`"),
};

}  // namespace

const ForeignKind kDeepSpeed = {
    .name = "deepspeed",
    .title = "DeepSpeed's JSON",
    .signs =
        "train_batch_size|train_micro_batch_size_per_gpu|gradient_accumulation_steps|zero_optimization|fp16|bf16|"
        "gradient_clipping|steps_per_print",
    .about =
        "Alone, or beside a configuration by `--deepspeed_config_file`. `\"auto\"` takes what the configuration or "
        "KEY=VALUE says; where nothing does, it is refused, unless the table says what it means.",
    .rows = kDeepSpeedRows,
    .finish = finish_deepspeed,
    .has_auto = true};

}  // namespace keel::foreign
