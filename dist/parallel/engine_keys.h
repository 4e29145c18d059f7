#pragma once
// The tables of engine options. Configurations, their pages and the agreement among ranks come from them: a new option
// is a member of its struct and a row here.

#include <span>
#include <string>

#include "keel/dist/parallel/option_key.h"

namespace keel {

// In the order of documentation. Sections of configurations: `sharding` (without the stage, which configurations call
// the strategy), `gradient_compression` and `loss_scale`; and what has its key alone, "clip" and "sharding.wire".
std::span<const OptionKey<ShardingOptions>> sharding_keys();
std::span<const OptionKey<Compression>> compression_keys();
std::span<const OptionKey<LossScaling>> scaling_keys();
std::span<const OptionKey<ShardedOptions>> engine_keys();

// f(the name of a section with its dot, its table, its struct among the options)
template <class F>
void visit_options(const ShardedOptions& options, const F& f) {
  f("", engine_keys(), options);
  f("sharding.", sharding_keys(), options.sharding);
  f("gradient_compression.", compression_keys(), options.compression);
  f("loss_scale.", scaling_keys(), options.scaling);
}

// "seed 1; clip 0; ...; sharding.bucket 26214400; ...": equal where all options of the tables are.
std::string to_text(const ShardedOptions& options);

}  // namespace keel
