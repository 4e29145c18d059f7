// Steps of an optimizer that evaluates the loss itself.

#include <algorithm>
#include <cmath>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/elementwise.h"

namespace keel {

// The mean loss of all ranks as a function of the weights that this one owns. In stage 0 every rank owns and moves all
// of them, but counts its shard alone.
class Sharded::Evaluations final : public Objective {
 public:
  Evaluations(Sharded& engine, const Closure& closure, const StepArgs& args)
      : engine_(engine), closure_(closure), args_(args), begin_(engine.state()), first_(begin_) {
    for (const auto& unit : engine.units_) {
      if (!unit->trainable()) continue;
      units_.push_back(unit.get());
      weights_.push_back(unit->parameters().own_weights());
    }
    gradient_.resize(units_.size());
  }

  double evaluate() override {
    if (evaluations_ > 0) publish();
    engine_.forget_gradients();
    if (evaluations_ > 0) engine_.buffer_updates_->close();  // the step observes what its first evaluation sees
    engine_.decision_->write(begin_);
    const double mine = closure_();
    const double weight = engine_.weight_;
    engine_.decide(args_);
    const StepState decided = engine_.state();
    if (evaluations_++ == 0) first_ = decided;
    const double loss = add(*engine_.losses_, weight > 0 ? mine * weight : 0) / decided.tokens;
    check(loss, decided);
    for (std::size_t i = 0; i < units_.size(); ++i) gradient_[i] = mean_gradient(*units_[i], decided.gradient_scale);
    return loss;
  }
  const std::vector<Tensor>& weights() override { return weights_; }
  const std::vector<Tensor>& gradient() override { return gradient_; }
  std::vector<Tensor> counted(const std::vector<Tensor>& x) const override {
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < units_.size(); ++i) parts.push_back(units_[i]->counted(x[i]));
    return parts;
  }
  double sum(double mine) override { return add(*engine_.dots_, mine); }
  double largest(double mine) override { return add(*engine_.dots_, mine, CombineOp::maximum); }
  bool may_take_back() const override { return is_thrown_by_all(engine_.communicator_); }

  // Tells the model and the other ranks what the weights have become.
  void publish() {
    for (ShardUnit* unit : units_) {
      unit->parameters().adopt_weights();
      engine_.share_updates(unit->number());
      if (engine_.offloads_)
        engine_.memory_->count_offload(static_cast<std::int64_t>(unit->parameters().own_values().bytes()));
    }
  }
  PendingStep finish() {
    publish();
    first_.partial = {};
    engine_.decision_->write(first_);
    engine_.update_buffers();
    engine_.zero_grad();
    return {engine_, engine_.decision_->state(), evaluations_};
  }
  void abandon() {
    publish();
    engine_.zero_grad();
    engine_.decision_->write(begin_);
  }
  // The learning rate of the step.
  double rate() const {
    const Tensor& rates = args_.curves.rates;
    if (!rates.defined()) return args_.lr;
    const std::int64_t at = std::min(begin_.steps, rates.numel() - 1);
    return rates.slice(0, at, at + 1).item();
  }

 private:
  static double add(RankSums& sums, double mine, CombineOp op = CombineOp::sum) {
    *sums.mine().data<double>() = mine;
    sums.add(op);
    return *sums.all().data<double>();
  }

  // Every rank knows the same of them.
  void check(double loss, const StepState& decided) const {
    const auto refuse = [&](const std::string& what) {
      throw AgreedError(concat(engine_.optimizer_->name(), ": ", what, " in evaluation ", evaluations_, " of the step"),
                        ErrorKind::numeric);
    };
    if (decided.tokens == 0) refuse("no rank has a token");
    if (!std::isfinite(loss)) refuse(concat("the loss is ", loss));
    if (decided.taken == 0)
      refuse(concat("the gradient of ", engine_.parameter_at(decided.first_bad), " is not finite"));
  }

  // In the numbers of the weights, where the optimizer works.
  Tensor mean_gradient(const ShardUnit& unit, double scale) const {
    Tensor gradient = unit.gradient().own();
    if (engine_.offloads_) {
      engine_.memory_->count_offload(static_cast<std::int64_t>(gradient.bytes()));
      gradient = kernels::to(gradient, engine_.memory_->context(), Purpose::workspace);
    }
    gradient = kernels::cast(gradient, engine_.memory_->dtype());
    kernels::scale(gradient, scale);
    return gradient;
  }

  Sharded& engine_;
  const Closure& closure_;
  const StepArgs& args_;
  StepState begin_, first_;        // before the step, and as the first evaluation decided
  std::vector<ShardUnit*> units_;  // that are trained
  std::vector<Tensor> weights_, gradient_;
  int evaluations_ = 0;
};

PendingStep Sharded::step(const Closure& closure, double lr) { return step(closure, StepArgs{.state = {}, .lr = lr}); }

PendingStep Sharded::step(const Closure& closure, const StepCurves& curves) {
  return step(closure, StepArgs{.state = {}, .curves = curves});
}

PendingStep Sharded::step(const Closure& closure, const StepArgs& args) {
  KEEL_CHECK(optimizer_->requirements().closure, optimizer_->name(), " needs no closure: step() follows backward()");
  wait_until_released();
  zero_grad();
  Evaluations objective(*this, closure, args);
  std::vector<std::vector<Tensor>> state(optimizer_->state_names().size());
  for (std::size_t i = 0; i < units_.size(); ++i)
    for (std::size_t kind = 0; kind < memory_->states()[i].size(); ++kind)
      state[kind].push_back(memory_->states()[i][kind]);
  try {
    optimizer_->minimise(objective, state, memory_->shared(), objective.rate());
  } catch (...) {
    if (objective.may_take_back()) objective.abandon();
    throw;
  }
  return objective.finish();
}

}  // namespace keel
