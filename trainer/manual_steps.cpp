#include "keel/trainer/manual_steps.h"

#include <algorithm>
#include <map>
#include <utility>

#include "keel/autograd/flops.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/parallel/constant_scope.h"
#include "keel/runtime/stopwatch.h"
#include "keel/runtime/xxh3.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/step_loss.h"

namespace keel {
namespace {

std::string list_of_weights(const std::vector<std::string>& weights) {
  std::string list;
  for (const std::string& each : weights) list += concat(list.empty() ? "" : ", ", each);
  return list;
}

}  // namespace

ManualSteps::ManualSteps(const Parts& parts, std::int64_t step)
    : parts_(parts),
      step_(step),
      loader_({.source = parts.source,
               .rank = parts.ranks.rank(),
               .ranks = parts.ranks.size(),
               .context = parts.stacks.front()->engine().context(),
               .micro = parts.micro,
               .micro_batches = parts.micro_batches,
               .workers = parts.workers},
              step) {
  for (const auto& stack : parts_.stacks)
    trained_.push_back({.stack = stack.get(), .rates = LearningRate(stack->config())});
}

RunSteps::Turn ManualSteps::next(StepFlags flags) {
  begin_step();
  parts_.task.training_step(*this);
  end_step();
  ++step_;  // whatever comes now, its updates are made
  if (parts_.ranks.size() > 1 && step_ < parts_.last_step) {
    data_failure_ = loader_.look_ahead();
    flags.failed |= !data_failure_.empty();
  }
  GatheringOfNotes told(parts_.ranks, note_of(flags), sums());
  return conclude(told);
}

RunSteps::Turn ManualSteps::finish(StepFlags flags) { return turn_without_step(flags, parts_.ranks.size()); }

RunSteps::Turn ManualSteps::ask(StepFlags flags) {
  const StepFlags asked = {.stop = flags.stop, .late = flags.late, .failed = flags.failed, .wishes = flags.wishes};
  GatheringOfNotes told(parts_.ranks, {.flags = asked}, {});
  return turn_of(told.wait().notes);
}

void ManualSteps::begin_step() {
  const std::int64_t count = loader_.count(step_);
  if (count > parts_.micro_batches)
    throw AgreedError(concat("step ", number(), " has ", count, " micro-batches on each rank, but the engines were ",
                             "made for ", parts_.micro_batches,
                             "; a step may have fewer rows than batch.global, and no more"));
  if (parts_.ranks.size() > 1) {
    const std::string activity = concat("step ", number());
    for (const Trained& each : trained_) each.stack->engine().set_activity(activity);
    parts_.ranks.set_activity(activity);
  }
  passes_.clear();
  calls_.clear();
  flops_ = 0;
  for (Trained& each : trained_) each.updates.clear();
  batches_ = loader_.take();
  random_.assign(batches_.size(), {parts_.seed, static_cast<std::uint64_t>(step_), 0});
}

void ManualSteps::end_step() {
  announce("the step ends");
  for (const Trained& each : trained_)
    check(each.accumulated == 0, "the step ends, and '", each.stack->name(),
          "' has gradients that no update() has taken; gradients are not kept from step to step: call update() or "
          "zero_grad()");
  check(!passes_.empty(),
        "nothing was trained: the task's training_step() has called neither train() nor "
        "accumulate()");
  // What a model has observed since its last update, while others were trained, is no part of a checkpoint.
  for (const Trained& each : trained_) each.stack->engine().zero_grad();
}

// A rank that does something else than the others would wait for them in a collective to which they never come.
void ManualSteps::announce(std::string_view call, const Bad& bad) {
  calls_ += concat(call, '\n');
  if (parts_.ranks.size() == 1 && bad.pass < 0) return;
  struct Told {
    std::uint64_t calls;
    Bad bad;
  };
  std::vector<Told> all;
  {
    const Stopwatch watch(waited_ms_);
    all = gather_values(parts_.ranks, Told{xxh3(std::as_bytes(std::span(calls_))).low, bad});
  }
  if (std::ranges::any_of(all, [&](const Told& each) { return each.calls != all.front().calls; }))
    check_agreement(parts_.ranks, calls_, concat("step ", number(), ": ranks train in different ways"));
  // What counts nothing says less of what went wrong.
  for (const bool has_weight : {true, false})
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      if (all[rank].bad.pass >= 0 && all[rank].bad.term.has_weight == has_weight)
        fail_on(static_cast<int>(rank), all[rank].bad);
}

ManualSteps::Trained& ManualSteps::find(std::string_view name) {
  const auto found = std::ranges::find_if(trained_, [&](const Trained& each) { return each.stack->name() == name; });
  std::string names;
  for (const Trained& each : trained_) names += concat(names.empty() ? "" : ", ", each.stack->name());
  check(found != trained_.end(), "the task trains no model '", name, "'; those that are trained are ", names);
  return *found;
}

void ManualSteps::accumulate(std::string_view stack, const LossFunction& loss, bool last) {
  announce(concat("accumulate ", stack, last ? "" : ", and more to come"));
  Trained& trained = find(stack);
  check(!trained.is_complete, "accumulate('", stack, "') after the last one before an update; call update('", stack,
        "') or zero_grad('", stack, "') first, or give the one before last = false");
  const auto most = static_cast<std::size_t>(trained.stack->engine().options().micro_batches / parts_.micro_batches);
  check(trained.accumulated + 1 < most || last, "'", stack, "' has had ", trained.accumulated,
        " accumulate() since its last update, and StackModel::passes says that there are ", most,
        " at most; so this is the last, and needs last = true");
  Pass pass{.name = trained.stack->name()};
  run_pass(trained, pass, loss, last);
  trained.pass = passes_.size();
  ++trained.accumulated;
  trained.is_complete = last;
  passes_.push_back(std::move(pass));
}

void ManualSteps::run_pass(Trained& trained, Pass& pass, const LossFunction& loss, bool last) {
  Sharded& engine = trained.stack->engine();
  std::vector<std::unique_ptr<ConstantScope>> constants;
  for (const Trained& other : trained_)
    if (&other != &trained) constants.push_back(std::make_unique<ConstantScope>(other.stack->engine()));
  WeightTotals totals;
  for (std::size_t i = 0; i < batches_.size(); ++i) {
    const Batch& batch = batches_[i];
    const FlopCount count;
    Forward forward{.training = true,
                    .random = random_[i],
                    .sample_ids = batch.sample_ids(),
                    .dtype = engine.options().policy.parameter,
                    .observes = !batch.is_stand_in()};
    const Loss of_batch = loss(batch, forward);
    random_[i] = forward.random;
    if (parts_.after_pass) parts_.after_pass();
    if (i == 0) totals = agree_on(trained, pass, of_batch);
    else if (of_batch.signature() != pass.losses.front().signature())
      throw Error(MessageLines{concat("step ", number(), ": the loss of '", pass.name, "' in micro-batch ", i + 1,
                                      " has\n", of_batch.description(), "and in the first\n", pass.description,
                                      "All micro-batches of a pass have the same terms and factors")});
    if (trained.first_step == step_) check_counts(of_batch, batch);
    pass.losses.emplace_back(of_batch, batch);
    const auto micro = static_cast<std::int64_t>(i);
    if (parts_.watcher != nullptr) parts_.watcher->before_backward(micro);
    backward(engine, of_batch, batch, totals, last && i + 1 == batches_.size());
    if (parts_.watcher != nullptr) parts_.watcher->after_backward(micro);
    flops_ += batch.is_stand_in() ? 0 : count.flops();
  }
}

// In the first step of a session that trains a model, ranks compare its losses before anything follows from the terms;
// after that with the next call. What ranks do until then follows from what they have agreed on.
WeightTotals ManualSteps::agree_on(Trained& trained, Pass& pass, const Loss& loss) {
  pass.description = loss.description();
  calls_ += pass.description;
  if (!trained.first_step) trained.first_step = step_;
  if (trained.first_step == step_)
    check_agreement(parts_.ranks, concat(pass.name, '\n', pass.description),
                    concat("step ", number(), ": ranks have different losses"));
  const std::vector<std::string> weights = weights_of(loss);
  if (trained.weights.empty()) trained.weights = weights;
  WeightTotals totals;
  if (trained.weights.size() > 1) {
    const Stopwatch watch(waited_ms_);
    totals = {trained.weights, GatheringOfSums(parts_.ranks, sum_weights(trained.weights, batches_)).wait()};
  }
  KEEL_CHECK(std::ranges::is_permutation(weights, trained.weights), "step ", number(), ": the loss of '", pass.name,
             "' has means over ", list_of_weights(weights), ", and its first one in this session had means over ",
             list_of_weights(trained.weights),
             "; all losses of a model have the same weights: give a term that is not wanted ", "the factor 0");
  return totals;
}

void ManualSteps::update(std::string_view stack) {
  announce(concat("update ", stack), first_bad(stack));
  Trained& trained = find(stack);
  check(trained.is_complete, "update('", stack, "') without an accumulate('", stack, "') before it",
        trained.accumulated == 0 ? "" : " that is the last one (last = true)");
  if (parts_.watcher != nullptr) parts_.watcher->before_optimizer_step();
  Sharded& engine = trained.stack->engine();
  std::optional<TraceScope> span;
  if (parts_.trace != nullptr) parts_.trace->begin_span(span, "update");
  trained.updates.push_back(
      {engine.step(scaled(make_curves(trained.rates, step_, engine.context()), parts_.rate_factor)), trained.pass});
  if (parts_.watcher != nullptr) parts_.watcher->after_optimizer_step();
  trained.accumulated = 0;
  trained.is_complete = false;
}

void ManualSteps::zero_grad(std::string_view stack) {
  announce(concat("zero_grad ", stack), first_bad(stack));
  Trained& trained = find(stack);
  trained.stack->engine().zero_grad();
  trained.accumulated = 0;
  trained.is_complete = false;
}

ManualStep::Outcome ManualSteps::outcome(std::string_view stack) {
  announce(concat("outcome ", stack));
  const Trained& trained = find(stack);
  check(!trained.updates.empty(), "outcome('", stack, "') without an update('", stack, "') in this step");
  const StepResult result = trained.updates.back().result.get();
  const Pass& pass = passes_[trained.updates.back().pass];
  const std::vector<double> sums = GatheringOfSums(parts_.ranks, pass.sums()).wait();
  return {result.taken, loss_of(pass.losses.front().kinds(), sums), result.grad_norm, result.lr};
}

// Of the passes of a model since its last update: the first that has weight, or else the first.
ManualSteps::Bad ManualSteps::first_bad(std::string_view stack) const {
  const auto trained = std::ranges::find_if(trained_, [&](const Trained& each) { return each.stack->name() == stack; });
  std::size_t begin = passes_.size();
  for (std::size_t left = trained == trained_.end() ? 0 : trained->accumulated; left > 0;)
    if (passes_[--begin].name == stack) --left;
  Bad first;
  for (std::size_t p = begin; p < passes_.size(); ++p) {
    if (passes_[p].name != stack) continue;
    for (const StepLoss& loss : passes_[p].losses) {
      const std::optional<BadTerm> bad = loss.first_bad();
      if (!bad || (first.pass >= 0 && (first.term.has_weight || !bad->has_weight))) continue;
      first = {.pass = static_cast<std::int64_t>(p), .term = *bad};
    }
  }
  return first;
}

void ManualSteps::fail_on(int rank, const Bad& bad) const {
  const Pass& pass = passes_[static_cast<std::size_t>(bad.pass)];
  const TermKind& kind = pass.losses.front().kinds()[static_cast<std::size_t>(bad.term.term)];
  throw AgreedError(
      concat("step ", number(), ": ", kind.name.empty() ? "the loss" : concat("term '", kind.name, "'"), " of '",
             pass.name, "'", parts_.ranks.size() == 1 ? "" : concat(" on rank ", rank), " is ", bad.term.value,
             bad.term.has_weight ? "; a lower optimizer.lr or a clip may help"
                                 : concat(" in a micro-batch that has no ", kind.weight,
                                          "; a mean over nothing must be finite: add it as a sum (add_sum)")),
      ErrorKind::numeric);
}

StepNote ManualSteps::note_of(StepFlags flags) const {
  StepNote note{.flags = flags, .flops = flops_};
  if (step_ < parts_.last_step) note.next_rows = parts_.source->rows(step_);
  for (const Batch& batch : batches_) note.units += batch.weight(parts_.unit);
  return note;
}

std::vector<double> ManualSteps::Pass::sums() const {
  std::vector<double> all(StepLoss::kSums * losses.front().kinds().size());
  for (const StepLoss& each : losses) each.add_to(all);
  return all;
}

// Of all passes.
std::vector<double> ManualSteps::sums() const {
  std::vector<double> all;
  for (const Pass& pass : passes_) {
    const std::vector<double> own = pass.sums();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

RunSteps::Turn ManualSteps::conclude(GatheringOfNotes& told) {
  StepNotes all;
  {
    const Stopwatch watch(waited_ms_);
    all = told.wait();
  }
  Turn turn = turn_of(all.notes);
  StepOutcome outcome = outcome_of(all.sums);
  double units = 0;
  for (const StepNote& note : all.notes) {
    if (note.next_rows != all.notes.front().next_rows)
      throw AgreedError(concat("ranks find other numbers of rows after step ", step_, "; give all the same data"));
    outcome.flops += note.flops;
    units += note.units;
  }
  outcome.units = static_cast<std::int64_t>(units);
  turn.outcome = std::move(outcome);
  return turn;
}

StepOutcome ManualSteps::outcome_of(std::span<const double> sums) {
  StepOutcome outcome{.step = step_};
  std::map<std::string, double> terms, losses;  // losses: of each model, by the latest of its passes
  for (const Pass& pass : passes_) {
    const std::vector<TermKind>& kinds = pass.losses.front().kinds();
    const std::span<const double> own = sums.first(StepLoss::kSums * kinds.size());
    sums = sums.subspan(own.size());
    for (std::size_t i = 0; i < kinds.size(); ++i)
      if (!kinds[i].name.empty()) terms[concat(pass.name, '/', kinds[i].name)] = mean_of_term(own, i);
    losses[pass.name] = loss_of(kinds, own);
  }
  for (const auto& [name, loss] : losses) {
    terms[concat(name, "/loss")] = loss;
    outcome.loss += loss;
  }
  bool is_first = true;
  for (const Trained& each : trained_) {
    if (each.updates.empty()) continue;
    const std::string& name = each.stack->name();
    for (const Update& update : each.updates) outcome.updates.push_back({name, update.result.get()});
    const StepResult& result = outcome.updates.back().result;
    terms[concat(name, "/grad_norm")] = result.grad_norm;
    terms[concat(name, "/lr")] = result.lr;
    if (each.stack->engine().options().loss_scale != 1) terms[concat(name, "/loss_scale")] = result.loss_scale;
    if (std::exchange(is_first, false)) outcome.result = result;
  }
  outcome.result.taken = outcome.updates.empty() || std::ranges::any_of(outcome.updates, [](const ModelUpdate& each) {
                           return each.result.taken;
                         });
  // The run's step was made, whatever became of its updates, which the engines count.
  outcome.result.steps_taken = step_;
  for (const auto& [name, value] : terms) outcome.terms.push_back({name, value});
  return outcome;
}

}  // namespace keel
