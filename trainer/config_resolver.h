#pragma once
// What the values of a training run's configuration ask of each other.

#include <string_view>

#include "keel/config/resolver.h"
#include "keel/trainer/config.h"

namespace keel {

class ConfigResolver : public Resolver {
 public:
  // Fills `config` with the values of its task's schema.
  ConfigResolver(Config& config, std::string_view name, std::string_view source)
      : Resolver(config.schema(), config, name, source), config_(config) {}

 private:
  void check_together() override;
  // DeepSpeed's JSON has the parameters of a schedule and of an optimizer one level deeper.
  bool is_read_through(std::string_view key) override;

  void check_task();
  void leave_out_replaced_rate();
  void check_strategy();
  void check_schedule_of_rates();
  void check_optimizer();
  void check_requirements(const OptimizerEntry& entry);
  void check_compression();
  void check_callbacks();

  Config& config_;
  bool is_deepspeeds_ = false;  // the section `optimizer`
};

}  // namespace keel
