// Updates of weights whose states are kept in blocks of codes: a warp for each block.

#include "keel/kernels/cuda/update_kernel.h"
#include "keel/kernels/dynamic_map.h"

namespace keel::cuda {
namespace {

using namespace detail;

constexpr int kWarps = kThreads / kWarp;
constexpr int kQuads = static_cast<int>(kStateBlock) / (kWarp * kQuad);  // of a lane
// Each block of threads copies the maps first, so it takes several of the states' blocks.
constexpr std::int64_t kLeastPasses = 2, kMostBlocks = 2048;

__device__ const DynamicMap kMaps[] = {make_dynamic_map(false), make_dynamic_map(true)};

// Codes and scales of what a rule keeps.
template <std::size_t kKept>
struct Coded {
  std::uint8_t* codes[kKept];
  float* scales[kKept];
  bool aligned;  // the codes of a quad are a word
};

// The part of an array that belongs to one of the states.
template <class Array>
struct Part {
  const Array& array;
  int first;
  __device__ auto operator[](int i) const { return array[first + i]; }
};

// Bytes that lie in words.
template <class Words>
struct BytesOf {
  Part<Words> words;
  __device__ int operator[](int i) const {
    return static_cast<int>(static_cast<unsigned>(words[i / 4]) >> (8 * (i % 4)) & 0xff);
  }
};

// The map of one of the states, where the threads of a block share it.
template <bool kSigns, class Floats, class Words>
struct SharedMap {
  Part<Floats> values, borders;
  BytesOf<Words> smaller;

  __device__ SharedMap(int state, const Floats& all_values, const Floats& all_borders, const Words& all_smaller)
      : values{all_values, state * DynamicMap::kCodes},
        borders{all_borders, state * DynamicMap::kCodes},
        smaller{{all_smaller, state * DynamicMap::kBucketWords}} {}
  __device__ void copy() const {
    const DynamicMap& map = kMaps[kSigns ? 1 : 0];
    for (int i = static_cast<int>(threadIdx.x); i < DynamicMap::kCodes; i += kThreads) {
      values.array[values.first + i] = map.values[static_cast<std::size_t>(i)];
      borders.array[borders.first + i] = map.borders[static_cast<std::size_t>(i)];
    }
    const auto* const words = reinterpret_cast<const unsigned*>(map.smaller.data());
    for (int i = static_cast<int>(threadIdx.x); i < DynamicMap::kBucketWords; i += kThreads)
      smaller.words.array[smaller.words.first + i] = words[i];
  }
  __device__ void decode(const std::uint8_t* codes, int count, bool whole, float scale, float (&out)[kQuad]) const {
    const unsigned word = whole ? __ldcs(reinterpret_cast<const unsigned*>(codes)) : 0;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const int code = whole ? static_cast<int>(word >> (8 * i) & 0xff) : i < count ? codes[i] : 0;
      out[i] = i < count ? values[code] * scale : 0;
    }
  }
  __device__ void encode(const float (&in)[kQuad], float scale, std::uint8_t* codes, int count, bool whole) const {
    unsigned word = 0;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const float x = scale == 0 ? 0 : in[i] / scale;
      word |= static_cast<unsigned>(code_of(kSigns, x, smaller, borders)) << (8 * i);
    }
    if (whole) return __stcs(reinterpret_cast<unsigned*>(codes), word);
#pragma unroll
    for (int i = 0; i < kQuad; ++i)
      if (i < count) codes[i] = static_cast<std::uint8_t>(word >> (8 * i));
  }
};

struct LargestWord {
  __device__ unsigned operator()(unsigned a, unsigned b) const { return a > b ? a : b; }
};

// The largest size in a warp's block; what is not finite is larger than all that is.
__device__ inline float largest_size(const float (&numbers)[kQuads][kQuad]) {
  unsigned largest = 0;
#pragma unroll
  for (int q = 0; q < kQuads; ++q)
#pragma unroll
    for (int i = 0; i < kQuad; ++i)
      largest = LargestWord{}(largest, std::bit_cast<unsigned>(numbers[q][i]) & 0x7fffffffu);
  return std::bit_cast<float>(reduce_warp(largest, LargestWord{}));
}

// The update of all elements by a rule, which one thread of each block prepares.
template <class Settings, class P, class G, std::size_t... I>
__global__ void update_blocks_kernel(Flat<P, G, 0> flat, Coded<sizeof...(I)> coded, Settings settings,
                                     RangeSettings range, const StepState* state, Rounding rounding,
                                     std::index_sequence<I...>) {
  using Rule = typename Settings::template Rule<float>;
  constexpr int kKept = sizeof...(I);
  if (state->taken == 0) return;
  KEEL_SHARED(Rule, shared_rule, 1);
  KEEL_SHARED(float, values, kKept* DynamicMap::kCodes);
  KEEL_SHARED(float, borders, kKept* DynamicMap::kCodes);
  KEEL_SHARED(unsigned, smaller, kKept* DynamicMap::kBucketWords);
  const auto map_of = [&]<bool kSigns>(std::bool_constant<kSigns>, std::size_t kind) {
    return SharedMap<kSigns, decltype(values), decltype(smaller)>(static_cast<int>(kind), values, borders, smaller);
  };
  if (threadIdx.x == 0) shared_rule[0] = Rule::of(settings, range, *state, nullptr);
  (map_of(std::bool_constant<Settings::kSigns[I]>{}, I).copy(), ...);
  __syncthreads();
  const Rule rule = shared_rule[0];
  const PhiloxKey key = rounding_key(rounding.seed, state->steps);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t blocks = state_blocks(flat.count), stride = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp; block < blocks; block += stride) {
    float kept[kKept][kQuads][kQuad];
    const auto begin_of = [&](int q) { return block * kStateBlock + (q * kWarp + lane) * kQuad; };
    const auto count_of = [&](int q) {
      return static_cast<int>(std::max(std::min(flat.count - begin_of(q), std::int64_t{kQuad}), std::int64_t{0}));
    };
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const std::int64_t at = begin_of(q);
      const int count = count_of(q);
      const bool whole = flat.aligned && count == kQuad, word = coded.aligned && count == kQuad;
      float gradient[kQuad], weights[kQuad];
      load_quad(flat.gradient + at, count, whole, gradient);
      if (flat.master != nullptr) load_quad(flat.master + at, count, whole, weights);
      else load_quad(flat.parameter + at, count, whole, weights);
      (map_of(std::bool_constant<Settings::kSigns[I]>{}, I)
           .decode(coded.codes[I] + at, count, word, coded.scales[I][block], kept[I][q]),
       ...);
#pragma unroll
      for (int i = 0; i < kQuad; ++i)
        if (i < count) rule(gradient[i], weights[i], kept[I][q][i]...);
      if (flat.master != nullptr) store_quad(flat.master + at, count, whole, weights);
      store_weights(flat.parameter, at, count, whole, weights, rounding, key);
    }
    const float scales[] = {largest_size(kept[I])...};
    __syncwarp();  // all lanes have read the block's old scales: what a shuffle orders is not memory
    if (lane == 0) ((coded.scales[I][block] = scales[I]), ...);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const std::int64_t at = begin_of(q);
      const int count = count_of(q);
      const bool word = coded.aligned && count == kQuad;
      (map_of(std::bool_constant<Settings::kSigns[I]>{}, I)
           .encode(kept[I][q], scales[I], coded.codes[I] + at, count, word),
       ...);
    }
  }
}

template <class P, class G, std::size_t... I, class Settings>
void update_by(const Settings& settings, const UpdateArgs& args, std::index_sequence<I...> each) {
  const Flat<P, G, 0> flat = flat_of<P, G, 0>(args);
  Coded<sizeof...(I)> coded{
      {args.state[I].template data<std::uint8_t>()...}, {args.scales[I].template data<float>()...}, true};
  for (const std::uint8_t* codes : coded.codes)
    coded.aligned = coded.aligned && reinterpret_cast<std::uintptr_t>(codes) % sizeof(unsigned) == 0;
  const Rounding rounding{args.stochastic_rounding, rounding_seed(args.seed), static_cast<std::uint64_t>(args.first)};
  const std::int64_t blocks = std::min(ceil_div(state_blocks(flat.count), kWarps * kLeastPasses), kMostBlocks);
  launch(Settings::kName.data(), update_blocks_kernel<Settings, P, G, I...>, {static_cast<unsigned>(blocks), kThreads},
         stream_of(args.parameter), flat, coded, settings, args.range,
         reinterpret_cast<const StepState*>(args.step.data<std::uint8_t>()), rounding, each);
}

void update_blocks(const UpdateArgs& args) {
  if (args.parameter.numel() == 0) return;
  visit_rule(
      [&]<class Settings>(const Settings& settings) {
        if constexpr (kHasCodes<Settings>)
          visit_kernel_type(Settings::kName.data(), args.parameter.dtype(), args.parameter.device(), [&](auto tag) {
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

}  // namespace keel::cuda
