#include "keel/trainer/training_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "keel/autograd/flops.h"
#include "keel/data/collator.h"
#include "keel/data/token_batch.h"
#include "keel/dist/comm/agreement.h"
#include "keel/runtime/stopwatch.h"
#include "keel/trainer/diagnosis.h"
#include "keel/trainer/step_loss.h"

namespace keel {
namespace {

// Whether two losses have the same terms, whatever the factors.
bool alike(const std::vector<TermKind>& a, const std::vector<TermKind>& b) {
  return std::ranges::equal(a, b, [](const TermKind& x, const TermKind& y) {
    return x.name == y.name && x.weight == y.weight && x.is_sum == y.is_sum && x.is_logged == y.is_logged;
  });
}

// Of the positions that are computed, those that were not filled up.
double filled_share(const Batch& batch) {
  const double positions = batch.has_weight(kPositionWeight) ? batch.weight(kPositionWeight) : 0;
  return positions > 0 ? batch.weight(kTokenWeight) / positions : 1;
}

std::string quoted(const TermKind& kind) { return kind.name.empty() ? "the loss" : concat("term '", kind.name, "'"); }

}  // namespace

TrainingSteps::TrainingSteps(const Parts& parts, std::int64_t step)
    : parts_(parts),
      context_(parts.engine.context()),
      step_(step),
      first_step_(step),
      virtual_ranks_(parts.engine.virtual_ranks()),
      most_micro_batches_(parts.engine.options().micro_batches * virtual_ranks_) {
  load_from(step);
  if (parts.cuda_graph) graph_.emplace(parts.loss, parts.engine);
}

void TrainingSteps::load_from(std::int64_t step) {
  // Several ranks tell each other whether they have all of a step; one alone computes a micro-batch while the next is
  // loaded.
  const bool alone = parts_.ranks.size() == 1;
  loader_.emplace(StepLoader::Site{.source = parts_.loader,
                                   .rank = parts_.engine.rank(),
                                   .ranks = parts_.engine.size(),
                                   .context = context_,
                                   .micro = parts_.micro,
                                   .micro_batches = alone ? 1 : parts_.engine.options().micro_batches * virtual_ranks_,
                                   .workers = parts_.workers,
                                   .virtual_ranks = virtual_ranks_},
                  step);
}

TrainingSteps::Turn TrainingSteps::next(StepFlags flags) {
  Pending pending{.step = step_ + 1, .random = {parts_.seed, static_cast<std::uint64_t>(step_), 0}};
  if (parts_.ranks.size() > 1) {
    const std::string activity = concat("step ", pending.step);
    parts_.engine.set_activity(activity);
    parts_.ranks.set_activity(activity);
  }
  std::optional<GatheringOfNotes> told;
  if (parts_.engine.optimizer().requirements().closure) {
    begin_micro_batches();
    pending.result = step_with_closure(pending);
    flags = look_ahead(flags);
  } else {
    run_micro_batches(pending);
    flags = look_ahead(flags);
    // Before the update, so that it does not stand behind the parameters that travel then.
    if (!context_.stream().is_asynchronous() && !survives())
      told.emplace(parts_.ranks, note_of(pending, flags), sums_of(pending), virtual_ranks_);
    tell([](StepWatcher& watcher) { watcher.before_optimizer_step(); });
    std::optional<TraceScope> span;
    if (parts_.trace != nullptr) parts_.trace->begin_span(span, "update");
    pending.result = parts_.engine.step(parts_.curves);
  }
  ++step_;
  tell([](StepWatcher& watcher) { watcher.after_optimizer_step(); });
  if (told) return conclude(pending, hear(*told));
  const std::optional<Pending> before = std::exchange(pending_, std::move(pending));
  return context_.stream().is_asynchronous() ? conclude(before, flags) : finish(flags);
}

TrainingSteps::Turn TrainingSteps::finish(StepFlags flags) {
  return conclude(std::exchange(pending_, std::nullopt), flags);
}

TrainingSteps::Turn TrainingSteps::ask(StepFlags flags) {
  const StepFlags asked = {.stop = flags.stop, .late = flags.late, .failed = flags.failed, .wishes = flags.wishes};
  return turn_of(gather({.flags = asked}, {}).notes);
}

StepFlags TrainingSteps::look_ahead(StepFlags flags) {
  if (parts_.ranks.size() == 1 || step_ + 1 >= parts_.last_step) return flags;
  data_failure_ = loader_->look_ahead();
  flags.failed |= !data_failure_.empty();
  return flags;
}

void TrainingSteps::begin_micro_batches() {
  if (const std::int64_t count = loader_->count(step_); count > most_micro_batches_)
    throw AgreedError(concat("step ", step_ + 1, " has ", parts_.loader->rows(step_), " rows, in ", count,
                             " micro-batches on each rank, but the engine was made for ", most_micro_batches_,
                             "; a step may have fewer rows than batch.global, and no more"));
  micro_batches_ = loader_->begin();
  taken_.clear();
  if (weights_.size() != 1) take_all();
}

void TrainingSteps::take_all() {
  for (std::int64_t i = 0; i < micro_batches_; ++i) taken_.push_back(loader_->next());
  if (!weights_.empty()) begin_totals();
}

Batch TrainingSteps::next_batch(std::size_t index) { return taken_.empty() ? loader_->next() : taken_[index]; }

void TrainingSteps::begin_totals() {
  std::vector<double> mine;
  for (std::size_t first = 0; first < taken_.size(); first += of_virtual_rank())
    std::ranges::copy(sum_weights(weights_, std::span(taken_).subspan(first, of_virtual_rank())),
                      std::back_inserter(mine));
  if (survives()) parts_.ranks.attempt([&] { summed_ = GatheringOfSums(parts_.ranks, mine, virtual_ranks_).wait(); });
  else totals_.emplace(parts_.ranks, mine, virtual_ranks_);
}

// Every evaluation sees the same batches and draws the same random numbers, so that the loss is a function of the
// weights alone. The step's loss is that of the first.
PendingStep TrainingSteps::step_with_closure(Pending& pending) {
  bool has_told = false;  // which loss was not finite
  const auto evaluate = [&] {
    const bool is_first = pending.micro_batches.empty();
    Pending again{.step = pending.step, .random = pending.random, .totals = pending.totals, .terms = pending.terms};
    Pending& evaluation = is_first ? pending : again;
    for (std::size_t i = 0; i < static_cast<std::size_t>(micro_batches_); ++i)
      run_micro_batch(i, is_first ? next_batch(i) : pending.micro_batches[i].batch, evaluation);
    if (!is_first) pending.flops += again.flops;
    const std::vector<double> mine = sums_of(evaluation);
    GatheringOfNotes told(parts_.ranks, note_of(evaluation, {}), mine);
    has_told = true;
    const StepNotes all = hear(told);
    check_notes(evaluation, all.notes);
    has_told = false;
    // With several weights a rank may have some of one and none of another, so all give the loss of all.
    // It is no number where the rank has no weight, and then it does not count.
    return loss_of(evaluation.micro_batches.front().loss.kinds(), weights_.size() > 1 ? all.sums : mine);
  };
  try {
    return parts_.engine.step(evaluate, parts_.curves);
  } catch (const AgreedError& error) {
    if (has_told) throw;
    throw AgreedError(concat("step ", pending.step, ": "), error, "; a lower optimizer.lr may help");
  }
}

Forward TrainingSteps::pass_of(const Pending& pending, const Batch& batch) const {
  return {.training = true,
          .random = pending.random,
          .sample_ids = batch.sample_ids(),
          .dtype = parts_.engine.options().policy.parameter,
          .observes = !batch.is_stand_in()};
}

void TrainingSteps::run_micro_batch(std::size_t index, const Batch& batch, Pending& pending) {
  const FlopCount count;
  compute(index, batch, pending);
  // Whole numbers, whose sum is the same however ranks divide the rows.
  pending.flops += batch.is_stand_in() ? 0 : std::round(count.flops() * filled_share(batch));
}

void TrainingSteps::compute(std::size_t index, const Batch& batch, Pending& pending) {
  const bool last = (index + 1) % of_virtual_rank() == 0;
  if (graph_) {
    pending.micro_batches.push_back({batch, graph_->run(batch, last)});
    kinds_ = pending.micro_batches.front().loss.kinds();
    weights_ = {kinds_.front().weight};
    tell([&](StepWatcher& watcher) { watcher.after_backward(static_cast<std::int64_t>(index)); });
    return;
  }
  Forward pass = pass_of(pending, batch);
  const Loss loss = parts_.loss(batch, pass);
  if (step_ == first_step_) check_counts(loss, batch);
  if (index > 0) check_same_terms(index, loss, pending);
  else if (pending.terms.empty()) agree_on_terms(loss, pending);
  pending.micro_batches.push_back({batch, StepLoss(loss, batch)});
  if (kinds_.empty()) kinds_ = pending.micro_batches.front().loss.kinds();
  // Before it costs a backward, where no other rank waits for it.
  if (!context_.stream().is_asynchronous() && parts_.ranks.size() == 1 &&
      !parts_.engine.optimizer().requirements().closure)
    check_loss(pending, index);
  tell([&](StepWatcher& watcher) { watcher.before_backward(static_cast<std::int64_t>(index)); });
  backward(parts_.engine, loss, batch, pending.totals, last);
  tell([&](StepWatcher& watcher) { watcher.after_backward(static_cast<std::int64_t>(index)); });
}

// In a session's first step ranks compare their losses before anything follows from the terms; after that with what
// they tell each other anyway.
void TrainingSteps::agree_on_terms(const Loss& loss, Pending& pending) {
  pending.terms = loss.description();
  if (weights_.empty()) {
    check_agreement(parts_.ranks, pending.terms, concat("step ", pending.step, ": ranks have different losses"));
    weights_ = weights_of(loss);
    if (weights_.size() > 1) begin_totals();
  }
  if (!totals_ && !summed_) return;
  const Stopwatch watch(waited_ms_);
  pending.totals = WeightTotals(
      weights_, summed_ ? *std::exchange(summed_, std::nullopt) : std::exchange(totals_, std::nullopt)->wait());
}

void TrainingSteps::check_same_terms(std::size_t index, const Loss& loss, const Pending& pending) const {
  if (loss.signature() == pending.micro_batches.front().loss.signature()) return;
  throw Error(MessageLines{concat("step ", pending.step, ": the loss of micro-batch ", index + 1, " has\n",
                                  loss.description(), "and that of the first has\n", pending.terms,
                                  "All micro-batches of a step have the same terms and factors")});
}

void TrainingSteps::check_loss(const Pending& pending, std::size_t micro_batch) {
  if (const auto bad = pending.micro_batches[micro_batch].loss.first_bad()) fail_on(pending, micro_batch, 0, *bad);
}

StepNote TrainingSteps::note_of(const Pending& pending, const StepFlags& flags) const {
  StepNote note{.flags = flags, .flops = pending.flops, .signature = pending.micro_batches.front().loss.signature()};
  // On a device the step after it has begun already.
  const std::int64_t next = pending.step + (context_.stream().is_asynchronous() ? 1 : 0);
  if (next < parts_.last_step) note.next_rows = parts_.loader->rows(next);
  for (std::size_t i = 0; i < pending.micro_batches.size(); ++i) {
    const Pending::Micro& micro = pending.micro_batches[i];
    note.units += micro.batch.weight(parts_.unit);
    const std::optional<BadTerm> bad = micro.loss.first_bad();
    if (!bad || (note.bad_micro >= 0 && (note.bad.has_weight || !bad->has_weight))) continue;
    note.bad_micro = static_cast<std::int64_t>(i);
    note.bad = *bad;
  }
  return note;
}

// As many numbers on every rank, whatever terms this one has.
std::vector<double> TrainingSteps::sums_of(const Pending& pending) const {
  const std::size_t count = StepLoss::kSums * kinds_.size();
  const auto virtual_ranks = static_cast<std::size_t>(virtual_ranks_);
  const std::size_t of_each = pending.micro_batches.size() / virtual_ranks;  // not those of the step behind it
  std::vector<double> sums(count * virtual_ranks);
  for (std::size_t i = 0; i < pending.micro_batches.size(); ++i) {
    const StepLoss& loss = pending.micro_batches[i].loss;
    if (alike(loss.kinds(), kinds_)) loss.add_to(std::span(sums).subspan(i / of_each * count, count));
  }
  return sums;
}

StepNotes TrainingSteps::gather(const StepNote& note, std::span<const double> sums) {
  StepNotes all;
  parts_.ranks.attempt([&] {
    GatheringOfNotes told(parts_.ranks, note, sums, virtual_ranks_);
    all = hear(told);
  });
  return all;
}

StepNotes TrainingSteps::hear(GatheringOfNotes& told) {
  const Stopwatch watch(waited_ms_);
  return told.wait();
}

void TrainingSteps::check_notes(const Pending& pending, const std::vector<StepNote>& all) {
  const bool agree =
      std::ranges::all_of(all, [&](const StepNote& note) { return note.signature == all.front().signature; });
  if (!agree)
    check_agreement(parts_.ranks, pending.terms, concat("step ", pending.step, ": ranks have different losses"));
  if (!alike(pending.micro_batches.front().loss.kinds(), kinds_))
    throw AgreedError(MessageLines{concat("step ", pending.step, ": the loss has\n", pending.terms,
                                          "which are other terms than in the session's first step; "
                                          "give a term that is not wanted the factor 0")});
  const auto other =
      std::ranges::find_if(all, [&](const StepNote& note) { return note.next_rows != all.front().next_rows; });
  if (other != all.end())
    throw AgreedError(concat("ranks find other numbers of rows after step ", pending.step, ": rank 0 has ",
                             all.front().next_rows, ", rank ", other - all.begin(), " has ", other->next_rows,
                             "; give all the same data"));
  // What counts nothing says less of what went wrong.
  for (const bool has_weight : {true, false})
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      if (const StepNote& note = all[rank]; note.bad_micro >= 0 && note.bad.has_weight == has_weight)
        fail_on(pending, static_cast<std::size_t>(note.bad_micro), static_cast<int>(rank), note.bad);
}

TrainingSteps::Turn TrainingSteps::conclude(const std::optional<Pending>& under_way, StepFlags flags) {
  if (!under_way) return turn_without_step(flags, parts_.ranks.size());
  return conclude(*under_way, gather(note_of(*under_way, flags), sums_of(*under_way)));
}

TrainingSteps::Turn TrainingSteps::conclude(const Pending& pending, const StepNotes& all) {
  Turn turn = turn_of(all.notes);
  check_notes(pending, all.notes);
  const std::vector<TermKind>& kinds = pending.micro_batches.front().loss.kinds();  // with the factors of this step
  StepOutcome outcome{.step = pending.step, .loss = loss_of(kinds, all.sums)};
  outcome.micro_batches = static_cast<std::int64_t>(pending.micro_batches.size()) / virtual_ranks_;
  for (std::size_t i = 0; i < kinds.size(); ++i)
    if (!kinds[i].name.empty()) outcome.terms.push_back({kinds[i].name, mean_of_term(all.sums, i)});
  double units = 0;
  for (const StepNote& note : all.notes) {
    units += note.units;
    outcome.flops += note.flops;
  }
  outcome.units = static_cast<std::int64_t>(units);
  outcome.result = pending.result.get();
  outcome.updates = {{"", outcome.result}};
  turn.outcome = std::move(outcome);
  return turn;
}

// Every rank repeats the forward pass, since they may gather weights from each other.
void TrainingSteps::fail_on(const Pending& pending, std::size_t micro_batch, int rank, const BadTerm& bad) {
  const TermKind& kind = pending.micro_batches.front().loss.kinds()[static_cast<std::size_t>(bad.term)];
  const std::string where = parts_.ranks.size() == 1 ? "" : concat(" on rank ", rank),
                    what = concat("step ", pending.step, ": ", quoted(kind), where, " is ", bad.value);
  if (!bad.has_weight)
    throw AgreedError(concat(what, " in a micro-batch that has no ", kind.weight,
                             "; a mean over nothing must be finite: add it as a sum (add_sum), or let it be 0"),
                      ErrorKind::numeric);
  const Batch& batch = pending.micro_batches[micro_batch].batch;
  Forward pass = pass_of(pending, batch);
  pass.observes = false;
  std::string tensor = first_bad_tensor(parts_.model, parts_.loss, batch, pass);
  tensor = broadcast_text(parts_.ranks, tensor, rank);
  throw AgreedError(concat(what, "; first bad tensor: ", tensor.empty() ? "none when repeated" : tensor,
                           "; a lower optimizer.lr or a clip may help"),
                    ErrorKind::numeric);
}

}  // namespace keel
