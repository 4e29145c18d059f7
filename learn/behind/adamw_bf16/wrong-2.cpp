// says: Halfway between two
#include <bit>
#include <cmath>

#include "learn/given/adamw.h"

std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x8000) >> 16);
}

void update(const learn::AdamW& adamw, int step, learn::In gradient, learn::Parameters parameters) {
  const auto& [weight, master, m, v] = parameters;
  const float bias1 = 1 - std::pow(adamw.beta1, static_cast<float>(step));
  const float bias2 = 1 - std::pow(adamw.beta2, static_cast<float>(step));
  for (std::int64_t i = 0; i < gradient.size(); ++i) {
    const float g = gradient[i];
    m[i] = adamw.beta1 * m[i] + (1 - adamw.beta1) * g;
    v[i] = adamw.beta2 * v[i] + (1 - adamw.beta2) * g * g;
    const float direction = (m[i] / bias1) / (std::sqrt(v[i] / bias2) + adamw.epsilon);
    master[i] -= adamw.rate * (direction + adamw.decay * master[i]);
    weight[i] = to_bf16(master[i]);
  }
}
