// The norms that some updates need of whole parameters: squares of what their rules measure, summed in fp64.

#include <algorithm>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/rows.h"
#include "keel/kernels/update_rule.h"

namespace keel::cpu {
namespace {

// Sums of squares that several lanes gather, so that the order of additions depends on an element's place alone.
template <int kNorms>
class Squares {
 public:
  static constexpr std::int64_t kLanes = 8;

  template <class A>
  void add(const Measures<A, kNorms>& measures, std::int64_t lane) {
    for (int n = 0; n < kNorms; ++n) {
      const auto x = static_cast<double>(measures.values[n]);
      lanes_[n][lane] += x * x;
    }
  }
  double sum(int norm) const {
    double sum = 0;
    for (const double lane : lanes_[norm]) sum += lane;
    return sum;
  }

 private:
  double lanes_[kNorms][kLanes] = {};
};

template <class Rule, int kNorms, class A, class G, class... Kept>
void add_squares(const Rule rule, Squares<kNorms>& squares, const G* gradient, const A* weights, std::int64_t count,
                 const Kept*... kept) {
  constexpr std::int64_t kLanes = Squares<kNorms>::kLanes;
  const auto add = [&](std::int64_t i, std::int64_t lane) {
    squares.add(rule.measure(static_cast<A>(widen(gradient[i])), weights[i], kept[i]...), lane);
  };
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  for (std::int64_t lane = 0; i < count; ++i, ++lane) add(i, lane);
}

template <class P, class G, std::size_t... I, class Settings>
void measure_by(const Settings& settings, const UpdateArgs& args, double* result, std::index_sequence<I...>) {
  using A = Accumulator<P>;
  constexpr int kNorms = Settings::kNorms;
  const auto& state = *reinterpret_cast<const StepState*>(args.step.data<std::uint8_t>());
  const auto rule = Settings::template Rule<A>::of(settings, args.range, state, nullptr);
  const std::int64_t count = args.parameter.numel(), chunks = (count + kElementGrain - 1) / kElementGrain;
  const Workspace<double> partials(args.parameter.context(), chunks * kNorms);
  const P* const parameter = args.parameter.data<P>();
  const A* const master = args.master.defined() ? args.master.data<A>() : nullptr;
  const G* const gradient = args.gradient.data<G>();
  parallel_for(args.parameter.context(), count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    Squares<kNorms> squares;
    constexpr std::int64_t kBlock = 1024;
    A scratch[kBlock];
    for (std::int64_t at = begin; at < end; at += kBlock) {
      const std::int64_t block = std::min(kBlock, end - at);
      const A* const weights = master != nullptr ? master + at : widen_row(parameter + at, block, scratch);
      add_squares(rule, squares, gradient + at, weights, block, (args.state[I].template data<A>() + at)...);
    }
    for (int n = 0; n < kNorms; ++n) partials.data()[begin / kElementGrain * kNorms + n] = squares.sum(n);
  });
  for (int n = 0; n < kNorms; ++n) {
    result[n] = 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) result[n] += partials.data()[chunk * kNorms + n];
  }
}

void measure_norms(const UpdateArgs& args, const Tensor& squares) {
  if (reinterpret_cast<const StepState*>(args.step.data<std::uint8_t>())->taken == 0) return;
  visit_rule(
      [&]<class Settings>(const Settings& settings) {
        if constexpr (kHasNorms<Settings>)
          visit_kept(settings, [&]<std::size_t kKept>(std::integral_constant<std::size_t, kKept>) {
            visit_floating(args.parameter.dtype(), [&](auto tag) {
              using P = typename decltype(tag)::type;
              constexpr auto kEach = std::make_index_sequence<kKept>{};
              double* const result = squares.data<double>();
              if (args.gradient.dtype() == args.parameter.dtype()) measure_by<P, P>(settings, args, result, kEach);
              else measure_by<P, float>(settings, args, result, kEach);
            });
          });
      },
      args.settings);
}

}  // namespace

void add_norms_of_updates(KernelTable& table) { table.measure_norms = measure_norms; }

}  // namespace keel::cpu
