#pragma once
// The strategy: what is shared out over processes, and in which precision a run computes.

#include <string>
#include <string_view>

namespace keel {

// What is sharded among ranks, and in which numbers: "zero2-bf16" as two values.
struct Strategy {
  enum class Stage : unsigned char { none, ddp, zero1, zero2, zero3 };
  enum class Precision : unsigned char { automatic, fp32, bf16, fp16 };
  Stage stage = Stage::none;
  Precision precision = Precision::fp32;
  bool operator==(const Strategy&) const = default;
};

// Reads [ddp-|zero1-|zero2-|zero3-]{auto|fp32|bf16|fp16}; anything else is an Error that lists the names.
Strategy parse_strategy(std::string_view text);
std::string to_string(const Strategy& strategy);
// What to tell a user who asked one process for a strategy of several; empty when there is nothing to say.
std::string single_process_note(const Strategy& strategy);

}  // namespace keel
