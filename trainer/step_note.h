#pragma once
// What ranks tell each other of a step: flags, sums of the loss's terms, and where a term is not finite.

#include <cstdint>
#include <span>
#include <vector>

#include "keel/dist/checkpoint/async_save.h"
#include "keel/dist/comm/exchange.h"
#include "keel/trainer/step_loss.h"

namespace keel {

// What the callbacks of a rank ask for (keel/trainer/loop_view.h).
struct LoopWishes {
  static constexpr double kNone = -1;
  bool stop = false, evaluate = false, save = false;
  bool failed = false;  // one has thrown
  double rate = kNone;  // factor on the learning rates
};
// What any of the ranks asks for. Factors that differ are an AgreedError that names the rank.
LoopWishes agreed_wishes(std::span<const LoopWishes> of_ranks);

// What a rank asks for.
struct StepFlags {
  bool stop = false;     // a signal asked for the end
  bool late = false;     // the time is over
  bool failed = false;   // this rank cannot go on
  bool save = false;     // a checkpoint is due
  SaveNote saving = {};  // where this rank's save stands
  double seconds = 0;    // of the run under its time limit, as the first rank's clock shows them
  LoopWishes wishes = {};
};

struct StepNote {
  StepFlags flags = {};
  double units = 0;
  double flops = 0;             // of the products of the step's micro-batches
  std::uint64_t signature = 0;  // of the losses
  std::int64_t next_rows = 0;   // of the step that begins next, as far as this rank sees; 0: there is none
  std::int64_t bad_micro = -1;  // a micro-batch with a term that is not finite: the first where such a one has weight
  BadTerm bad = {};
};

// What all ranks have told.
struct StepNotes {
  std::vector<StepNote> notes;  // by rank
  std::vector<double> sums;     // over ranks, in their order, and their virtual ranks
};

class GatheringOfNotes {
 public:
  // As many sums on every rank: those of its virtual ranks one behind the other.
  GatheringOfNotes(Communicator& ranks, const StepNote& note, std::span<const double> sums, int virtual_ranks = 1);
  StepNotes wait();  // once

 private:
  std::size_t count_;  // of the sums of a virtual rank
  Gathering bytes_;
};

// Numbers of all ranks on their way, as many on each, added up in the order of ranks: those of its virtual ranks one
// behind the other.
class GatheringOfSums {
 public:
  GatheringOfSums(Communicator& ranks, std::span<const double> mine, int virtual_ranks = 1);
  std::vector<double> wait();  // once

 private:
  std::size_t count_;  // of the numbers of a virtual rank
  Gathering bytes_;
};

}  // namespace keel
