#pragma once
// Schedules for tests, by name and with some parameters set.

#include <initializer_list>
#include <string>
#include <string_view>

#include "keel/optim/schedule.h"

namespace keel::testing {

struct Setting {
  ScheduleParameter parameter;
  double number;
};

inline ScheduleSettings with(std::string_view name, std::initializer_list<Setting> settings) {
  ScheduleSettings made = default_schedule(name);
  for (const Setting& setting : settings) made[setting.parameter] = {setting.number};
  return made;
}

// What check_schedule() says first; empty where it says nothing.
inline std::string complaint_of(const ScheduleSettings& settings, double base, std::int64_t total) {
  const ScheduleComplaints complaints = check_schedule(settings, base, total);
  return complaints.empty() ? "" : complaints[0].where + ": " + complaints[0].message;
}

}  // namespace keel::testing
