#pragma once
// Momentum of groups of ranks that differs, but for what of it moves fast: DeMo.

#include "keel/dist/strategies/communication_strategy.h"

namespace keel {

// Peng, Quesnelle and Kingma 2024, "DeMo: Decoupled momentum optimization". A group adds its gradient to a momentum of
// its own, m = decay m + g. In each step, of every `chunk` neighbouring numbers of m, it takes the `keep` largest
// components of their discrete cosine transform (DCT-II, orthonormal) out of m and sends them. The gradient of the
// step is the mean over groups of what was sent. As published the optimizer then takes its sign: Lion with betas [0,
// 0].
struct FastComponentsOptions {
  double decay = 0.999;
  std::int64_t chunk = 64, keep = 8;
};
// A component is sent as its place and its value in fp32, 8 bytes. A step that is not taken leaves m as it was before.
std::unique_ptr<CommunicationStrategy> make_fast_components(const FastComponentsOptions& options);

}  // namespace keel
