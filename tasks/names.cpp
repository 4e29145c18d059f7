#include "keel/tasks/names.h"

#include <algorithm>

namespace keel {
namespace {

constexpr std::string_view kRecordNames[] = {
    "step",      "loss",        "lr",          "grad_norm",         "tokens",         "tokens_per_s",    "step_ms",
    "elapsed_s", "evaluations", "loss_scale",  "exposed_ms",        "sent_bytes",     "validation_loss", "exact_match",
    "nonfinite", "epoch",       "model_flops", "flops_utilization", "resident_bytes", "device_bytes"};

}  // namespace

bool is_record_name(std::string_view name) {
  const bool is_peak = name.starts_with("peak_") && name.ends_with("_bytes"), is_rate = name.starts_with("lr/"),
             is_tuned = name.starts_with("tuned/");
  return is_peak || is_rate || is_tuned || std::ranges::find(kRecordNames, name) != std::end(kRecordNames);
}

}  // namespace keel
