#include "keel/trainer/trackers/json_events.h"

#include <charconv>
#include <cmath>

namespace keel {
namespace {

std::string line_of(const Json& event) { return event.dump(-1, BadUtf8::replace) + '\n'; }

template <class Number>
bool reads_as(const std::string& text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Json json_of_setting(const std::string& yaml) {
  if (yaml == "true" || yaml == "false") return yaml == "true";
  if (std::int64_t whole = 0; reads_as(yaml, whole)) return whole;
  if (double number = 0; reads_as(yaml, number) && std::isfinite(number)) return number;
  return yaml;
}

std::string start_line(const RunDescription& run) {
  Json tags = Json::object(), settings = Json::object();
  for (const auto& [key, value] : run.tags) tags[key] = value;
  for (const auto& [key, value] : run.settings) settings[key] = json_of_setting(value);
  return line_of({{"event", "start"},
                  {"name", run.name},
                  {"folder", run.folder},
                  {"resumed", run.is_resumed},
                  {"step", run.step},
                  {"tags", tags},
                  {"settings", settings},
                  {"config", run.config}});
}

std::string record_line(std::int64_t step, double seconds, std::span<const Logged> values) {
  Json named = Json::object();
  add_values(named, values);
  return line_of({{"event", "record"}, {"step", step}, {"time", seconds}, {"values", named}});
}

std::string text_line(std::string_view name, std::string_view text) {
  return line_of({{"event", "text"}, {"name", name}, {"text", text}});
}

std::string artifact_line(std::string_view name, const std::string& path) {
  return line_of({{"event", "artifact"}, {"name", name}, {"path", path}});
}

std::string end_line(RunStatus status) { return line_of({{"event", "end"}, {"status", name_of(status)}}); }

}  // namespace keel
