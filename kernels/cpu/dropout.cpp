// Dropout whose mask depends on (key, sample, position, channel) alone.

#include <algorithm>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/blocks.h"

namespace keel::cpu {
namespace {

constexpr std::int64_t kBlocksAtOnce = 32;
constexpr std::int64_t kWordsAtOnce = 4 * kBlocksAtOnce;

// x, out: `count` <= kWordsAtOnce channels from channel 4 * first_block on.
template <class T>
void drop_channels(const T* x, T* out, std::int64_t count, PhiloxKey key, std::uint64_t sample, std::uint32_t position,
                   std::uint32_t first_block, std::uint32_t threshold, Accumulator<T> scale) {
  std::uint32_t words[kWordsAtOnce];
  for (std::uint32_t b = 0; b < kBlocksAtOnce; ++b) {
    const PhiloxWords four = dropout_words(key, sample, position, first_block + b);
    for (std::size_t i = 0; i < 4; ++i) words[4 * b + i] = four[i];
  }
  using C = Accumulator<T>;
  for (std::int64_t i = 0; i < count; ++i) out[i] = narrow<T>(words[i] >= threshold ? widen<C>(x[i]) * scale : C(0));
}

void dropout(const DropoutArgs& args) {
  if (args.x.numel() == 0) return;
  if (args.probability == 1) return kernel_table(args.out.context()).fill(args.out, 0);
  const std::int64_t positions = args.x.shape()[1], channels = args.x.shape()[2];
  const PhiloxKey key = key_of(args.key);
  const std::uint32_t threshold = dropout_threshold(args.probability);
  const std::int64_t* samples = args.sample_ids.data<std::int64_t>();
  visit_floating(args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = args.x.data<T>();
    T* out = args.out.data<T>();
    const auto scale = static_cast<Accumulator<T>>(1 / (1 - args.probability));
    const std::int64_t rows = args.x.shape()[0] * positions;
    parallel_for(args.x.context(), rows, std::max<std::int64_t>(1, kElementGrain / channels),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row)
                     for (std::int64_t c = 0; c < channels; c += kWordsAtOnce)
                       drop_channels(x + row * channels + c, out + row * channels + c,
                                     std::min(kWordsAtOnce, channels - c), key,
                                     static_cast<std::uint64_t>(samples[row / positions]),
                                     static_cast<std::uint32_t>(row % positions), static_cast<std::uint32_t>(c / 4),
                                     threshold, scale);
                 });
  });
}

}  // namespace

void add_dropout(KernelTable& table) { table.dropout = dropout; }

}  // namespace keel::cpu
