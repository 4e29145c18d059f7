#include "keel/capi/settings.h"

#include <algorithm>

#include "keel/capi/handles.h"
#include "keel/config/schema.h"
#include "keel/trainer/config_keys.h"

namespace keel::capi {
namespace {

// Keys of a run of `keel train` that say nothing where the host has the data and the loop.
constexpr std::string_view kOfRuns[] = {"data",   "eval",       "checkpoint",    "log",       "run",
                                        "resume", "time_limit", "session_limit", "cuda_graph"};

}  // namespace

bool Settings::says(std::string_view key) const {
  return !file.empty() || std::any_of(changes.begin(), changes.end(), [&](const auto& c) { return c.key == key; });
}

Config Settings::config() const {
  std::vector<std::string> overrides;
  for (const Change& change : changes) overrides.push_back(change.text);
  constexpr std::string_view kSource = "settings";
  if (!file.empty()) return load_config(file, overrides, kSource);
  // What a run must say and a host need not: how long it is, and where its data are.
  return parse_config(says("steps") ? "data: {type: addition}" : "steps: 1\ndata: {type: addition}", kSource, overrides,
                      kSource);
}

}  // namespace keel::capi

using namespace keel;
using namespace keel::capi;

extern "C" {

keel_status keel_settings_create(keel_settings** settings) {
  return call("keel_settings_create",
              [&] { create(settings, "settings", [] { return std::make_shared<capi::Settings>(); }); });
}

keel_status keel_settings_load(keel_settings* settings, const char* yaml_file) {
  return call("keel_settings_load", [&] {
    const auto object = object_of(settings);
    capi::Settings read = *object;
    read.file = given_path(yaml_file, "yaml_file");
    read.config();
    object->file = read.file;
  });
}

keel_status keel_settings_set(keel_settings* settings, const char* key, const char* value) {
  return call("keel_settings_set", [&] {
    const auto object = object_of(settings);
    const Schema& schema = keel_keys()->schema(keel_keys()->tasks().standard().name);
    YamlNode node = YamlNode::scalar(&given(value, "value"));
    const std::string own = schema.own_key(&given(key, "key"), node);
    for (const std::string_view section : kOfRuns)
      KEEL_CHECK(own != section && !is_inside(own, section), "the key '", own,
                 "' says nothing here: data and loop are the host's");
    const bool is_known = schema.is_key(own) || schema.is_section(own);
    const std::string likely = is_known ? "" : schema.likely_key(own);
    KEEL_CHECK(is_known, "unknown key '", key, "'",
               likely.empty() ? "; docs/config.md lists them" : concat(", did you mean '", likely, "'?"));
    std::erase_if(object->changes, [&](const capi::Settings::Change& change) {
      return change.key == own || is_inside(change.key, own);
    });
    object->changes.push_back({own, concat(key, '=', value)});
  });
}

keel_status keel_settings_log(keel_settings* settings, keel_log_function function, void* user) {
  return call("keel_settings_log", [&] {
    const auto object = object_of(settings);
    object->log = function;
    object->log_user = user;
  });
}

keel_status keel_settings_destroy(keel_settings** settings) {
  return call("keel_settings_destroy", [&] { destroy(settings, "settings"); });
}
}
