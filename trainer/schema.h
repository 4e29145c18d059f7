#pragma once
// keel's own configuration keys: the table from which parser, checks, help and docs/config.md are made.
//
// A new key is a member of Config and a row in schema.cpp. What a task's keys are says its entry in the catalog.

#include <string>
#include <string_view>

#include "keel/config/schema.h"
#include "keel/trainer/config.h"

namespace keel {

// With the keys of the task that a configuration means where it names none.
std::string config_help(const ConfigKeys& keys = *keel_keys());  // plain text, for `keel train --help-config`
std::string config_reference();                                  // Markdown: docs/config.md
std::string schedule_reference();                                // Markdown: docs/schedules.md
std::string tracker_reference();                                 // Markdown: docs/trackers.md
// Of the task that a configuration means where it names none.
std::string config_example();

}  // namespace keel
