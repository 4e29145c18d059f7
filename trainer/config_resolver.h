#pragma once
// What the values of a training run's configuration ask of each other.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/config/resolver.h"
#include "keel/trainer/config.h"
#include "keel/trainer/foreign/translation.h"

namespace keel {

// What a file holds, but for what is behind the longest configuration. A file that cannot be read is an Error of kind
// io.
std::string read_config_text(const std::filesystem::path& file);

// As parse_config(), of files that were read already. `text` is keel's own of them, for the task that it names.
Config parse_trees(const std::shared_ptr<const ConfigKeys>& keys, const std::vector<NamedTree>& trees,
                   std::string_view text, std::string_view name, const std::vector<std::string>& overrides,
                   std::string_view source, std::vector<std::string>* notes);

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
  void check_virtual_ranks();
  void check_outer();
  void check_callbacks();
  void check_curriculum();

  Config& config_;
  bool is_deepspeeds_ = false;  // the section `optimizer`
};

}  // namespace keel
