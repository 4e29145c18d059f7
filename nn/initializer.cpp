#include <cmath>
#include <span>

#include "keel/nn/parameter.h"
#include "keel/runtime/parallel.h"
#include "keel/runtime/random.h"

namespace keel {

Initializer Initializer::fan_in(std::int64_t inputs) {
  const double bound = inputs == 0 ? 0 : 1 / std::sqrt(static_cast<double>(inputs));
  return uniform(-bound, bound);
}

void Initializer::fill(const Context& context, std::uint64_t seed, std::string_view name, std::int64_t first,
                       std::int64_t count, float* out) const {
  const float offset = static_cast<float>(a);
  const float factor = static_cast<float>(kind == Kind::normal ? b : b - a);
  parallel_for(context, count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    const std::span<float> part(out + begin, static_cast<std::size_t>(end - begin));
    const auto index = static_cast<std::uint64_t>(first + begin);
    switch (kind) {
      case Kind::constant: std::fill(part.begin(), part.end(), offset); return;
      case Kind::normal: fill_normal(part, seed, name, index); break;
      case Kind::uniform: fill_uniform(part, seed, name, index); break;
    }
    for (float& value : part) value = offset + factor * value;
  });
}

}  // namespace keel
