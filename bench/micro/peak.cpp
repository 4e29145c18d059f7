// Compiled with -ffp-contract=fast: fused multiply-adds are what the ceiling counts.

#include "bench/micro/micro.h"
#include "keel/kernels/cpu/microkernel.h"
#include "keel/runtime/parallel.h"

namespace keel::bench {
namespace {

template <class P>
Burn burn(const Context& context) {
  using Sum = typename P::Sum;
  constexpr int kChains = 12;  // more than latency times multipliers
  constexpr std::int64_t kSteps = 200000;
  const auto run = [=] {
    parallel_for(context, context.threads(), 1, [](std::int64_t, std::int64_t) {
      cpu::Vector<Sum> sums[kChains] = {};
      cpu::Vector<typename P::Unit> right = {};
      for (std::int64_t s = 0; s < kSteps; ++s) {
#pragma GCC unroll 16
        for (int i = 0; i < kChains; ++i) {
          sums[i] = P::multiply_add(typename P::Unit{}, right, sums[i]);
          asm volatile("" : "+v"(sums[i]));  // keep the loop
        }
      }
    });
  };
  return {run, static_cast<double>(context.threads()) * kSteps * kChains * cpu::kLanes<Sum> * P::kDepth};
}

}  // namespace

Burn burn_of(const Context& context, DType dtype) {
  return dtype == DType::bf16 ? burn<cpu::Product<bf16>>(context) : burn<cpu::Product<float>>(context);
}

}  // namespace keel::bench
