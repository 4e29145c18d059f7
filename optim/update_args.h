#pragma once
// What the optimizers share that are made of one of the rules of keel/kernels/update.h.

#include "keel/optim/elementwise.h"

namespace keel {

// A range of parameters as the update kernels take it, with range.state as what the rule keeps.
UpdateArgs update_args(const ElementwiseOptions& options, const ParameterRange& range, const StepInput& input);
// An Error where the options make no sense.
void check_options(std::string_view name, const ElementwiseOptions& options);

// The optimizer of AdafactorSettings.
std::unique_ptr<Optimizer> make_adafactor(std::string_view name, const ElementwiseOptions& options);
// The optimizer of AdamSettings with states in 8 bits.
std::unique_ptr<Optimizer> make_adam_8bit(std::string_view name, const ElementwiseOptions& options);

// The optimizer of ScheduleFreeSettings.
std::unique_ptr<Optimizer> make_schedule_free(std::string_view name, const ElementwiseOptions& options);
// The optimizer of MuonSettings.
std::unique_ptr<Optimizer> make_muon(std::string_view name, const ElementwiseOptions& options);

}  // namespace keel
