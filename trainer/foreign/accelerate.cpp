// The configuration file of Accelerate, which `accelerate config` writes.

#include <algorithm>
#include <string>

#include "keel/runtime/error.h"
#include "keel/trainer/foreign/reading.h"

namespace keel::foreign {
namespace {

using Stage = Strategy::Stage;

void read_processes(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto count = reading.count(entry)) reading.launch().ranks = *count;
}
void read_machines(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto count = reading.count(entry)) reading.launch().machines = *count;
}
void read_machine_rank(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto number = reading.count(entry)) reading.launch().machine = *number;
}
void read_main_address(ForeignReading& reading, const ForeignEntry& entry) {
  reading.launch().address = entry.value.text;
}
void read_main_port(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto port = reading.count(entry)) reading.launch().port = *port;
}
void read_gpu_ids(ForeignReading& reading, const ForeignEntry& entry) {
  if (entry.value.text != "all") reading.launch().gpus = entry.value.text;
}

void read_cpu(ForeignReading& reading, const ForeignEntry& entry) {
  if (reading.flag(entry).value_or(false)) reading.put("device", "cpu", entry);
}

void read_mixed_precision(ForeignReading& reading, const ForeignEntry& entry) {
  const std::string name = entry.value.text == "no" ? "fp32" : entry.value.text;
  for (const auto precision : {Strategy::Precision::fp32, Strategy::Precision::bf16, Strategy::Precision::fp16})
    if (name == name_of(precision)) return reading.state(reading.facts().precision, precision, entry);
  reading.refuse(entry, name == "fp8" ? "training does not offer fp8 yet; use bf16" : "expects no, fp16 or bf16");
}

// As files before 0.11 say it.
void read_old_fp16(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto is_on = reading.flag(entry))
    reading.state(reading.facts().precision, *is_on ? Strategy::Precision::fp16 : Strategy::Precision::fp32, entry);
}

// What DeepSpeed and FSDP share out stands in their sections.
void read_type(ForeignReading& reading, const ForeignEntry& entry) {
  const std::string& type = entry.value.text;
  reading.facts().type = entry;
  for (const std::string_view plain : {"NO", "DEEPSPEED", "FSDP"})
    if (type == plain) return;
  for (const std::string_view parallel : {"MULTI_GPU", "MULTI_CPU"})
    if (type == parallel) return reading.state(reading.facts().stage, Stage::ddp, entry);
  reading.refuse(entry, type == "MEGATRON_LM" || type == "TP"
                            ? "keel has no tensor parallelism; its strategies are ddp, zero1, zero2 and zero3"
                            : "keel trains on processors and NVIDIA GPUs: NO, MULTI_CPU, MULTI_GPU, DEEPSPEED or FSDP");
}

void read_stage(ForeignReading& reading, const ForeignEntry& entry) {
  const auto number = reading.whole_number(entry);
  if (!number) return;
  if (*number > 3) return reading.refuse(entry, "expects a stage from 0 to 3");
  reading.state(reading.facts().stage, static_cast<Stage>(static_cast<int>(Stage::ddp) + static_cast<int>(*number)),
                entry);
}

void read_times(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto times = reading.count(entry)) reading.state(reading.facts().accumulation, std::int64_t{*times}, entry);
}

Strategy::Offload place_of(ForeignReading& reading, const ForeignEntry& entry) {
  if (entry.value.text == "cpu") return Strategy::Offload::cpu;
  if (entry.value.text == "nvme") return Strategy::Offload::nvme;
  if (entry.value.text != "none") reading.refuse(entry, "expects none, cpu or nvme");
  return Strategy::Offload::none;
}
void read_optimizer_device(ForeignReading& reading, const ForeignEntry& entry) {
  reading.state(reading.facts().optimizer, place_of(reading, entry), entry);
}
void read_param_device(ForeignReading& reading, const ForeignEntry& entry) {
  reading.state(reading.facts().parameter, place_of(reading, entry), entry);
}

void read_nvme_path(ForeignReading& reading, const ForeignEntry& entry) {
  const std::string& path = entry.value.text;
  if (path != "none" && path != "null" && !path.empty()) reading.state(reading.facts().folder, path, entry);
}

void read_json(ForeignReading& reading, const ForeignEntry& entry) { reading.read_beside(kDeepSpeed, entry); }

// By name, or by its number.
void read_sharding_strategy(ForeignReading& reading, const ForeignEntry& entry) {
  struct Named {
    std::string_view name, number;
    Stage stage;
  };
  constexpr Named kNames[] = {{"FULL_SHARD", "1", Stage::zero3},
                              {"SHARD_GRAD_OP", "2", Stage::zero2},
                              {"NO_SHARD", "3", Stage::ddp},
                              {"HYBRID_SHARD", "4", Stage::zero3},
                              {"HYBRID_SHARD_ZERO2", "5", Stage::zero2}};
  for (const Named& each : kNames) {
    if (entry.value.text != each.name && entry.value.text != each.number) continue;
    reading.state(reading.facts().stage, each.stage, entry);
    if (each.name.starts_with("HYBRID")) reading.facts().group_is_a_machine = entry;
    return;
  }
  reading.refuse(entry, "expects FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2");
}

// FSDP 2 says whether, and FSDP 1 the sharding strategy.
void read_reshard(ForeignReading& reading, const ForeignEntry& entry) {
  if (entry.value.text.find("SHARD") != std::string::npos) return read_sharding_strategy(reading, entry);
  if (const auto reshards = reading.flag(entry))
    reading.put("sharding.reshard_after_forward", *reshards ? "true" : "false", entry);
}

void read_shard_size(ForeignReading& reading, const ForeignEntry& entry) {
  const auto ranks = reading.count(entry);
  if (!ranks) return;
  if (*ranks < 1) return reading.refuse(entry, "must be at least 1");
  if (*ranks == 1) return reading.state(reading.facts().stage, Stage::ddp, entry);
  reading.state(reading.facts().shard_size, *ranks, entry);
}
void read_replicas(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto copies = reading.count(entry)) reading.state(reading.facts().replicas, *copies, entry);
}

void read_offload_params(ForeignReading& reading, const ForeignEntry& entry) {
  if (!reading.flag(entry).value_or(false)) return;
  reading.state(reading.facts().parameter, Strategy::Offload::cpu, entry);
  reading.state(reading.facts().optimizer, Strategy::Offload::cpu, entry);
}

void read_recompute(ForeignReading& reading, const ForeignEntry& entry) {
  if (!reading.flag(entry).value_or(false)) return;
  const std::string_view key = reading.key_of(KeyRole::recompute);
  if (key.empty())
    return reading.refuse(entry, concat("the task that is trained has no key for ", words_of(KeyRole::recompute)));
  reading.put(key, "true", entry);
}

void finish_accelerate(ForeignReading& reading) {
  const auto& type = reading.facts().type;
  if (type && !reading.facts().stage && !reading.reads_beside()) {
    if (type->value.text == "DEEPSPEED") reading.facts().stage = {Stage::zero2, *type};
    if (type->value.text == "FSDP") reading.facts().stage = {Stage::zero3, *type};
  }
  const auto &shard_size = reading.facts().shard_size, &replicas = reading.facts().replicas;
  if (shard_size || replicas) {
    const ForeignEntry& from = shard_size ? shard_size->from : replicas->from;
    const std::int64_t size = shard_size ? shard_size->value : 1, copies = replicas ? replicas->value : 1;
    if (size * copies != reading.ranks())
      return reading.refuse(
          from, concat("makes ", copies, " cop", copies == 1 ? "y" : "ies", " of ", size, " rank", size == 1 ? "" : "s",
                       ", and ", reading.ranks(), " train; give -N ", size * copies));
    if (shard_size) reading.put("sharding.group", std::to_string(size), from);
  }
  const auto& hybrid = reading.facts().group_is_a_machine;
  if (!hybrid) return;
  const int machines = std::max(1, reading.launch().machines.value_or(1));
  if (reading.ranks() % machines != 0)
    return reading.refuse(*hybrid, concat("groups are the ranks of a machine, and ", reading.ranks(),
                                          " ranks are not so many on each of ", machines));
  reading.put("sharding.group", std::to_string(reading.ranks() / machines), *hybrid);
}

constexpr std::string_view kAccelerateOff = "false|False|no|none|NO|NONE|null|{}";
constexpr std::string_view kCompiled = "keel's operations are compiled already";
constexpr std::string_view kParallel = "keel has no tensor or sequence parallelism";
constexpr std::string_view kSame = "changes no result";
constexpr std::string_view kBlocks = "keel shards by transformer blocks";
constexpr std::string_view kByKeel =
    "keel launch starts ranks by MPI, Slurm, ssh or as threads; see keel launch --help";

constexpr ForeignRow kAccelerateRows[] = {
    refused("compute_environment", "keel does not rent machines; start it where it shall run", "LOCAL_MACHINE"),
    refused("command_file", "keel has no TPUs", kAccelerateOff),
    refused("commands", "keel has no TPUs", "[]"),
    taken("debug", "keel's ranks always check that they do the same"),
    mapped("distributed_type", "strategy", read_type,
           "MULTI_GPU and MULTI_CPU are ddp, DEEPSPEED is zero2 and FSDP zero3 where no key says a stage"),
    refused("downcast_bf16", "keel has no TPUs", kAccelerateOff),
    taken("enable_cpu_affinity", "keel launch --bind-to core does so"),
    mapped("fp16", "precision", read_old_fp16, "as files before mixed_precision have it"),
    mapped("gpu_ids", "", read_gpu_ids, "keel launch --gpu_ids"),
    mapped("machine_rank", "", read_machine_rank, "keel launch --machine_rank"),
    mapped("main_process_ip", "", read_main_address, "keel launch --main_process_ip"),
    mapped("main_process_port", "", read_main_port, "keel launch --main_process_port"),
    taken("main_training_function", "keel train is what the ranks run"),
    mapped("mixed_precision", "precision", read_mixed_precision, "no is fp32"),
    mapped("num_machines", "", read_machines, "keel launch --num_machines"),
    mapped("num_processes", "", read_processes, "keel launch -N, on all machines together"),
    taken("rdzv_backend", "keel's ranks meet at the first machine's address"),
    taken("same_network", "keel's ranks meet at the first machine's address"),
    refused("tpu_name", "keel has no TPUs", kAccelerateOff),
    refused("tpu_vm", "keel has no TPUs", "[]"),
    refused("tpu_zone", "keel has no TPUs", kAccelerateOff),
    refused("tpu_env", "keel has no TPUs", "[]"),
    refused("tpu_use_cluster", "keel has no TPUs", kAccelerateOff),
    refused("tpu_use_sudo", "keel has no TPUs", kAccelerateOff),
    mapped("use_cpu", "device", read_cpu, "cpu"),
    refused("dynamo_backend", kCompiled, "no|NO"),
    refused("dynamo_config.*", kCompiled, "no|NO"),
    refused("megatron_lm_config.*", "keel has no tensor parallelism"),
    mapped("parallelism_config.parallelism_config_dp_replicate_size", "", read_replicas,
           "copies of what is sharded; with dp_shard_size as many as there are ranks"),
    mapped("parallelism_config.parallelism_config_dp_shard_size", "sharding.group", read_shard_size, "1 is ddp"),
    refused("parallelism_config.*", kParallel, "1"),
    refused("fp8_config.*", "training does not offer fp8 yet; use bf16"),
    refused("ipex_config.*", "keel has oneDNN itself, by `kernels: auto`", kAccelerateOff),
    refused("mpirun_config.*", "keel launch finds the launcher; --hostfile names the machines"),
    mapped("deepspeed_config.deepspeed_config_file", "", read_json,
           "that file is read, too; the two may not contradict"),
    mapped("deepspeed_config.gradient_accumulation_steps", "batch.global", read_times),
    mapped("deepspeed_config.gradient_clipping", "clip"),
    mapped("deepspeed_config.offload_optimizer_device", "sharding.offload_optimizer", read_optimizer_device),
    mapped("deepspeed_config.offload_param_device", "sharding.offload_parameters", read_param_device),
    mapped("deepspeed_config.offload_optimizer_nvme_path", "sharding.offload_folder", read_nvme_path,
           "read with device nvme alone"),
    mapped("deepspeed_config.offload_param_nvme_path", "sharding.offload_folder", read_nvme_path,
           "read with device nvme alone"),
    taken("deepspeed_config.zero3_init_flag", "keel's models are made shard by shard"),
    taken("deepspeed_config.zero3_save_16bit_model", "keel get --dtype bf16 writes whole weights of any checkpoint"),
    mapped("deepspeed_config.zero_stage", "strategy", read_stage, "ddp, zero1, zero2 or zero3"),
    taken("deepspeed_config.deepspeed_multinode_launcher", kByKeel),
    taken("deepspeed_config.deepspeed_hostfile", "keel launch --hostfile reads it"),
    refused("deepspeed_config.deepspeed_exclusion_filter", "name the machines: keel launch --hosts", kAccelerateOff),
    refused("deepspeed_config.deepspeed_inclusion_filter", "name the machines: keel launch --hosts", kAccelerateOff),
    refused("deepspeed_config.deepspeed_moe_layer_cls_names", "keel has no mixtures of experts", kAccelerateOff),
    mapped("fsdp_config.fsdp_activation_checkpointing", KeyRole::recompute, "where it is true", read_recompute),
    refused("fsdp_config.fsdp_activation_checkpointing_offload",
            "keel computes activations again, or keeps them where they are", kAccelerateOff),
    taken("fsdp_config.fsdp_auto_wrap_policy", kBlocks),
    taken("fsdp_config.fsdp_transformer_layer_cls_to_wrap", kBlocks),
    taken("fsdp_config.fsdp_min_num_params", kBlocks),
    words("fsdp_config.fsdp_backward_prefetch", "sharding.prefetch",
          "BACKWARD_PRE=1|BACKWARD_POST=1|NO_PREFETCH=0|no=0"),
    words("fsdp_config.fsdp_backward_prefetch_policy", "sharding.prefetch",
          "BACKWARD_PRE=1|BACKWARD_POST=1|NO_PREFETCH=0|no=0"),
    taken("fsdp_config.fsdp_cpu_ram_efficient_loading", kSame),
    taken("fsdp_config.fsdp_forward_prefetch", kSame),
    mapped("fsdp_config.fsdp_offload_params", "sharding.offload_parameters", read_offload_params,
           "parameters and optimizer state in the processor's memory"),
    mapped("fsdp_config.fsdp_sharding_strategy", "strategy", read_sharding_strategy,
           "zero3, zero2 or ddp; HYBRID_SHARD makes a machine's ranks a sharding.group"),
    mapped("fsdp_config.fsdp_reshard_after_forward", "sharding.reshard_after_forward", read_reshard,
           "with FSDP 1 a sharding strategy, as above"),
    taken("fsdp_config.fsdp_state_dict_type", "keel's checkpoints are sharded, and keel get writes whole ones"),
    taken("fsdp_config.fsdp_sync_module_states", "keel's ranks begin with the same weights"),
    taken("fsdp_config.fsdp_use_orig_params", "keel's groups of parameters go by name"),
    taken("fsdp_config.fsdp_version", kSame),
};

}  // namespace

const ForeignKind kAccelerate = {
    .name = "accelerate",
    .title = "the configuration file of Accelerate",
    .signs = "compute_environment|distributed_type|main_training_function|deepspeed_config|fsdp_config",
    .about =
        "What it says of starting processes is `keel launch`'s: `keel launch accelerate.yaml KEY=VALUE` starts "
        "`num_processes` ranks, and `--config_file FILE` reads it beside a configuration of keel's. `--config_file "
        "default` is the file that `accelerate config` writes.",
    .rows = kAccelerateRows,
    .finish = finish_accelerate};

}  // namespace keel::foreign
