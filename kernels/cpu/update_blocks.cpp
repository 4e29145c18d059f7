// Updates of weights whose states are kept in blocks of codes: a block becomes numbers, is updated while it is in the
// first cache, and becomes codes again.

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/update_range.h"
#include "keel/kernels/dynamic_map.h"
#include "keel/kernels/update_rule.h"

namespace keel::cpu {
namespace {

// A map in words that vector units gather.
template <bool kSigns>
struct WideMap {
  const DynamicMap& map = kSigns ? kMapWithSigns : kMapWithoutSigns;
  std::array<std::int32_t, DynamicMap::kBuckets> smaller;
  WideMap() { std::copy_n(map.smaller.begin(), smaller.size(), smaller.begin()); }
};
template <bool kSigns>
const WideMap<kSigns>& wide_map() {
  static const WideMap<kSigns> map;
  return map;
}

// Loops of one width each are what compilers turn into vector code.

// numbers = codes as sizes times the scale.
template <bool kSigns, class A>
void decode_block(const std::uint8_t* codes, A scale, std::int64_t count, A* __restrict numbers) {
  const float* const values = wide_map<kSigns>().map.values.data();
  std::int32_t wide_codes[kStateBlock];
  for (std::int64_t i = 0; i < count; ++i) wide_codes[i] = codes[i];
  for (std::int64_t i = 0; i < count; ++i) numbers[i] = static_cast<A>(values[wide_codes[i]]) * scale;
}

template <class A>
using Bits = std::conditional_t<sizeof(A) == 8, std::uint64_t, std::uint32_t>;

// The largest size in a block, by the order of sizes as integers: what is not finite is larger than all that is.
template <class A>
A largest_size(const A* numbers, std::int64_t count) {
  Bits<A> largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, static_cast<Bits<A>>(std::bit_cast<Bits<A>>(numbers[i]) << 1));
  return std::bit_cast<A>(static_cast<Bits<A>>(largest >> 1));
}

template <bool kSigns, class A>
A encode_block(const A* __restrict numbers, std::int64_t count, std::uint8_t* __restrict codes) {
  const WideMap<kSigns>& wide = wide_map<kSigns>();
  const std::int32_t* const smaller = wide.smaller.data();
  const float* const borders = wide.map.borders.data();
  const A scale = largest_size(numbers, count);
  if (scale == 0) {
    std::fill_n(codes, count, static_cast<std::uint8_t>(wide.map.zero));
    return scale;
  }
  float ratios[kStateBlock];
  std::int32_t wide_codes[kStateBlock];
  for (std::int64_t i = 0; i < count; ++i) ratios[i] = static_cast<float>(numbers[i] / scale);
  for (std::int64_t i = 0; i < count; ++i) wide_codes[i] = code_of(kSigns, ratios[i], smaller, borders);
  for (std::int64_t i = 0; i < count; ++i) codes[i] = static_cast<std::uint8_t>(wide_codes[i]);
  return scale;
}

template <class P, class G, std::size_t... I, class Settings>
void update_by(const Settings& settings, const UpdateArgs& args, std::index_sequence<I...>) {
  using A = Accumulator<P>;
  const StepState& state = state_of(args.step);
  const auto rule = Settings::template Rule<A>::of(settings, args.range, state, nullptr);
  const PhiloxKey key = rounding_key(rounding_seed(args.seed), state.steps);
  const std::int64_t elements = args.parameter.numel();
  const auto codes = [&](std::size_t kind) { return args.state[kind].template data<std::uint8_t>(); };
  const auto scales = [&](std::size_t kind) { return args.scales[kind].template data<A>(); };
  const auto update_block = [&](std::int64_t block) {
    const std::int64_t begin = block * kStateBlock, count = std::min(kStateBlock, elements - begin);
    A kept[sizeof...(I)][kStateBlock];
    (decode_block<Settings::kSigns[I]>(codes(I) + begin, scales(I)[block], count, kept[I]), ...);
    update_range(rule, Range<P, G>(args, begin, count, begin),
                 {args.stochastic_rounding, key, static_cast<std::uint64_t>(args.first + begin)}, kept[I]...);
    ((scales(I)[block] = encode_block<Settings::kSigns[I]>(kept[I], count, codes(I) + begin)), ...);
  };
  parallel_for(args.parameter.context(), state_blocks(elements), kElementGrain / kStateBlock,
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t block = first; block < last; ++block) update_block(block);
               });
}

void update_blocks(const UpdateArgs& args) {
  if (state_of(args.step).taken == 0) return;
  visit_rule(
      [&]<class Settings>(const Settings& settings) {
        if constexpr (kHasCodes<Settings>)
          visit_floating(args.parameter.dtype(), [&](auto tag) {
            using P = typename decltype(tag)::type;
            constexpr auto kEach = std::make_index_sequence<std::size(Settings::kSigns)>{};
            if (args.gradient.dtype() == args.parameter.dtype()) update_by<P, P>(settings, args, kEach);
            else update_by<P, float>(settings, args, kEach);
          });
      },
      args.settings);
}

}  // namespace

void add_update_blocks(KernelTable& table) { table.update_blocks = update_blocks; }

}  // namespace keel::cpu
