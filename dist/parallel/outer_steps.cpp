#include "keel/dist/parallel/outer_steps.h"

#include <cmath>
#include <exception>
#include <optional>
#include <utility>

#include "keel/dist/parallel/deal_by_cost.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

class OuterSteps : public CommunicationStrategy {
 public:
  explicit OuterSteps(const OuterStepOptions& options) : options_(options) {
    KEEL_CHECK(options.every >= 1, "outer steps come every 1 step or more, got ", options.every);
    KEEL_CHECK(options.fragments >= 1 && options.fragments <= options.every, "there are 1 to ", options.every,
               " fragments where outer steps come every ", options.every, " steps, got ", options.fragments);
    KEEL_CHECK(options.delay >= 0 && options.delay < options.every, "an outer step is delayed by 0 to ",
               options.every - 1, " steps, got ", options.delay);
    KEEL_CHECK(options.blend > 0 && options.blend <= 1, "the blend is above 0 and at most 1, got ", options.blend);
    KEEL_CHECK(std::isfinite(options.rate) && options.rate > 0, "the outer rate is above 0, got ", options.rate);
    KEEL_CHECK(options.momentum >= 0 && options.momentum < 1, "the outer momentum is from 0 to below 1, got ",
               options.momentum);
  }

  // The other groups still need what this one sends.
  ~OuterSteps() override {
    for (Unit& unit : units_) {
      if (std::uncaught_exceptions() > 0) continue;
      try {
        wait(unit);
      } catch (const std::exception& error) {
        site_->context.log(LogLevel::error, concat("the sum of an outer step did not end: ", error.what()));
      }
    }
  }

  std::string describe() const override {
    return concat("outer steps every ", options_.every, ", rate ", options_.rate, ", momentum ", options_.momentum,
                  options_.nesterov ? " (Nesterov)" : "", ", ", options_.fragments, " fragments, delay ",
                  options_.delay, ", blend ", options_.blend);
  }
  bool sums_gradients(const OptimizerRequirements& optimizer) const override {
    return optimizer.linear && options_.every == 1 && options_.rate == 1 && options_.momentum == 0 &&
           options_.blend == 1;
  }

  void begin(const StrategySite& site) override {
    site_.emplace(site);
    std::vector<std::int64_t> sizes;
    for (const StrategyUnit& unit : site.units) sizes.push_back(unit.weights.numel());
    fragments_ = deal_by_cost(sizes, static_cast<int>(options_.fragments));
    for (const StrategyUnit& unit : site.units) {
      Unit& own = units_.emplace_back();
      own.anchor = kept_copy(unit.weights);
      if (options_.delay > 0) own.travelling = zeros(site.context, unit.weights.shape(), kWide, kKept);
      if (options_.momentum > 0) own.momentum = zeros(unit.weights.context(), unit.weights.shape(), kWide, kKept);
    }
  }

  bool after_step(const std::function<bool()>& /*taken*/) override {
    ++steps_;
    bool changed = false;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      if (is_due(i, steps_)) send(i);
      if (is_due(i, steps_ - options_.delay)) changed = use(i) || changed;
    }
    return changed;
  }

  void restart() override {
    steps_ = 0;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      Unit& own = units_[i];
      wait(own);
      own.is_due = false;
      kernels::copy_into(own.anchor, site_->units[i].weights);
      if (own.momentum.defined()) kernels::fill(own.momentum, 0);
    }
  }

  std::vector<StrategyState> state(std::size_t unit) override {
    Unit& own = units_[unit];
    std::vector<StrategyState> state{{"anchor", own.anchor}};
    if (own.momentum.defined()) state.push_back({"outer_momentum", own.momentum});
    if (options_.delay > 0) {
      wait(own);
      state.push_back({"outer_gradient", own.travelling});
    }
    return state;
  }
  std::int64_t steps() const override { return steps_; }
  void resumed(std::int64_t steps) override {
    steps_ = steps;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      units_[i].is_due = false;
      for (std::int64_t sent = steps - options_.delay + 1; sent <= steps; ++sent)
        units_[i].is_due = units_[i].is_due || is_due(i, sent);
    }
  }

  StrategyCost cost(std::span<const StrategyNumbers> units, int groups, int group) const override {
    const int kept = 1 + (options_.momentum > 0 ? 1 : 0) + (options_.delay > 0 ? 1 : 0);
    return cost_of_sums(units, groups, group, options_.every, kept);
  }

 private:
  static constexpr DType kWide = DType::f32;
  static constexpr Purpose kKept = Purpose::optimizer;

  struct Unit {
    Tensor anchor;        // w0
    Tensor momentum;      // b
    Tensor travelling;    // w0 - w of this group, and then the sum over groups; kept where steps lie in between
    Work sum;             // under way
    bool is_due = false;  // the sum is to be used
  };

  static void wait(Unit& own) { std::exchange(own.sum, {}).wait(); }
  // Whether the outer step of the unit's fragment begins after so many steps.
  bool is_due(std::size_t unit, std::int64_t steps) const {
    return steps > 0 && (steps + fragments_[unit] * options_.every / options_.fragments) % options_.every == 0;
  }

  void send(std::size_t unit) {
    Unit& own = units_[unit];
    const Tensor difference = empty(own.anchor.context(), own.anchor.shape(), kWide, Purpose::bucket);
    kernels::copy_into(difference, site_->units[unit].weights);
    kernels::scale(difference, -1);
    kernels::accumulate(difference, own.anchor);
    const Tensor moved = kernels::to(difference, site_->context, Purpose::bucket);
    if (options_.delay > 0) kernels::copy_into(own.travelling, moved);
    else own.travelling = moved;
    own.sum = site_->outer.all_reduce(own.travelling);
    own.is_due = true;
  }
  bool use(std::size_t unit) {
    Unit& own = units_[unit];
    if (!std::exchange(own.is_due, false)) return false;
    wait(own);
    const Tensor gradient = empty(own.anchor.context(), own.anchor.shape(), kWide, Purpose::bucket);
    kernels::copy_into(gradient, kernels::to(own.travelling, own.anchor.context(), Purpose::bucket));
    if (options_.delay == 0) own.travelling = {};
    kernels::scale(gradient, 1.0 / site_->outer.size());
    step(own, gradient);
    const Tensor& weights = site_->units[unit].weights;
    if (options_.blend < 1) {
      const Tensor blended = empty(own.anchor.context(), own.anchor.shape(), kWide, Purpose::bucket);
      kernels::copy_into(blended, own.anchor);
      kernels::scale(blended, options_.blend);
      kernels::scale(weights, 1 - options_.blend);
      kernels::accumulate(weights, blended);
    } else {
      kernels::copy_into(weights, own.anchor);
    }
    return true;
  }
  // Destroys the gradient.
  void step(Unit& own, const Tensor& gradient) const {
    if (options_.momentum > 0) {
      kernels::scale(own.momentum, options_.momentum);
      kernels::accumulate(own.momentum, gradient);
      if (options_.nesterov) {
        const Tensor ahead = empty(gradient.context(), gradient.shape(), kWide, Purpose::bucket);
        kernels::copy_into(ahead, own.momentum);
        kernels::scale(ahead, options_.momentum);
        kernels::accumulate(gradient, ahead);
      } else {
        kernels::copy_into(gradient, own.momentum);
      }
    }
    kernels::scale(gradient, -options_.rate);
    kernels::accumulate(own.anchor, gradient);
  }

  OuterStepOptions options_;
  std::optional<StrategySite> site_;
  std::vector<Unit> units_;
  std::vector<int> fragments_;  // by unit
  std::int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<CommunicationStrategy> make_outer_steps(const OuterStepOptions& options) {
  return std::make_unique<OuterSteps>(options);
}

}  // namespace keel
