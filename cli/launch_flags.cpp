#include "launch_flags.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "common_options.h"
#include "keel/config/resolver.h"
#include "keel/config/values.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/foreign/kind.h"
#include "keel/trainer/foreign/load.h"
#include "launch_plan.h"
#include "program_keys.h"
#include "whole_number.h"

namespace keel::cli {
namespace {

std::string with_hyphens(std::string_view word) {
  std::string text(word);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

// Names that differ from those of the file's keys, or are listed by --help.
struct Named {
  std::string_view key, names, placeholder, help;
};
constexpr Named kNamed[] = {
    {"num_machines", "--num-machines,--nnodes,--num-nodes", "N",
     "Machines, on each of which this command is started; -N ranks are shared out among them."},
    {"machine_rank", "--machine-rank,--node-rank", "I", "The number of this machine, from 0; else NODE_RANK."},
    {"main_process_ip", "--main-process-ip,--master-addr", "HOST", "The machine with number 0; else MASTER_ADDR."},
    {"main_process_port", "--main-process-port,--master-port", "PORT",
     "Where its first rank listens; else MASTER_PORT, or 29500."},
    {"gpu_ids", "-n,--gpu-ids,--gpus", "LIST", "The GPUs to take: 0,2; all of them without it."},
};

// Options of keel's own, by which these keys are given.
constexpr std::string_view kOwnFlags[] = {"num_processes",
                                          "deepspeed_config_file",
                                          "deepspeed_hostfile",
                                          "use_cpu",
                                          "debug",
                                          "enable_cpu_affinity",
                                          "same_network",
                                          "distributed_type",
                                          "fp16",
                                          "command_file",
                                          "commands"};

// Those that change nothing here, and why. Options that are keys of Accelerate's file have their reasons there.
struct IdleOption {
  std::string_view names, why;
  bool has_value = true;
};
constexpr std::string_view kLogs = "each rank's log is in the run's folder, logs/rank-R.log",
                           kProgram = "keel launch takes a configuration or a program",
                           kNoQueue = "keel has no queue of runs", kMeets = "ranks meet at the first machine's address";
constexpr IdleOption kIdle[] = {
    // Of accelerate launch and torchrun.
    {"--rdzv-conf", kMeets},
    {"--rdzv-id", kMeets},
    {"--standalone", "the ranks of one machine need no address", false},
    {"--monitor-interval", "keel hears at once when a rank ends"},
    {"--tee", kLogs},
    {"--redirects", kLogs},
    {"--log-dir", kLogs},
    {"-m,--module", kProgram, false},
    {"--no-python", kProgram, false},
    {"-q,--quiet", "the first rank alone prints", false},
    // Of accmt.
    {"--debug-timings", "metrics.jsonl says where time goes", false},
    {"-e,--evaluation-device-indices", "the ranks that train evaluate, too"},
    {"-l,-L,--level", "log.every, checkpoint.every and eval.every say how much of them there is"},
    {"-O", "keel's operations are compiled already"},
    {"--suppress-queue", kNoQueue, false},
    {"-Q,--queue-file", kNoQueue},
};

// "--quiet" of "-q,--quiet".
std::string long_name(std::string_view names) { return std::string(names.substr(names.rfind(',') + 1)); }

// The reason of a row that nothing follows from; empty: something does.
std::string_view why_idle(const ForeignTold& told) {
  for (const ForeignRow& row : foreign::kAccelerate.rows)
    if (row.key == told.key && row.way == ForeignRow::Way::taken && told.text == row.note) return row.note;
  return "";
}

int whole_or(const char* text, int otherwise) {
  return text == nullptr ? otherwise : whole_number(text).value_or(otherwise);
}

// Values as words of a command line.
Words words_of(const std::vector<NamedTree>& trees) {
  Words words;
  for (const NamedTree& tree : trees)
    for (const YamlEntry& entry : tree.root.entries) {
      if (entry.value.kind != YamlNode::Kind::mapping) words.push_back(concat(entry.key, '=', flow_text(entry.value)));
      for (const YamlEntry& each : entry.value.entries)
        words.push_back(concat(entry.key, '.', each.key, '=', flow_text(each.value)));
    }
  return words;
}

template <class T>
void take_missing(std::optional<T>& value, const std::optional<T>& other) {
  if (!value) value = other;
}

void take_missing(ForeignLaunch& launch, const ForeignLaunch& other) {
  take_missing(launch.ranks, other.ranks);
  take_missing(launch.machines, other.machines);
  take_missing(launch.machine, other.machine);
  take_missing(launch.port, other.port);
  if (launch.address.empty()) launch.address = other.address;
  if (launch.gpus.empty()) launch.gpus = other.gpus;
}

}  // namespace

LaunchFlags::LaunchFlags() {
  for (const ForeignRow& row : foreign::kAccelerate.rows) {
    const std::string_view word = row.key.substr(row.key.rfind('.') + 1);
    if (word != "*" && std::find(std::begin(kOwnFlags), std::end(kOwnFlags), word) == std::end(kOwnFlags))
      flags_.push_back({std::string(row.key)});
  }
  switches_ = {{"--cpu", "use_cpu", "true"},
               {"--multi-gpu", "distributed_type", "MULTI_GPU"},
               {"--use-deepspeed", "distributed_type", "DEEPSPEED"},
               {"--use-fsdp", "distributed_type", "FSDP"},
               {"--enable-cpu-affinity", "enable_cpu_affinity", "true"},
               {"--same-network", "same_network", "true"},
               {"--debug", "debug", "true"}};
  for (const IdleOption& each : kIdle) idle_.push_back({each.names, each.why, each.has_value});
}

std::vector<Option> LaunchFlags::options() {
  std::vector<Option> options;
  for (Flag& flag : flags_) {
    const auto named =
        std::find_if(std::begin(kNamed), std::end(kNamed), [&](const Named& each) { return each.key == flag.key; });
    if (named != std::end(kNamed))
      options.push_back({std::string(named->names), std::string(named->placeholder), Value::words(&flag.words, 1),
                         std::string(named->help)});
    else
      options.push_back({concat("--", with_hyphens(std::string_view(flag.key).substr(flag.key.rfind('.') + 1))), "",
                         Value::words(&flag.words, 1), ""});
  }
  for (Switch& each : switches_) options.push_back({std::string(each.names), "", &each.is_on, ""});
  for (Idle& each : idle_)
    options.push_back(
        {std::string(each.names), "", each.has_value ? Value::words(&each.words, 1) : Value(&each.is_on), ""});
  options.push_back({"--nproc-per-node,--num-gpus", "", {&ranks_of_a_machine_, 1, 1'000'000}, ""});
  options.push_back({"--num-cpu-threads-per-process", "", {&threads, 1, 4096}, ""});
  options.push_back(
      {"--config-file", "FILE", &accelerate_file,
       "Accelerate's configuration file: its ranks and machines, and what it says of training; default: the one "
       "that `accelerate config` wrote."});
  options.push_back({"--deepspeed-config-file", "FILE", &deepspeed_file,
                     "DeepSpeed's JSON, read beside the configuration, which it may not contradict."});
  return options;
}

YamlNode LaunchFlags::root() const {
  YamlNode root = YamlNode::of(YamlNode::Kind::mapping, 1);
  const auto add = [&](const std::string& key, const std::string& value) {
    YamlNode* place = &root;
    std::string_view rest = key;
    if (const std::size_t dot = rest.find('.'); dot != std::string_view::npos) {
      const std::string section(rest.substr(0, dot));
      auto found = std::find_if(root.entries.begin(), root.entries.end(),
                                [&](const YamlEntry& each) { return each.key == section; });
      if (found == root.entries.end())
        found = root.entries.insert(found, {section, 1, YamlNode::of(YamlNode::Kind::mapping, 1)});
      place = &found->value;
      rest.remove_prefix(dot + 1);
    }
    place->entries.push_back({std::string(rest), 1, YamlNode::scalar(value, 1)});
  };
  for (const Switch& each : switches_)
    if (each.is_on) add(std::string(each.key), std::string(each.value));
  for (const Flag& flag : flags_)
    if (!flag.words.empty()) add(flag.key, flag.words[0]);
  return root;
}

LaunchFlags::Said LaunchFlags::read(const Words& command, int ranks, const Environment& environment) const {
  const bool trains = !command.empty() && names_training(command[0]);
  const auto file = trains ? std::find_if(command.begin(), command.end(), names_configuration) : command.end();
  ForeignRequest request = {program_keys()->schema(program_keys()->tasks().standard().name)};
  request.replaces = true;
  if (file != command.end()) {
    for (auto word = file + 1; word != command.end(); ++word)
      if (word->find('=') != std::string::npos && word->front() != '-') request.overrides.push_back(*word);
    std::error_code error;
    if (std::filesystem::is_regular_file(*file, error)) request.own_yaml = read_text_file(*file);
  }
  ForeignLaunch beside;
  const std::string accelerate = accelerate_path(accelerate_file);
  if (!accelerate.empty()) take_missing(beside, launch_of(accelerate));
  if (file != command.end()) take_missing(beside, launch_of(*file));

  Said said;
  for (const Idle& each : idle_)
    if (each.is_on || !each.words.empty())
      said.notes.push_back(concat(long_name(each.names), ": no effect here: ", each.why));
  const auto translate_with = [&](int all) {
    request.ranks = all;
    const ForeignTranslation read = translate(foreign::kAccelerate, "command line", root(), request);
    for (const ForeignTold& told : read.told)
      if (told.verdict == ForeignTold::Verdict::refused)
        throw Error(
            printable(concat("--", told.key.substr(told.key.rfind('.') + 1), ' ', told.value, ": ", told.text)));
    return read;
  };
  const ForeignTranslation first = translate_with(ranks > 0 ? ranks : beside.ranks.value_or(0));
  for (const ForeignTold& told : first.told)
    if (const std::string_view why = why_idle(told); !why.empty())
      said.notes.push_back(
          concat("--", with_hyphens(told.key.substr(told.key.rfind('.') + 1)), ": no effect here: ", why));
  said.launch = first.launch;
  take_missing(said.launch, beside);
  ForeignLaunch& launch = said.launch;
  if (!launch.machine && environment("NODE_RANK") != nullptr) launch.machine = whole_or(environment("NODE_RANK"), 0);
  if (launch.address.empty() && environment("MASTER_ADDR") != nullptr) launch.address = environment("MASTER_ADDR");
  if (!launch.port) launch.port = whole_or(environment("MASTER_PORT"), 29500);
  if (ranks_of_a_machine_ > 0) launch.ranks = ranks_of_a_machine_ * launch.machines.value_or(1);
  if (ranks > 0) launch.ranks = ranks;
  said.values = words_of(translate_with(launch.ranks.value_or(0)).trees);
  KEEL_CHECK(
      said.values.empty() || file != command.end(),
      "options that say how to train need a configuration, not a program: ", said.values.empty() ? "" : said.values[0]);
  if (file == command.end()) return said;
  if (!accelerate.empty()) said.values.push_back("--config-file=" + accelerate);
  if (!deepspeed_file.empty()) said.values.push_back("--deepspeed-config-file=" + deepspeed_file);
  return said;
}

}  // namespace keel::cli
