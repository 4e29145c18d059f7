// A strategy of communication in forty lines: elastic averaging (Zhang, Choromanska and LeCun 2015). Groups train by
// themselves around a centre. Every `outer.every` steps each goes a part of the way to it, and it goes as far to each
// of them: w_i -= a (w_i - c), c += a sum(w_i - c).

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keel/cli/main.h"
#include "keel/kernels/elementwise.h"

class Elastic : public keel::CommunicationStrategy {
 public:
  explicit Elastic(const keel::Settings& settings)
      : every_(settings.integer("outer.every")), part_(settings.number("outer.part")) {}

  std::string describe() const override { return keel::concat("elastic, every ", every_, ", part ", part_); }
  void begin(const keel::StrategySite& site) override {
    site_.emplace(site);
    for (const keel::StrategyUnit& unit : site.units) centres_.push_back(keel::kept_copy(unit.weights));
  }
  bool after_step(const std::function<bool()>& /*taken*/) override {
    if (++steps_ % every_ != 0) return false;
    for (std::size_t i = 0; i < centres_.size(); ++i) {
      const keel::Tensor& weights = site_->units[i].weights;
      const keel::Tensor apart = keel::kernels::clone(centres_[i]);  // c - w_i, times the part
      keel::kernels::scale(apart, -1);
      keel::kernels::accumulate(apart, weights);
      keel::kernels::scale(apart, -part_);
      keel::kernels::accumulate(weights, apart);
      const keel::Tensor sent = keel::kernels::to(apart, site_->context);  // from where the optimizer works
      site_->outer.all_reduce(sent).wait();
      const keel::Tensor sum = keel::kernels::to(sent, apart.context());
      keel::kernels::scale(sum, -1);
      keel::kernels::accumulate(centres_[i], sum);
    }
    return true;
  }

  std::vector<keel::StrategyState> state(std::size_t unit) override { return {{"centre", centres_[unit]}}; }
  std::int64_t steps() const override { return steps_; }
  void resumed(std::int64_t steps) override { steps_ = steps; }
  void restart() override {
    steps_ = 0;
    for (std::size_t i = 0; i < centres_.size(); ++i) keel::kernels::copy_into(centres_[i], site_->units[i].weights);
  }
  keel::StrategyCost cost(std::span<const keel::StrategyNumbers> units,
                          const keel::StrategyPlace& place) const override {
    return keel::cost_of_sums(units, place, every_, /*kept=*/1);
  }

 private:
  std::int64_t every_, steps_ = 0;
  double part_;
  std::optional<keel::StrategySite> site_;
  std::vector<keel::Tensor> centres_;
};

int main(int argc, char** argv) {
  using enum keel::KeyType;
  const keel::StrategyEntry strategies[] = {
      {.name = "elastic",
       .summary = "groups stay near a centre that stays near them (Zhang et al. 2015)",
       .rows =
           {{.key = "outer.every", .type = integer, .standard = "4", .help = "Steps between two meetings.", .low = 1},
            {.key = "outer.part", .type = number, .standard = "0.2", .help = "Part of the way.", .low = 0, .high = 1}},
       .make = [](const keel::Settings& settings) { return std::make_unique<Elastic>(settings); }}};
  return keel::main(argc, argv, {}, {}, strategies);
}
