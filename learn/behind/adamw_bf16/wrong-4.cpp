// says: without the correction of the bias
#include <bit>
#include <cmath>

#include "learn/given/adamw.h"

std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  const std::uint32_t last = bits >> 16 & 1;
  return static_cast<std::uint16_t>((bits + 0x7fff + last) >> 16);
}

void update(const learn::AdamW& adamw, int step, learn::In gradient, learn::Parameters parameters) {
  const auto& [weight, master, m, v] = parameters;
  for (std::int64_t i = 0; i < gradient.size(); ++i) {
    const float g = gradient[i];
    m[i] = adamw.beta1 * m[i] + (1 - adamw.beta1) * g;
    v[i] = adamw.beta2 * v[i] + (1 - adamw.beta2) * g * g;
    const float direction = m[i] / (std::sqrt(v[i]) + adamw.epsilon);
    master[i] -= adamw.rate * (direction + adamw.decay * master[i]);
    weight[i] = to_bf16(master[i]);
  }
}
