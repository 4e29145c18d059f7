#pragma once
// A value of a record: what a run tells of itself, to its folder and to trackers.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "keel/runtime/json.h"

namespace keel {

struct Logged {
  std::string name;  // "loss", "valid/accuracy"; not "step", which every record has
  // A number that is not finite is as it is.
  std::variant<double, std::int64_t, std::string> value;
};

// What the record of a group of ranks that was lost begins with: its number.
inline constexpr std::string_view kDroppedGroup = "dropped_group";

enum class RecordKind : unsigned char {
  step,   // of a training step: one every log.every, and the last
  other,  // of an evaluation, of memory, or of a loop of one's own
};

// "nan", "inf" or "-inf", of a number that is not finite.
std::string_view name_of_nonfinite(double value);

// The values as members of a record. JSON has no word for infinities and NaN: such a value is null, and the member
// "nonfinite" says which it was, as in {"loss":null,"nonfinite":{"loss":"nan"}}. A name that the record has already is
// an Error.
void add_values(Json& record, std::span<const Logged> values);

}  // namespace keel
