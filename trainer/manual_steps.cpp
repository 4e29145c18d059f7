#include "keel/trainer/manual_steps.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "keel/autograd/flops.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/parallel/constant_scope.h"
#include "keel/runtime/stopwatch.h"
#include "keel/runtime/xxh3.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/step_loss.h"

namespace keel {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// Of terms without weight.
double sum_of_losses(std::span<const std::pair<std::string, double>> losses) {
  double sum = 0;
  for (const auto& [name, loss] : losses) sum += loss;
  return losses.empty() ? kNoNumber : sum;
}

}  // namespace

ManualSteps::ManualSteps(const Parts& parts, std::int64_t step)
    : parts_(parts),
      step_(step),
      first_step_(step),
      loader_({.source = parts.loader,
               .ranks = parts.ranks,
               .context = parts.stacks.front()->engine().context(),
               .micro = parts.micro,
               .micro_batches = parts.micro_batches,
               .workers = parts.workers},
              step) {
  for (const auto& stack : parts_.stacks)
    trained_.push_back(
        {stack.get(), SkippedSteps(stack->engine().options().scaling, stack->engine().steps_taken())});
}

double ManualSteps::waited_ms() const {
  double sum = waited_ms_;
  for (const Trained& each : trained_) sum += each.stack->engine().waited_ms();
  return sum;
}

RunSteps::Turn ManualSteps::next(StepFlags flags) {
  begin_step();
  parts_.task.training_step(*this);
  check_that_all_is_updated();
  if (parts_.ranks.size() > 1 && number() < parts_.last_step) {
    data_failure_ = loader_.look_ahead();
    flags.failed |= !data_failure_.empty();
  }
  GatheringOfNotes told(parts_.ranks, note_of(flags), sums());
  Turn turn = conclude(told);
  ++step_;
  return turn;
}

RunSteps::Turn ManualSteps::finish(StepFlags flags) {
  return parts_.ranks.size() == 1 ? Turn{{}, flags, {}, flags.failed ? 0 : -1} : Turn{};
}

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
  for (Trained& each : trained_) {
    each.pass.reset();
    each.taken.reset();
  }
  batches_ = loader_.take();
  random_.assign(batches_.size(), {parts_.seed, static_cast<std::uint64_t>(step_), 0});
}

std::size_t ManualSteps::find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(trained_, [&](const Trained& each) { return each.stack->name() == name; });
  std::string names;
  for (const Trained& each : trained_) names += concat(names.empty() ? "" : ", ", each.stack->name());
  KEEL_CHECK(found != trained_.end(), "the task trains no model '", name, "'; those that are trained are ", names);
  return static_cast<std::size_t>(found - trained_.begin());
}

void ManualSteps::accumulate(std::string_view stack, const LossFunction& loss, bool last) {
  const std::size_t at = find(stack);
  Trained& trained = trained_[at];
  KEEL_CHECK(!trained.is_complete, called(at), " has what the next update needs; update() or zero_grad() comes first");
  const auto most = static_cast<std::size_t>(trained.stack->engine().options().micro_batches / parts_.micro_batches);
  KEEL_CHECK(trained.accumulated < most, called(at), " has had ", trained.accumulated,
             " accumulate() calls since its last update, and StackModel::passes says that there are ", most,
             " at most");
  Pass pass{.stack = at};
  run_pass(pass, loss, last);
  trained.pass = passes_.size();
  ++trained.accumulated;
  trained.is_complete = last;
  calls_ += concat("accumulate ", stack, ' ', pass.losses.front().signature(), last ? "" : " and more", '\n');
  passes_.push_back(std::move(pass));
}

void ManualSteps::run_pass(Pass& pass, const LossFunction& loss, bool last) {
  Sharded& engine = trained_[pass.stack].stack->engine();
  std::vector<std::unique_ptr<ConstantScope>> constants;
  for (const Trained& other : trained_)
    if (&other.stack->engine() != &engine) constants.push_back(std::make_unique<ConstantScope>(other.stack->engine()));
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
    if (i == 0) {
      if (step_ == first_step_)
        check_agreement(parts_.ranks, concat(trained_[pass.stack].stack->name(), '\n', of_batch.description()),
                        concat("step ", number(), ": ranks have different losses"));
      if (const std::vector<std::string> weights = weights_of(of_batch); weights.size() > 1) {
        std::vector<double> mine(weights.size());
        for (const Batch& each : batches_)
          for (std::size_t w = 0; w < mine.size(); ++w) mine[w] += each.weight(weights[w]);
        const Stopwatch watch(waited_ms_);
        totals = WeightTotals(weights, GatheringOfSums(parts_.ranks, mine).wait());
      }
    } else {
      KEEL_CHECK(of_batch.signature() == pass.losses.front().signature(), "step ", number(), ": the loss of ",
                 called(pass.stack), " in micro-batch ", i + 1, " has other terms or factors than in the first:\n",
                 of_batch.description());
    }
    if (step_ == first_step_ && !batch.is_stand_in()) check_counts(of_batch, batch);
    pass.losses.emplace_back(of_batch, batch);
    const auto micro = static_cast<std::int64_t>(i);
    if (parts_.watcher != nullptr) parts_.watcher->before_backward(micro);
    backward(engine, of_batch, batch, totals, last && i + 1 == batches_.size());
    if (parts_.watcher != nullptr) parts_.watcher->after_backward(micro);
    flops_ += batch.is_stand_in() ? 0 : count.flops();
  }
}

void ManualSteps::update(std::string_view stack) {
  const std::size_t at = find(stack);
  Trained& trained = trained_[at];
  KEEL_CHECK(trained.is_complete, called(at), " has nothing to be updated by; accumulate() comes first, the last one ",
             "with `last`");
  calls_ += concat("update ", stack, '\n');
  if (parts_.watcher != nullptr) parts_.watcher->before_optimizer_step();
  Sharded& engine = trained.stack->engine();
  const StepCurves curves = make_curves(LearningRate(trained.stack->config()), step_, engine.context());
  trained.taken = engine.step(scaled(curves, parts_.rate_factor));
  if (parts_.watcher != nullptr) parts_.watcher->after_optimizer_step();
  trained.accumulated = 0;
  trained.is_complete = false;
}

void ManualSteps::zero_grad(std::string_view stack) {
  const std::size_t at = find(stack);
  calls_ += concat("zero_grad ", stack, '\n');
  trained_[at].stack->engine().zero_grad();
  trained_[at].accumulated = 0;
  trained_[at].is_complete = false;
}

ManualStep::Outcome ManualSteps::outcome(std::string_view stack) {
  const std::size_t at = find(stack);
  const Trained& trained = trained_[at];
  KEEL_CHECK(trained.taken && trained.pass, called(at), " was not updated in this step");
  const StepResult result = trained.taken->get();
  const std::vector<StepLoss>& losses = passes_[*trained.pass].losses;
  std::vector<double> mine(StepLoss::kSums * losses.front().kinds().size());
  for (const StepLoss& each : losses) each.add_to(mine);
  calls_ += concat("outcome ", stack, '\n');
  return {result.taken, loss_of(losses.front().kinds(), GatheringOfSums(parts_.ranks, mine).wait()), result.grad_norm,
          result.lr};
}

void ManualSteps::check_that_all_is_updated() const {
  for (std::size_t i = 0; i < trained_.size(); ++i)
    KEEL_CHECK(trained_[i].accumulated == 0, "step ", number(), " ends, and ", called(i),
               " has gradients that no update() has taken; gradients are not kept from step to step");
  KEEL_CHECK(!passes_.empty(), "step ", number(), " has trained nothing: the task's training_step() made no pass");
}

StepNote ManualSteps::note_of(StepFlags flags) const {
  StepNote note{.flags = flags, .flops = flops_, .signature = xxh3(std::as_bytes(std::span(calls_))).low};
  if (number() < parts_.last_step) note.next_rows = parts_.loader->rows(step_ + 1);
  for (const Batch& batch : batches_) note.units += batch.weight(parts_.unit);
  std::int64_t before = 0;  // terms of the passes before
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    for (const StepLoss& loss : passes_[p].losses) {
      std::optional<BadTerm> bad = loss.first_bad();
      if (!bad || (note.bad_micro >= 0 && (note.bad.has_weight || !bad->has_weight))) continue;
      bad->term += before;
      note.bad_micro = static_cast<std::int64_t>(p);
      note.bad = *bad;
    }
    before += std::ssize(passes_[p].losses.front().kinds());
  }
  return note;
}

std::vector<double> ManualSteps::sums() const {
  std::vector<double> all;
  for (const Pass& pass : passes_) {
    std::vector<double> mine(StepLoss::kSums * pass.losses.front().kinds().size());
    for (const StepLoss& each : pass.losses) each.add_to(mine);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  return all;
}

void ManualSteps::check_notes(const std::vector<StepNote>& all) {
  const auto differs = [&](auto member) {
    return std::ranges::any_of(all, [&](const StepNote& note) { return note.*member != all.front().*member; });
  };
  if (differs(&StepNote::signature))
    check_agreement(parts_.ranks, calls_, concat("step ", number(), ": ranks have trained in different ways"));
  if (differs(&StepNote::next_rows))
    throw AgreedError(concat("ranks find other numbers of rows after step ", number(), "; give all the same data"));
  for (const bool has_weight : {true, false})
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const StepNote& note = all[rank];
      if (note.bad_micro < 0 || note.bad.has_weight != has_weight) continue;
      const Pass& pass = passes_[static_cast<std::size_t>(note.bad_micro)];
      std::int64_t term = note.bad.term;
      for (std::int64_t p = 0; p < note.bad_micro; ++p)
        term -= std::ssize(passes_[static_cast<std::size_t>(p)].losses.front().kinds());
      const TermKind& kind = pass.losses.front().kinds()[static_cast<std::size_t>(term)];
      throw AgreedError(
          concat("step ", number(), ": ", kind.name.empty() ? "the loss" : concat("term '", kind.name, "'"), " of ",
                 called(pass.stack), parts_.ranks.size() == 1 ? "" : concat(" on rank ", rank), " is ", note.bad.value,
                 has_weight ? "; a lower optimizer.lr or a clip may help"
                            : concat(" in a micro-batch that has no ", kind.weight,
                                     "; a mean over nothing must be finite: add it as a sum (add_sum)")),
          ErrorKind::numeric);
    }
}

RunSteps::Turn ManualSteps::conclude(GatheringOfNotes& told) {
  StepNotes all;
  {
    const Stopwatch watch(waited_ms_);
    all = told.wait();
  }
  Turn turn = turn_of(all.notes);
  check_notes(all.notes);
  turn.outcome = outcome_of(all.sums);
  for (const StepNote& note : all.notes) turn.outcome->flops += note.flops;
  double units = 0;
  for (const StepNote& note : all.notes) units += note.units;
  turn.outcome->units = static_cast<std::int64_t>(units);
  return turn;
}

StepOutcome ManualSteps::outcome_of(std::span<const double> sums) {
  StepOutcome outcome{.step = number()};
  std::map<std::string, double> terms;
  std::vector<std::pair<std::string, double>> losses;  // of each model, in the order of their first passes
  const std::span<const double> all = sums;
  std::size_t at = 0;
  for (const Pass& pass : passes_) {
    const std::vector<TermKind>& kinds = pass.losses.front().kinds();
    const std::span<const double> own = all.subspan(at, StepLoss::kSums * kinds.size());
    at += own.size();
    const std::string& name = trained_[pass.stack].stack->name();
    for (std::size_t i = 0; i < kinds.size(); ++i)
      if (!kinds[i].name.empty()) terms[concat(name, '/', kinds[i].name)] = mean_of_term(own, i);
    const double loss = loss_of(kinds, own);
    terms[concat(name, "/loss")] = loss;
    const auto known = std::ranges::find(losses, name, [](const auto& each) { return each.first; });
    if (known == losses.end()) losses.emplace_back(name, loss);
    else known->second = loss;
  }
  outcome.loss = sum_of_losses(losses);
  outcome.result.taken = true;
  outcome.result.steps_taken = number();  // of the run; engines count their own updates
  bool is_first = true;
  for (Trained& each : trained_) {
    if (!each.taken) continue;
    const StepResult result = each.taken->get();
    const std::string& name = each.stack->name();
    terms[concat(name, "/grad_norm")] = result.grad_norm;
    terms[concat(name, "/lr")] = result.lr;
    if (each.stack->engine().options().loss_scale != 1) terms[concat(name, "/loss_scale")] = result.loss_scale;
    if (std::exchange(is_first, false)) {
      outcome.result.lr = result.lr;
      outcome.result.grad_norm = result.grad_norm;
      outcome.result.weight = result.weight;
    }
    if (!result.taken && parts_.ranks.rank() == 0)
      each.stack->engine().context().log(
          each.skipped.are_expected() ? LogLevel::info : LogLevel::warning,
          concat("the update of '", name, "' in ", each.skipped.message(result, number())));
    each.skipped.count(result, number());
  }
  for (const auto& [name, value] : terms) outcome.terms.push_back({name, value});
  return outcome;
}

}  // namespace keel
