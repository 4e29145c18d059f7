// Values of a schedule's parameters, from text and back.

#include <charconv>
#include <cmath>

#include "keel/optim/schedule_table.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

using Type = ScheduleValueType;
using Form = ScheduleValue::Form;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
constexpr double kMostSteps = 9007199254740992;  // 2^53: doubles hold every whole number up to it

bool is_inside(const ScheduleLimits& limits, double value) {
  return (limits.low_open ? value > limits.low : value >= limits.low) &&
         (limits.high_open ? value < limits.high : value <= limits.high);
}

std::string limits_text(const ScheduleLimits& limits) {
  if (limits.low == -kNoLimit) return "";
  if (limits.high == kNoLimit) return concat(limits.low_open ? " > " : " >= ", number_text(limits.low));
  return concat(limits.low_open ? " above " : " from ", number_text(limits.low),
                limits.high_open ? " to below " : " to ", number_text(limits.high));
}

[[noreturn]] void refuse(const ScheduleUse& use, std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string message = concat("expects ", describe_schedule_values(use), ", got '", text.substr(0, kLongest),
                               text.size() > kLongest ? "..." : "", "'");
  const std::string likely = nearest(text.substr(0, kLongest), schedule_words(use.choices));
  if (!likely.empty()) message += concat("; did you mean '", likely, "'?");
  throw Error(message);
}

// A number; whole where it has neither point nor exponent.
bool read_number(std::string_view text, double& value, bool& is_whole) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  is_whole = text.find_first_of(".eE") == std::string_view::npos;
  return error == std::errc{} && end == text.data() + text.size() && std::isfinite(value);
}

}  // namespace

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return std::to_string(static_cast<std::int64_t>(value));
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general).ptr;
  return {text.data(), end};
}

bool is_allowed(const ScheduleUse& use, const ScheduleValue& value) {
  const ScheduleParameterRow& row = schedule_parameter(use.parameter);
  if (value.form == Form::automatic) return use.allows_auto();
  if (value.form == Form::ratio)
    return row.type == Type::count_or_ratio && is_inside({.low = 0, .high = 1}, value.number);
  const bool is_whole = value.number == std::floor(value.number) && std::abs(value.number) <= kMostSteps;
  switch (row.type) {
    case Type::number:
    case Type::rate: return std::isfinite(value.number) && is_inside(row.limits, value.number);
    case Type::whole:
    case Type::count_or_ratio: return is_whole && is_inside(row.limits, value.number);
    case Type::flag: return value.number == 0 || value.number == 1;
    case Type::choice:
      return is_whole && value.number >= 0 && value.number < static_cast<double>(schedule_words(use.choices).size());
    case Type::milestones:
    case Type::schedules: break;
  }
  return true;
}

std::string describe_schedule_values(const ScheduleUse& use) {
  const ScheduleParameterRow& row = schedule_parameter(use.parameter);
  const std::string limits = limits_text(row.limits);
  const std::string or_auto = use.allows_auto() ? ", or auto" : "";
  switch (row.type) {
    case Type::number:
    case Type::rate: return concat("a number", limits, or_auto);
    case Type::whole: return concat("a whole number", limits, or_auto);
    case Type::count_or_ratio: return concat("a whole number", limits, ", or a ratio from 0.0 to 1.0", or_auto);
    case Type::flag: return "true or false";
    case Type::milestones: return concat("a list of whole numbers", limits);
    case Type::schedules: return "a list of schedules";
    case Type::choice: break;
  }
  std::string text;
  const std::vector<std::string_view> words = schedule_words(use.choices);
  for (std::size_t i = 0; i < words.size(); ++i)
    text += concat(i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  return text;
}

ScheduleValue read_schedule_value(const ScheduleUse& use, std::string_view text) {
  const Type type = schedule_parameter(use.parameter).type;
  if (text == "auto" && use.allows_auto()) return {0, Form::automatic};
  ScheduleValue value;
  bool is_whole = true;
  if (type == Type::flag) {
    if (text != "true" && text != "false") refuse(use, text);
    value.number = text == "true" ? 1 : 0;
  } else if (type == Type::choice) {
    const std::vector<std::string_view> words = schedule_words(use.choices);
    std::size_t place = 0;
    while (place < words.size() && words[place] != text) ++place;
    value.number = static_cast<double>(place);
  } else if (!read_number(text, value.number, is_whole)) {
    refuse(use, text);
  }
  if (type == Type::count_or_ratio && !is_whole) value.form = Form::ratio;
  if ((type == Type::whole && !is_whole) || !is_allowed(use, value)) refuse(use, text);
  return value;
}

std::string schedule_value_text(const ScheduleUse& use, const ScheduleValue& value) {
  if (value.form == Form::automatic) return "auto";
  switch (schedule_parameter(use.parameter).type) {
    case Type::flag: return value.number == 0 ? "false" : "true";
    case Type::choice: return std::string(schedule_words(use.choices).at(static_cast<std::size_t>(value.number)));
    case Type::whole:
    case Type::count_or_ratio:
      if (value.form == Form::number) return std::to_string(static_cast<std::int64_t>(value.number));
      break;
    default: break;
  }
  std::string text = number_text(value.number);
  if (value.form == Form::ratio && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

ScheduleSettings default_schedule(std::string_view name) {
  ScheduleSettings settings;
  settings.type = find_schedule(name);
  for (const ScheduleUse& use : schedule_kinds()[static_cast<std::size_t>(settings.type)].parameters)
    if (!use.standard.empty()) settings[use.parameter] = read_schedule_value(use, use.standard);
  return settings;
}

}  // namespace keel
