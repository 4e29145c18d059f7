#include "keel/trainer/run_saves.h"

#include <exception>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"

namespace keel {

void RunSaves::keep_folder() {
  bool was_made_again = false;
  together(site_.ranks, [&] {
    if (site_.files.has_begun()) was_made_again = site_.files.keep(site_.state.step);
  });
  if (gather_values(site_.ranks, was_made_again ? 1 : 0).front() == 1) site_.checkpoints.forget();
}

void RunSaves::save() {
  keep_folder();
  remember_callbacks();
  site_.checkpoints.try_to_save(site_.state);
}

void RunSaves::copy() {
  remember_callbacks();
  site_.checkpoints.copy(site_.state);
}

void RunSaves::save_the_last() {
  remember_callbacks();
  site_.checkpoints.save_the_last(site_.state);
}

void RunSaves::save_after_failure(RunSteps& steps, RunOutcomes& outcomes) noexcept {
  TrainState& state = site_.state;
  RunCheckpoints& checkpoints = site_.checkpoints;
  try {
    if (const RunSteps::Turn turn = steps.finish(); turn.outcome) outcomes.report(*turn.outcome, steps);
  } catch (const std::exception&) {}  // the error that ended the run is the one to report
  try {
    state.step = steps.step();
    const bool are_finite = site_.stacks.forget_gradients();
    checkpoints.finish();
    // Where they are not, the checkpoint before is worth more.
    if (!are_finite || checkpoints.newest() >= state.step) return checkpoints.drop_copies();
    remember_callbacks();
    checkpoints.save_somewhere(state, [this] { keep_folder(); });
  } catch (const std::exception& error) {
    Communicator& ranks = site_.ranks;
    if (!is_thrown_by_all(ranks)) ranks.fail(concat("rank ", ranks.rank(), " could not save: ", error.what()));
    try {
      site_.observer.on_message(LogLevel::error, concat("step ", state.step, " could not be saved: ", error.what()));
    } catch (...) { return; }  // the error that ended the run is the one to report
  }
}

}  // namespace keel
