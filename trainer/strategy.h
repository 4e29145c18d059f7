#pragma once
// The strategy: what ranks shard, in which precision a run computes, and what is offloaded to slower memory.
//
// One table reads keel's own names, zero2-bf16, and those of other trainers, deepspeed-2-bf16-cpu-none.

#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/parallel/sharding.h"
#include "keel/runtime/language.h"

namespace keel {

struct Strategy {
  enum class Stage : unsigned char { none, ddp, zero1, zero2, zero3 };
  enum class Precision : unsigned char { automatic, fp32, bf16, fp16, fp8 };
  enum class Offload : unsigned char { none, cpu, nvme };
  Stage stage = Stage::none;
  Precision precision = Precision::fp32;
  Offload optimizer = Offload::none;  // where the optimizer's state is kept
  Offload parameter = Offload::none;  // where parameters are kept
  bool operator==(const Strategy&) const = default;
};

// A strategy as somebody wrote it.
struct WrittenStrategy {
  Strategy strategy;
  bool says_precision = false;  // "zero2" does not; it means fp32 where nothing else says one
};

// keel's own names, for people: stage, precision, and where the optimizer's state and parameters lie. A stage may also
// stand alone.
inline constexpr std::string_view kStrategyGrammar =
    "[ddp-|zero1-|zero2-|zero3-]{auto|fp32|bf16|fp16}[-{none|cpu|nvme}[-{none|cpu|nvme}]]";

// Reads every spelling. An unknown name is an Error that lists the common names and the nearest one.
WrittenStrategy read_strategy(std::string_view text);
Strategy parse_strategy(std::string_view text);
// "auto", "fp32", "bf16", "fp16" or "fp8".
Strategy::Precision parse_precision(std::string_view text);
std::string_view name_of(Strategy::Precision precision);

// keel's own name of it, which read_strategy reads back.
std::string to_string(const Strategy& strategy);
// "gradients and optimizer state sharded; bf16 with fp32 master weights".
std::string describe(const Strategy& strategy);
// The row of kShardingStages (keel/dist/parallel/sharding.h).
int stage_number(Strategy::Stage stage);
// Where what it says lies, as options of sharding (keel/dist/parallel/sharding.h) have it.
Residence residence_of(Strategy::Offload place);
// What the strategy needs that training does not offer yet, "fp8"; empty: nothing.
std::string not_there_yet(const Strategy& strategy);
// The same as a sentence that says what to use instead; empty: training offers all of it.
std::string why_not_offered(const Strategy& strategy);
// Every spelling that is listed, keel's own first. Offloads may be written after keel's own names in further ways.
std::vector<std::string> strategy_names();

// What to tell a user who asked one process for a strategy of several; empty when there is nothing to say.
std::string single_process_note(const Strategy& strategy);

}  // namespace keel
