#include "keel/trainer/training_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "keel/dist/comm/agreement.h"
#include "keel/runtime/stopwatch.h"
#include "keel/trainer/diagnosis.h"
#include "keel/trainer/step_loss.h"

namespace keel {
namespace {

std::vector<Rows> without_empty(const std::vector<Rows>& ranges) {
  std::vector<Rows> filled;
  for (const Rows range : ranges)
    if (range.begin < range.end) filled.push_back(range);
  return filled;
}

// One is computed while the other is loaded. Several ranks tell each other whether they have all of a step.
int waiting_batches(const std::vector<Rows>& ranges, const Communicator& ranks) {
  return ranks.size() == 1 ? 2 : std::max(2, static_cast<int>(ranges.size()));
}

}  // namespace

LoopWishes agreed_wishes(std::span<const LoopWishes> of_ranks) {
  LoopWishes agreed = of_ranks.front();
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
    const LoopWishes& each = of_ranks[rank];
    if (each.rate != agreed.rate)
      throw AgreedError(concat("callbacks of rank ", rank, " ask for ", each.rate,
                               " times the learning rate, and those of rank 0 for ", agreed.rate,
                               " times (-1: they do not ask); they must ask for the same in the same event"));
    agreed.stop |= each.stop;
    agreed.evaluate |= each.evaluate;
    agreed.save |= each.save;
    agreed.failed |= each.failed;
  }
  return agreed;
}

TrainingSteps::Turn TrainingSteps::turn_of(const std::vector<Note>& all) {
  Turn turn;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    turn.flags.stop |= all[rank].stop;
    turn.flags.late |= all[rank].late;
    turn.flags.save |= all[rank].save;
    turn.saves.push_back(all[rank].saving);
    if (all[rank].failed && !std::exchange(turn.flags.failed, true)) turn.failed_rank = static_cast<int>(rank);
  }
  turn.flags.seconds = all.front().seconds;
  std::vector<LoopWishes> wishes;
  for (const Note& note : all) wishes.push_back(note.wishes);
  turn.flags.wishes = agreed_wishes(wishes);
  return turn;
}

TrainingSteps::TrainingSteps(const Parts& parts, std::int64_t step)
    : parts_(parts),
      context_(parts.engine.context()),
      step_(step),
      first_step_(step),
      ranges_(without_empty(parts.micro_batches)),
      batches_(parts.loader, step, ranges_, waiting_batches(ranges_, parts.ranks),
               context_.stream().is_asynchronous() ? context_ : Context()) {
  if (parts.cuda_graph) graph_.emplace(parts.loss, parts.engine);
}

template <class F>
void TrainingSteps::tell(const F& f) const {
  if (parts_.watcher != nullptr) f(*parts_.watcher);
}

TrainingSteps::Turn TrainingSteps::next(StepFlags flags) {
  Pending pending{step_ + 1, {parts_.seed, static_cast<std::uint64_t>(step_), 0}, {}, {}};
  if (parts_.ranks.size() > 1) {
    const std::string activity = concat("step ", pending.step);
    parts_.engine.set_activity(activity);
    parts_.ranks.set_activity(activity);
  }
  std::optional<GatheringOf<Note>> told;
  if (parts_.engine.optimizer().requirements().closure) {
    pending.result = step_with_closure(pending);
    flags = look_ahead(flags);
  } else {
    for (std::size_t i = 0; i < parts_.micro_batches.size(); ++i)
      run_micro_batch(i, take(parts_.micro_batches[i]), pending);
    flags = look_ahead(flags);
    // Before the update, so that it does not stand behind the parameters that travel then.
    if (!context_.stream().is_asynchronous()) told.emplace(parts_.ranks, note_of(pending, flags));
    tell([](StepWatcher& watcher) { watcher.before_optimizer_step(); });
    pending.result = parts_.engine.step(parts_.curves);
  }
  ++step_;
  tell([](StepWatcher& watcher) { watcher.after_optimizer_step(); });
  if (told) return conclude(pending, *told);
  const std::optional<Pending> before = std::exchange(pending_, std::move(pending));
  return context_.stream().is_asynchronous() ? conclude(before, flags) : finish(flags);
}

TrainingSteps::Turn TrainingSteps::finish(StepFlags flags) {
  return conclude(std::exchange(pending_, std::nullopt), flags);
}

TrainingSteps::Turn TrainingSteps::ask(StepFlags flags) {
  GatheringOf<Note> told(parts_.ranks,
                         {.stop = flags.stop, .late = flags.late, .failed = flags.failed, .wishes = flags.wishes});
  return turn_of(hear(told));
}

StepFlags TrainingSteps::look_ahead(StepFlags flags) {
  if (parts_.ranks.size() == 1 || step_ + 1 >= parts_.last_step) return flags;
  data_failure_ = batches_.look_ahead(ranges_.size());
  flags.failed |= !data_failure_.empty();
  return flags;
}

Batch TrainingSteps::take(Rows range) {
  if (range.begin == range.end) return stand_in_;
  Batch batch = *batches_.next();
  if (stand_in_.rows() == 0 && parts_.micro_batches.back().begin == parts_.micro_batches.back().end)
    stand_in_ = batch.stand_in();
  return batch;
}

// Every evaluation sees the same batches and draws the same random numbers, so that the loss is a function of the
// weights alone. The step's loss is that of the first.
PendingStep TrainingSteps::step_with_closure(Pending& pending) {
  bool has_told = false;  // which loss was not finite
  const auto evaluate = [&] {
    const bool is_first = pending.micro_batches.empty();
    Pending again{pending.step, pending.random, {}, {}};
    Pending& evaluation = is_first ? pending : again;
    for (std::size_t i = 0; i < parts_.micro_batches.size(); ++i)
      run_micro_batch(i, is_first ? take(parts_.micro_batches[i]) : pending.micro_batches[i].batch, evaluation);
    const Note note = note_of(evaluation, {});
    GatheringOf<Note> told(parts_.ranks, note);
    has_told = true;
    check_notes(evaluation, hear(told));
    has_told = false;
    return note.weight > 0 ? note.loss_sum / note.weight : 0;
  };
  try {
    return parts_.engine.step(evaluate, parts_.curves);
  } catch (const AgreedError& error) {
    if (has_told) throw;
    throw AgreedError(concat("step ", pending.step, ": ", error.what(), "; a lower optimizer.lr may help"),
                      error.kind());
  }
}

Forward TrainingSteps::pass_of(const Pending& pending, const Batch& batch) const {
  return {.training = true,
          .random = pending.random,
          .sample_ids = batch.sample_ids(),
          .dtype = parts_.engine.options().policy.parameter};
}

void TrainingSteps::run_micro_batch(std::size_t index, const Batch& batch, Pending& pending) {
  const bool last = index + 1 == parts_.micro_batches.size();
  if (graph_) {
    pending.micro_batches.push_back({batch, graph_->run(batch, last)});
    tell([&](StepWatcher& watcher) { watcher.after_backward(static_cast<std::int64_t>(index)); });
    return;
  }
  Forward pass = pass_of(pending, batch);
  const Loss loss = parts_.loss(batch, pass);
  if (step_ == first_step_ && !batch.is_stand_in()) check_count(loss, batch);
  pending.micro_batches.push_back({batch, StepLoss(loss, batch)});
  // Before it costs a backward, where no other rank waits for it.
  if (!context_.stream().is_asynchronous() && parts_.ranks.size() == 1 &&
      !parts_.engine.optimizer().requirements().closure)
    check_loss(pending, index);
  tell([&](StepWatcher& watcher) { watcher.before_backward(static_cast<std::int64_t>(index)); });
  backward(parts_.engine, loss, batch, last);
  tell([&](StepWatcher& watcher) { watcher.after_backward(static_cast<std::int64_t>(index)); });
}

// A mean over other targets than its weight counts would make other micro-batches another training.
void TrainingSteps::check_count(const Loss& loss, const Batch& batch) const {
  for (const LossTerm& term : loss.terms()) {
    if (!term.counted.defined()) continue;
    const std::int64_t counted = HostCopy(term.counted).get().to_vector<std::int64_t>().front();
    KEEL_CHECK(static_cast<double>(counted) == batch.weight(term.weight), term.name.empty() ? "the loss" : term.name,
               " is a mean over ", counted, " targets, but the batch has ", batch.weight(term.weight), ' ', term.weight,
               "; name the weight that counts them");
  }
}

void TrainingSteps::check_loss(const Pending& pending, std::size_t micro_batch) {
  const double loss = pending.micro_batches[micro_batch].loss.get();
  if (!std::isfinite(loss)) fail_on(pending, micro_batch, 0, loss);
}

TrainingSteps::Note TrainingSteps::note_of(const Pending& pending, StepFlags flags) const {
  Note note{.stop = flags.stop,
            .late = flags.late,
            .failed = flags.failed,
            .save = flags.save,
            .seconds = flags.seconds,
            .saving = flags.saving,
            .wishes = flags.wishes};
  for (std::size_t i = 0; i < pending.micro_batches.size(); ++i) {
    const Pending::Micro& micro = pending.micro_batches[i];
    const double weight = micro.loss.weight();
    note.units += micro.batch.weight(parts_.unit);
    if (weight == 0) continue;
    const double loss = micro.loss.get();
    if (!std::isfinite(loss) && note.bad_micro < 0) {
      note.bad_micro = static_cast<std::int64_t>(i);
      note.bad_loss = loss;
    }
    note.loss_sum += loss * weight;
    note.weight += weight;
  }
  return note;
}

std::vector<TrainingSteps::Note> TrainingSteps::hear(GatheringOf<Note>& told) {
  const Stopwatch watch(waited_ms_);
  return told.wait();
}

void TrainingSteps::check_notes(const Pending& pending, const std::vector<Note>& all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].bad_micro >= 0)
      fail_on(pending, static_cast<std::size_t>(all[rank].bad_micro), static_cast<int>(rank), all[rank].bad_loss);
}

TrainingSteps::Turn TrainingSteps::conclude(const std::optional<Pending>& under_way, StepFlags flags) {
  if (!under_way) return parts_.ranks.size() == 1 ? Turn{{}, flags, {}, flags.failed ? 0 : -1} : Turn{};
  GatheringOf<Note> told(parts_.ranks, note_of(*under_way, flags));
  return conclude(*under_way, told);
}

TrainingSteps::Turn TrainingSteps::conclude(const Pending& pending, GatheringOf<Note>& told) {
  const std::vector<Note> all = hear(told);
  Turn turn = turn_of(all);
  check_notes(pending, all);
  StepOutcome outcome{.step = pending.step, .loss = 0, .units = 0, .result = {}};
  double weight = 0, units = 0;
  for (const Note& note : all) {
    outcome.loss += note.loss_sum;
    weight += note.weight;
    units += note.units;
  }
  outcome.loss /= weight;
  outcome.units = static_cast<std::int64_t>(units);
  outcome.result = pending.result.get();
  turn.outcome = std::move(outcome);
  return turn;
}

// Every rank repeats the forward pass, since they may gather weights from each other.
void TrainingSteps::fail_on(const Pending& pending, std::size_t micro_batch, int rank, double loss) {
  const Batch& batch = pending.micro_batches[micro_batch].batch;
  std::string bad = first_bad_tensor(parts_.model, parts_.loss, batch, pass_of(pending, batch));
  bad = broadcast_text(parts_.ranks, bad, rank);
  const std::string where = parts_.ranks.size() == 1 ? "" : concat(" on rank ", rank);
  throw AgreedError(concat("step ", pending.step, ": the loss", where, " is ", loss, "; first bad tensor: ",
                           bad.empty() ? "none when repeated" : bad, "; a lower optimizer.lr or a clip may help"),
                    ErrorKind::numeric);
}

}  // namespace keel
