#include "keel/trainer/run_beginning.h"

#include <utility>

#include "keel/dist/comm/agreement.h"

namespace keel {

void RunBeginning::write(std::optional<std::int64_t> step) {
  together(site_.ranks, [&] {
    if (is_first()) begin_files(step);
  });
  together(site_.ranks, [&] {
    site_.observer.open(site_.folder.log(site_.ranks.rank()));
    if (is_first()) begin_trackers(step);
  });
}

void RunBeginning::begin_files(std::optional<std::int64_t> step) {
  auto files = site_.data.files;
  files.insert(files.end(), site_.data.derived.begin(), site_.data.derived.end());
  site_.files.begin(to_yaml(site_.config), std::move(files), step);
}

void RunBeginning::begin_trackers(std::optional<std::int64_t> step) {
  site_.trackers.begin(site_.config, site_.ranks.size(), step, site_.observer);
}

void RunBeginning::go_on_without(const LostGroup& lost, std::int64_t step) {
  if (is_first() && !site_.files.has_begun()) take_over();
  if (is_first()) site_.observer.on_message(LogLevel::warning, message_of(lost, step));
  site_.report.tell_values(step, record_of(lost));
}

void RunBeginning::take_over() {
  site_.files.take_over();
  begin_files(site_.state.step);
  site_.observer.on_first();
  site_.observer.on_message(LogLevel::info, message_of_successor(site_.rank));
  try {
    begin_trackers(site_.state.step);
  } catch (const Error& error) {
    site_.observer.on_message(LogLevel::error, concat("trackers get no more records: ", error.what()));
  }
  site_.files.write_kept();
}

}  // namespace keel
