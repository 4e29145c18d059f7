#include "keel/dist/strategies/outer_steps.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <utility>

#include "keel/dist/comm/deal_by_cost.h"
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
      if (std::uncaught_exceptions() > 0 || !is_under_way(unit)) continue;
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
           options_.blend == 1 && !options_.repeats;
  }

  bool survives() const override { return options_.repeats; }

  void begin(const StrategySite& site) override {
    site_.emplace(site);
    std::vector<std::int64_t> sizes;
    for (const StrategyUnit& unit : site.units) sizes.push_back(unit.weights.numel());
    fragments_ = deal(sizes);
    for (const StrategyUnit& unit : site.units) {
      Unit& own = units_.emplace_back();
      own.anchor = kept_copy(unit.weights);
      if (options_.delay > 0) own.travelling = zeros(site.context, unit.weights.shape(), kWide, kKept);
      if (keeps_part()) own.part = zeros(site.context, unit.weights.shape(), kWide, kKept);
      if (options_.momentum > 0) own.momentum = zeros(unit.weights.context(), unit.weights.shape(), kWide, kKept);
    }
  }

  bool after_step(const std::function<bool()>& /*taken*/) override {
    ++steps_;
    bool changed = false;
    const std::size_t at_once = options_.repeats ? units_.size() : 1;
    for (std::size_t first = 0; first < units_.size(); first += at_once) {
      std::vector<std::size_t> due;
      for (std::size_t i = first; i < first + at_once; ++i) {
        if (is_due(i, steps_)) send(i);
        if (is_due(i, steps_ - options_.delay) && units_[i].is_due) due.push_back(i);
      }
      finish_sums(due);
      for (const std::size_t i : due) use(i);
      changed = changed || !due.empty();
    }
    return changed;
  }

  void restart() override {
    steps_ = 0;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      Unit& own = units_[i];
      if (is_under_way(own)) wait(own);
      own.is_due = false;
      kernels::copy_into(own.anchor, site_->units[i].weights);
      if (own.momentum.defined()) kernels::fill(own.momentum, 0);
    }
  }

  void settle() override {
    std::vector<std::size_t> due;
    for (std::size_t i = 0; i < units_.size(); ++i)
      if (units_[i].is_due) due.push_back(i);
    finish_sums(due);
  }
  std::vector<StrategyState> state(std::size_t unit) override {
    Unit& own = units_[unit];
    std::vector<StrategyState> state{{"anchor", own.anchor}};
    if (own.momentum.defined()) state.push_back({"outer_momentum", own.momentum});
    if (options_.delay > 0)
      state.push_back({"outer_mean", own.travelling, /*of_group=*/false, /*travels=*/own.is_due && !own.is_mean});
    return state;
  }
  std::int64_t steps() const override { return steps_; }
  void resumed(std::int64_t steps) override {
    steps_ = steps;
    for (Unit& own : units_) {
      own.is_due = true;  // where its time comes before the next one is sent
      own.is_mean = true;
      own.is_loaded = true;
    }
  }

  StrategyCost cost(std::span<const StrategyNumbers> units, const StrategyPlace& place) const override {
    StrategyCost cost = cost_of_sums(units, place, options_.every, 1 + (options_.momentum > 0 ? 1 : 0));
    cost.saved += options_.delay > 0 ? 1 : 0;
    for (const StrategyNumbers& unit : units)
      cost.state += ((options_.delay > 0 ? 1 : 0) + (keeps_part() ? 1 : 0)) * kWidth * unit.count;
    count_at_once(cost, units, place.weights_on_host);
    return cost;
  }

 private:
  static constexpr DType kWide = DType::f32;
  static constexpr std::int64_t kWidth = 4;  // of its bytes
  static constexpr Purpose kKept = Purpose::optimizer;
  static constexpr std::int64_t kNever = -1;

  struct Unit {
    Tensor anchor;            // w0
    Tensor momentum;          // b
    Tensor travelling;        // w0 - w of this group, and then the mean over groups; kept where steps lie in between
    Tensor part;              // w0 - w of this group, where it may be sent again while steps lie in between
    Work sum;                 // under way
    std::int64_t losses = 0;  // of groups, when the sum began
    bool is_mean = false;     // the sum has come, and was divided
    bool is_loaded = false;   // with a checkpoint, and not summed here
    bool is_due = false;      // the mean is to be used
  };

  bool keeps_part() const { return options_.repeats && options_.delay > 0; }
  std::vector<int> deal(const std::vector<std::int64_t>& sizes) const {
    return deal_by_cost(sizes, static_cast<int>(options_.fragments));
  }
  // The means that have come of a fragment's units and are not used yet, where no step lies in between, with the
  // gradient of one, or of that with a copy beside it.
  void count_at_once(StrategyCost& cost, std::span<const StrategyNumbers> units, bool weights_on_host) const {
    std::vector<std::int64_t> sizes;
    for (const StrategyNumbers& unit : units) sizes.push_back(kWidth * unit.count);
    const std::vector<int> fragments = deal(sizes);
    const bool copies = options_.blend < 1 || (options_.momentum > 0 && options_.nesterov);
    std::vector<std::int64_t> waiting(static_cast<std::size_t>(options_.fragments));  // from the last unit on
    for (std::size_t i = sizes.size(); i-- > 0;) {
      std::int64_t& after = waiting[static_cast<std::size_t>(fragments[i])];
      const std::int64_t others = options_.repeats && options_.delay == 0 ? after : 0;
      const int with_weights = copies ? 2 : 1;
      if (weights_on_host) {
        cost.at_once = std::max(cost.at_once, others + sizes[i]);
        cost.host_at_once = std::max(cost.host_at_once, with_weights * sizes[i]);
      } else {
        cost.at_once = std::max(cost.at_once, others + (options_.delay == 0 ? 2 : with_weights) * sizes[i]);
      }
      after += sizes[i];
    }
  }
  static void wait(Unit& own) { std::exchange(own.sum, {}).wait(); }
  // Otherwise its ranks are not there any more.
  bool is_under_way(const Unit& own) const { return own.losses == site_->outer.losses(); }
  // Whether the outer step of the unit's fragment begins after so many steps.
  bool is_due(std::size_t unit, std::int64_t steps) const {
    return steps > 0 && (steps + fragments_[unit] * options_.every / options_.fragments) % options_.every == 0;
  }

  void send(std::size_t unit) {
    Unit& own = units_[unit];
    const Tensor moved = difference_of(unit);
    if (keeps_part()) kernels::copy_into(own.part, moved);
    own.is_loaded = false;
    own.is_due = true;
    try {
      begin_sum(own, moved);
    } catch (const Error& error) {  // which is to be found in the attempt
      if (!options_.repeats || error.kind() != ErrorKind::peer) throw;
      own.losses = kNever;
    }
  }
  Tensor difference_of(std::size_t unit) const {
    const Tensor difference = scaled_copy(site_->units[unit].weights, -1);
    kernels::accumulate(difference, units_[unit].anchor);
    return kernels::to(difference, site_->context, Purpose::bucket);
  }
  void begin_sum(Unit& own, const Tensor& part) {
    if (options_.delay > 0) kernels::copy_into(own.travelling, part);
    else own.travelling = part;
    own.is_mean = false;
    own.losses = site_->outer.losses();
    own.sum = site_->outer.all_reduce(own.travelling);
  }
  // The means of these units. Sums that were begun among more groups than there are begin again.
  void finish_sums(const std::vector<std::size_t>& units) {
    if (units.empty()) return;
    site_->outer.attempt([&] {
      for (const std::size_t i : units) {
        Unit& own = units_[i];
        if (!own.is_loaded && !is_under_way(own)) begin_sum(own, keeps_part() ? own.part : difference_of(i));
      }
      for (const std::size_t i : units) {
        Unit& own = units_[i];
        if (own.is_mean) continue;
        wait(own);
        kernels::scale(own.travelling, 1.0 / site_->outer.size());
        own.is_mean = true;
      }
    });
  }
  void use(std::size_t unit) {
    Unit& own = units_[unit];
    own.is_due = false;
    const Tensor gradient = empty(own.anchor.context(), own.anchor.shape(), kWide, Purpose::bucket);
    kernels::copy_across(gradient, own.travelling, Purpose::bucket);
    if (options_.delay == 0) own.travelling = {};
    step(own, gradient);
    const Tensor& weights = site_->units[unit].weights;
    if (options_.blend < 1) {
      kernels::scale(weights, 1 - options_.blend);
      kernels::accumulate(weights, scaled_copy(own.anchor, options_.blend));
    } else {
      kernels::copy_into(weights, own.anchor);
    }
  }
  // Destroys the gradient.
  void step(Unit& own, const Tensor& gradient) const {
    if (options_.momentum > 0) {
      kernels::scale(own.momentum, options_.momentum);
      kernels::accumulate(own.momentum, gradient);
      if (options_.nesterov) kernels::accumulate(gradient, scaled_copy(own.momentum, options_.momentum));
      else kernels::copy_into(gradient, own.momentum);
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
