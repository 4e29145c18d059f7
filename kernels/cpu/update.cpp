#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/rows.h"

namespace keel::cpu {
namespace {

// A chunk of flat ranges. P and G are the dtypes of parameter and gradient; `weights` is the master
// copy, or the parameter itself when it is its own.
template <class P, class G>
struct Range {
  using A = Accumulator<P>;
  std::int64_t count;
  P* parameter;
  A* weights;
  const G* gradient;

  Range(const Tensor& parameter_tensor, const Tensor& master, const Tensor& gradient_tensor, std::int64_t begin,
        std::int64_t end)
      : count(end - begin), parameter(parameter_tensor.data<P>() + begin), gradient(gradient_tensor.data<G>() + begin) {
    if constexpr (std::is_same_v<P, A>) weights = parameter;
    else weights = master.data<A>() + begin;
  }
};

template <class P, class G>
void adamw_range(const AdamWArgs& args, const Range<P, G>& range, Accumulator<P>* __restrict m,
                 Accumulator<P>* __restrict v) {
  using A = Accumulator<P>;
  const double step = static_cast<double>(args.step);
  const double bias1 = 1 - std::pow(args.beta1, step), bias2 = 1 - std::pow(args.beta2, step);
  const A scale = static_cast<A>(args.gradient_scale), epsilon = static_cast<A>(args.epsilon);
  const A keep1 = static_cast<A>(args.beta1), take1 = static_cast<A>(1 - args.beta1);
  const A keep2 = static_cast<A>(args.beta2), take2 = static_cast<A>(1 - args.beta2);
  const A decay = static_cast<A>(1 - args.lr * args.weight_decay), rate = static_cast<A>(args.lr / bias1);
  const A inverse_root = static_cast<A>(1 / std::sqrt(bias2));
  A* const __restrict weights = range.weights;
  const G* const __restrict gradient = range.gradient;
  for (std::int64_t i = 0; i < range.count; ++i) {
    const A g = static_cast<A>(widen(gradient[i])) * scale;
    m[i] = keep1 * m[i] + take1 * g;
    v[i] = keep2 * v[i] + take2 * g * g;
    weights[i] = weights[i] * decay - rate * (m[i] / (std::sqrt(v[i]) * inverse_root + epsilon));
  }
  store_row(weights, range.count, range.parameter);
}

template <class P, class G>
void sgd_range(const SgdArgs& args, const Range<P, G>& range, Accumulator<P>* __restrict buffer) {
  using A = Accumulator<P>;
  const A scale = static_cast<A>(args.gradient_scale), rate = static_cast<A>(args.lr);
  const A decay = static_cast<A>(args.weight_decay), keep = static_cast<A>(args.momentum);
  // The buffer begins as the first gradient itself; what it held before is not read.
  const bool first = args.step == 1;
  const A take = first ? A{1} : static_cast<A>(1 - args.dampening);
  A* const __restrict weights = range.weights;
  const G* const __restrict gradient = range.gradient;
  const auto gradient_at = [&](std::int64_t i) {
    return static_cast<A>(widen(gradient[i])) * scale + decay * weights[i];
  };
  if (buffer == nullptr) {
    for (std::int64_t i = 0; i < range.count; ++i) weights[i] -= rate * gradient_at(i);
  } else {
    if (first) std::fill(buffer, buffer + range.count, A{0});
    const A ahead = args.nesterov ? A{1} : A{0}, behind = args.nesterov ? keep : A{1};
    for (std::int64_t i = 0; i < range.count; ++i) {
      const A g = gradient_at(i);
      buffer[i] = keep * buffer[i] + take * g;
      weights[i] -= rate * (ahead * g + behind * buffer[i]);
    }
  }
  store_row(weights, range.count, range.parameter);
}

// Cuts the flat tensors of an update into chunks and calls body(range, begin) with their types.
template <class Args, class Body>
void for_each_range(const Args& args, const Body& body) {
  visit_floating(args.parameter.dtype(), [&](auto tag) {
    using P = typename decltype(tag)::type;
    const auto run = [&]<class G>(TypeTag<G>) {
      parallel_for(args.parameter.context(), args.parameter.numel(), kElementGrain,
                   [&](std::int64_t begin, std::int64_t end) {
                     body(Range<P, G>(args.parameter, args.master, args.gradient, begin, end), begin);
                   });
    };
    if (args.gradient.dtype() == args.parameter.dtype()) run(TypeTag<P>{});
    else run(TypeTag<float>{});
  });
}

void adamw(const AdamWArgs& args) {
  for_each_range(args, [&]<class P, class G>(const Range<P, G>& range, std::int64_t begin) {
    using A = Accumulator<P>;
    adamw_range(args, range, args.m.data<A>() + begin, args.v.data<A>() + begin);
  });
}

void sgd(const SgdArgs& args) {
  for_each_range(args, [&]<class P, class G>(const Range<P, G>& range, std::int64_t begin) {
    using A = Accumulator<P>;
    sgd_range(args, range, args.momentum_buffer.defined() ? args.momentum_buffer.data<A>() + begin : nullptr);
  });
}

template <class A>
double squares(const A* x, std::int64_t count) {
  return row_sum<double>(count, [&](auto at) { return at(x) * at(x); });
}

// Narrow floats are widened a block at a time, so that it stays in the first cache.
template <class T>
double squares_of_chunk(const T* x, std::int64_t count) {
  if constexpr (std::is_same_v<T, Accumulator<T>>) {
    return squares(x, count);
  } else {
    constexpr std::int64_t kBlock = 1024;
    float wide[kBlock];
    double sum = 0;
    for (std::int64_t i = 0; i < count; i += kBlock) {
      const std::int64_t block = std::min(kBlock, count - i);
      sum += squares(widen_row(x + i, block, wide), block);
    }
    return sum;
  }
}

double sum_of_squares(const Tensor& x) {
  const std::int64_t count = x.numel(), chunks = (count + kElementGrain - 1) / kElementGrain;
  const Workspace<double> partials(x.context(), chunks);
  visit_floating(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const data = x.data<T>();
    parallel_for(x.context(), count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      partials.data()[begin / kElementGrain] = squares_of_chunk(data + begin, end - begin);
    });
  });
  return row_sum(partials.data(), chunks);
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }
std::uint16_t bits_of(bf16 value) { return value.bits; }
std::uint16_t bits_of(f16 value) { return value.bits; }

bool all_finite(const Tensor& x) {
  std::atomic<bool> finite = true;
  visit_floating(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Bits = decltype(bits_of(T{}));
    const T* const data = x.data<T>();
    // Infinities and NaN alone have every bit of the exponent set.
    const Bits exponent = bits_of(static_cast<T>(std::numeric_limits<Accumulator<T>>::infinity()));
    parallel_for(x.context(), x.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      Bits largest = 0;
      for (std::int64_t i = begin; i < end; ++i)
        largest = std::max(largest, static_cast<Bits>(bits_of(data[i]) & exponent));
      if (largest == exponent) finite.store(false, std::memory_order_relaxed);
    });
  });
  return finite;
}

}  // namespace

void add_update(KernelTable& table) {
  table.adamw = adamw;
  table.sgd = sgd;
  table.sum_of_squares = sum_of_squares;
  table.all_finite = all_finite;
}

}  // namespace keel::cpu
