#include "keel/trainer/strategy.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>

#include "keel/runtime/error.h"

namespace keel {
namespace {

using Stage = Strategy::Stage;
using Precision = Strategy::Precision;
using Offload = Strategy::Offload;

// In the order of the enumerators.
constexpr std::string_view kStages[] = {"", "ddp", "zero1", "zero2", "zero3"};
constexpr std::string_view kPrecisions[] = {"auto", "fp32", "bf16", "fp16", "fp8"};
constexpr std::string_view kOffloads[] = {"none", "cpu", "nvme"};

// What may follow the name of a family. PREC is a precision, OPT and PARAM say where things are kept.
enum class Suffix : unsigned char {
  none,
  own,        // [-PREC[-OPT[-PARAM]]], where PREC may be auto
  precision,  // [-PREC]
  pair,       // [-PREC[-OPT-PARAM]]
  cpu,        // [-PREC[-cpu]], for both
};

struct Family {
  std::string_view name;
  Stage stage;
  Suffix suffix = Suffix::none;
  Offload optimizer = Offload::none;
  Offload parameter = Offload::none;
};

constexpr Family kFamilies[] = {
    // keel's own; without a name a precision stands alone
    {"", Stage::none, Suffix::own},
    {"ddp", Stage::ddp, Suffix::own},
    {"zero1", Stage::zero1, Suffix::own},
    {"zero2", Stage::zero2, Suffix::own},
    {"zero3", Stage::zero3, Suffix::own},
    // of trainers on top of DeepSpeed and FSDP
    {"deepspeed", Stage::zero2},
    {"deepspeed-0", Stage::ddp, Suffix::precision},
    {"deepspeed-1", Stage::zero1, Suffix::precision},
    {"deepspeed-2", Stage::zero2, Suffix::pair},
    {"deepspeed-3", Stage::zero3, Suffix::pair},
    {"fsdp", Stage::zero3, Suffix::cpu},
    // Lightning's
    {"fsdp_cpu_offload", Stage::zero3, Suffix::none, Offload::cpu, Offload::cpu},
    {"deepspeed_stage_1", Stage::zero1},
    {"deepspeed_stage_2", Stage::zero2},
    {"deepspeed_stage_2_offload", Stage::zero2, Suffix::none, Offload::cpu},
    {"deepspeed_stage_2_offload_no_error", Stage::zero2, Suffix::none, Offload::cpu},
    {"deepspeed_stage_3", Stage::zero3},
    {"deepspeed_stage_3_offload", Stage::zero3, Suffix::none, Offload::cpu, Offload::cpu},
    {"deepspeed_stage_3_offload_nvme", Stage::zero3, Suffix::none, Offload::nvme, Offload::nvme},
};

// Names that other trainers know and keel does not take.
struct Refused {
  std::string_view name;
  std::string_view reason;
};
constexpr Refused kRefused[] = {
    {"dp",
     "it drives several devices from one process; `keel launch --strat dp` does so by ranks that are threads, "
     "and a configuration says ddp"},
    {"ddp2", "it mixes two kinds of data parallelism by node; use ddp"},
    {"ddp_spawn", "it starts processes from within the program, which `keel launch` does from outside; use ddp"},
};

// What training does not offer yet: a row goes when its part comes.
struct Missing {
  std::string_view what;
  std::string_view instead;
  bool (*is_needed)(const Strategy&);
};
constexpr Missing kMissing[] = {
    {"fp8", "use bf16", [](const Strategy& s) { return s.precision == Precision::fp8; }},
};

template <class Enum>
std::optional<Enum> find(std::span<const std::string_view> names, std::string_view text) {
  const auto at = std::find(names.begin(), names.end(), text);
  if (at == names.end()) return std::nullopt;
  return static_cast<Enum>(at - names.begin());
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find('-');
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// The words after a family's name. Nothing where they are none that may stand there.
std::optional<WrittenStrategy> read_suffix(const Family& family, const std::vector<std::string_view>& words) {
  WrittenStrategy written{{family.stage, Precision::fp32, family.optimizer, family.parameter}, true};
  Strategy& strategy = written.strategy;
  if (family.suffix == Suffix::none || words.empty()) return std::nullopt;
  const auto precision = find<Precision>(kPrecisions, words[0]);
  if (!precision || (*precision == Precision::automatic && family.suffix != Suffix::own)) return std::nullopt;
  strategy.precision = *precision;
  if (words.size() == 1) return written;

  std::vector<Offload> offloads;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto offload = find<Offload>(kOffloads, words[i]);
    if (!offload) return std::nullopt;
    offloads.push_back(*offload);
  }
  switch (family.suffix) {
    case Suffix::none:
    case Suffix::precision: return std::nullopt;
    case Suffix::cpu:
      if (offloads.size() != 1 || offloads[0] != Offload::cpu) return std::nullopt;
      offloads.push_back(Offload::cpu);
      break;
    case Suffix::pair:
      if (offloads.size() != 2) return std::nullopt;
      break;
    case Suffix::own:
      if (offloads.size() > 2) return std::nullopt;
      offloads.resize(2, Offload::none);
      break;
  }
  strategy.optimizer = offloads[0];
  strategy.parameter = offloads[1];
  return written;
}

std::optional<WrittenStrategy> find_strategy(std::string_view text) {
  for (const Family& family : kFamilies) {
    if (family.name.empty()) {
      if (const auto written = read_suffix(family, split(text))) return written;
    } else if (text == family.name) {
      return WrittenStrategy{{family.stage, Precision::fp32, family.optimizer, family.parameter}, false};
    } else if (text.starts_with(family.name) && text[family.name.size()] == '-') {
      if (const auto written = read_suffix(family, split(text.substr(family.name.size() + 1)))) return written;
    }
  }
  return std::nullopt;
}

std::string_view describe(Stage stage) {
  switch (stage) {
    case Stage::none: return "data parallel where there are several ranks";
    case Stage::ddp: return "data parallel, nothing sharded";
    case Stage::zero1: return "optimizer state sharded";
    case Stage::zero2: return "gradients and optimizer state sharded";
    case Stage::zero3: break;
  }
  return "parameters, gradients and optimizer state sharded";
}

std::string_view describe(Precision precision) {
  switch (precision) {
    case Precision::automatic: return "the numbers this processor multiplies fastest";
    case Precision::fp32: return "fp32";
    case Precision::bf16: return "bf16 with fp32 master weights";
    case Precision::fp16: return "fp16 with loss scaling and fp32 master weights";
    case Precision::fp8: break;
  }
  return "fp8";
}

}  // namespace

WrittenStrategy read_strategy(std::string_view text) {
  for (const Refused& refused : kRefused)
    KEEL_CHECK(text != refused.name, "'", text, "' is not offered: ", refused.reason);
  if (const auto written = find_strategy(text)) return *written;
  const std::string_view shown = text.substr(0, 60);
  const std::string likely = nearest(shown, strategy_names());
  throw Error(
      concat("expects fp32, bf16, fp16 or auto, alone or after ddp-, zero1-, zero2- or zero3-, as in zero2-bf16 "
             "(`keel strats --all` lists every name); got '",
             shown, "'", likely.empty() ? "" : concat("; did you mean '", likely, "'?")));
}

Strategy parse_strategy(std::string_view text) { return read_strategy(text).strategy; }

Strategy::Precision parse_precision(std::string_view text) {
  if (const auto precision = find<Precision>(kPrecisions, text)) return *precision;
  throw Error(concat("expects auto, fp32, bf16 or fp16, got '", text.substr(0, 60), "'"));
}

std::string_view name_of(Strategy::Precision precision) { return kPrecisions[static_cast<std::size_t>(precision)]; }

std::string to_string(const Strategy& strategy) {
  const std::string_view stage = kStages[static_cast<std::size_t>(strategy.stage)];
  std::string name = concat(stage, stage.empty() ? "" : "-", name_of(strategy.precision));
  const bool has_parameter = strategy.parameter != Offload::none;
  if (strategy.optimizer != Offload::none || has_parameter)
    name += concat('-', kOffloads[static_cast<std::size_t>(strategy.optimizer)]);
  if (has_parameter) name += concat('-', kOffloads[static_cast<std::size_t>(strategy.parameter)]);
  return name;
}

std::string describe(const Strategy& strategy) {
  std::string text = concat(describe(strategy.stage), "; ", describe(strategy.precision));
  const auto add = [&](std::string_view what, Offload place) {
    if (place != Offload::none)
      text += concat("; ", what, place == Offload::cpu ? " in the host's memory" : " in files");
  };
  add("optimizer state", strategy.optimizer);
  add("parameters", strategy.parameter);
  return text;
}

int stage_number(Strategy::Stage stage) {
  return std::max(static_cast<int>(stage) - static_cast<int>(Strategy::Stage::ddp), 0);
}

// In the order of both enumerations.
Residence residence_of(Offload place) { return static_cast<Residence>(place); }

std::string not_there_yet(const Strategy& strategy) {
  std::string parts;
  for (const Missing& missing : kMissing)
    if (missing.is_needed(strategy)) parts += concat(parts.empty() ? "" : ", ", missing.what);
  return parts;
}

std::string why_not_offered(const Strategy& strategy) {
  std::string instead;
  for (const Missing& missing : kMissing)
    if (missing.is_needed(strategy)) instead += concat("; ", missing.instead);
  return instead.empty() ? "" : concat("training does not offer ", not_there_yet(strategy), " yet", instead);
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) {
    if (!family.name.empty()) names.emplace_back(family.name);
    if (family.suffix == Suffix::none) continue;
    for (const std::string_view precision : kPrecisions) {
      if (precision == kPrecisions[0] && family.suffix != Suffix::own) continue;
      const std::string name = concat(family.name, family.name.empty() ? "" : "-", precision);
      names.push_back(name);
      if (family.suffix == Suffix::own || family.suffix == Suffix::cpu) names.push_back(name + "-cpu");
      if (family.suffix != Suffix::pair) continue;
      for (const std::string_view optimizer : kOffloads)
        for (const std::string_view parameter : kOffloads)
          names.push_back(concat(name, '-', optimizer, '-', parameter));
    }
  }
  return names;
}

std::string single_process_note(const Strategy& strategy) {
  if (strategy.stage == Stage::none) return "";
  return concat("strategy ", to_string(strategy), ": one process has nothing to share out, so it trains as ",
                name_of(strategy.precision), ", with the same result");
}

}  // namespace keel
