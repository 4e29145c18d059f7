#pragma once
// keel's mean of squared differences once more, as a function of a host's.

#include <cstdint>
#include <string>
#include <thread>

#include "keel/capi/keel.h"

namespace keel::testing {

// What a call of host_mse() shall do besides, and what it has seen.
struct HostMse {
  int fails = 0;                    // that it returns
  std::string why = {};             // and says
  bool forgets = false;             // leaves a gradient out
  keel_context* context = nullptr;  // that it calls keel with, if any
  keel_status of_a_call = KEEL_OK;  // and what that returned
  int calls = 0;
  std::thread::id thread = {};
  bool has_weights = false;
};

inline double number_at(const keel_view& view, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * view.strides[0] + (view.rank > 1 ? column * view.strides[1] : 0);
  return view.dtype == KEEL_F64 ? static_cast<const double*>(view.memory)[at]
                                : static_cast<double>(static_cast<const float*>(view.memory)[at]);
}

// Of outputs (samples, width). `user`: a HostMse.
inline int host_mse(int outputs, const keel_view* output, const keel_view* target, const keel_view* weights,
                    const keel_view* gradient, double* loss, char* message, void* user) {
  auto& seen = *static_cast<HostMse*>(user);
  ++seen.calls;
  seen.thread = std::this_thread::get_id();
  seen.has_weights = weights->memory != nullptr;
  if (seen.context != nullptr) seen.of_a_call = keel_context_fail(seen.context, "from the loss");
  if (seen.fails != 0) {
    seen.why.copy(message, KEEL_MESSAGE - 1);
    return seen.fails;
  }
  *loss = 0;
  for (int k = 0; k < outputs; ++k) {
    const keel_view& out = output[k];
    const std::int64_t rows = out.shape[0], columns = out.shape[1];
    double total = 0;
    for (std::int64_t i = 0; i < rows; ++i) total += seen.has_weights ? number_at(*weights, i, 0) : 1;
    auto* const to = static_cast<float*>(gradient[k].memory);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        const double weight = (seen.has_weights ? number_at(*weights, i, 0) : 1) / total / static_cast<double>(columns);
        // In f32, as keel computes differences.
        const float difference =
            static_cast<float>(number_at(out, i, j)) - static_cast<float>(number_at(target[k], i, j));
        *loss += weight * static_cast<double>(difference) * static_cast<double>(difference);
        if (!seen.forgets || i + j > 0)
          to[i * columns + j] = static_cast<float>(2 * weight * static_cast<double>(difference));
      }
  }
  return 0;
}

}  // namespace keel::testing
