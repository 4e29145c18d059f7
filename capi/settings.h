#pragma once
// Settings that a host has given, as the configuration of docs/config.md.

#include <string>
#include <string_view>
#include <vector>

#include "keel/capi/keel.h"
#include "keel/trainer/config.h"

namespace keel::capi {

struct Settings {
  struct Change {
    std::string key;   // keel's own word for it
    std::string text;  // "key=value" as it was given
  };
  std::string file;  // YAML; empty: none
  std::vector<Change> changes;
  keel_log_function log = nullptr;
  void* log_user = nullptr;

  // Reads the file. An Error says all that is wrong.
  Config config() const;
  // Whether the key's value is the host's own.
  bool says(std::string_view key) const;
};

// Those of a handle; NULL: every key at its default.
Settings settings_of(const keel_settings* settings);

}  // namespace keel::capi
