#include "keel/trainer/skipped_steps.h"

#include <algorithm>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr int kMostInARow = 10;

bool has_weight(const StepResult& result) { return result.weight > 0; }

std::string reason(const StepResult& result) {
  return has_weight(result) ? concat("the gradient of ", result.first_bad, " is not finite")
                            : std::string("its batches have none of what the loss is a mean over");
}

}  // namespace

std::string SkippedSteps::message(const StepResult& result, std::int64_t step) const {
  return concat(whose_, "step ", step, " was skipped: ", reason(result),
                are_expected() && has_weight(result) ? concat("; the loss scale is now ", result.loss_scale) : "");
}

void SkippedSteps::note(const StepResult& result) {
  if (result.taken) {
    ++taken_;
    return;
  }
  ++skipped_;
  last_ = result;
}

void SkippedSteps::count(const StepResult& result, std::int64_t step) {
  note(result);
  if (!has_weight(result)) return;
  const bool may_fall = are_expected() && result.loss_scale > static_cast<float>(scaling_.floor);
  if (result.taken || may_fall) in_a_row_ = 0;
  else if (++in_a_row_ >= kMostInARow)
    throw AgreedError(
        concat(whose_, kMostInARow, " steps in a row had gradients that were not finite, the last at step ", step, ": ",
               reason(result), are_expected() ? ", though the loss scale is at its floor" : "",
               "; a lower optimizer.lr may help"),
        ErrorKind::numeric);
}

void SkippedSteps::check_some_step_was_taken() const {
  if (taken_ > 0 || !last_) return;
  if (!has_weight(*last_))
    throw AgreedError(concat(whose_, "every step of this run was skipped, and nothing learnt; of the last one, ",
                             reason(*last_), "; look at the weights that the loss names, and at the batches"));
  throw AgreedError(
      concat(whose_, "every step of this run was skipped, and nothing learnt: ", reason(*last_),
             are_expected() ? concat(" at a loss scale of ", last_->loss_scale,
                                     "; more steps, or a smaller loss_scale.initial, may find one that fits")
                            : "; a lower optimizer.lr may help"),
      ErrorKind::numeric);
}

// What one group has learnt gets to the others.
void SkippedSteps::check_some_step_was_taken(Communicator& ranks) const {
  std::string none;
  ErrorKind kind{};
  try {
    check_some_step_was_taken();
  } catch (const AgreedError& error) {
    none = error.what();
    kind = error.kind();
  }
  std::vector<std::string> all;
  std::vector<ErrorKind> kinds;
  ranks.attempt([&] {
    all = gather_texts(ranks, none);
    kinds = gather_values(ranks, kind);
  });
  if (std::ranges::none_of(all, &std::string::empty)) throw AgreedError(all.front(), kinds.front());
}

SkippedOfTraining SkippedSteps::of_all(Communicator& ranks) const {
  const std::vector<std::int64_t> counts = gather_values(ranks, skipped_);
  SkippedOfTraining skipped{.count = *std::ranges::max_element(counts)};
  skipped.by_all = std::ranges::count(counts, skipped.count) == std::ssize(counts);
  try {
    check_some_step_was_taken(ranks);
  } catch (const AgreedError& error) { skipped.none_taken = error.what(); }
  return skipped;
}

}  // namespace keel
