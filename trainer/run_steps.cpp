#include "keel/trainer/run_steps.h"

#include <utility>

namespace keel {

RunSteps::Turn RunSteps::turn_of(const std::vector<StepNote>& all) {
  Turn turn;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const StepFlags& flags = all[rank].flags;
    turn.flags.stop |= flags.stop;
    turn.flags.late |= flags.late;
    turn.flags.save |= flags.save;
    turn.saves.push_back(flags.saving);
    if (flags.failed && !std::exchange(turn.flags.failed, true)) turn.failed_rank = static_cast<int>(rank);
  }
  turn.flags.seconds = all.front().flags.seconds;
  std::vector<LoopWishes> wishes;
  for (const StepNote& note : all) wishes.push_back(note.flags.wishes);
  turn.flags.wishes = agreed_wishes(wishes);
  return turn;
}

RunSteps::Turn RunSteps::turn_without_step(const StepFlags& flags, int ranks) {
  return ranks == 1 ? Turn{{}, flags, {}, flags.failed ? 0 : -1} : Turn{};
}

}  // namespace keel
