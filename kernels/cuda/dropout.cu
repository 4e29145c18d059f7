// Dropout whose mask depends on (key, sample, position, channel) alone: bit by bit the processor's.

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/rows.h"
#include "keel/runtime/random.h"

namespace keel::cuda {
namespace {

template <class T>
struct DropoutRows {
  const T* x;                   // (samples, positions, channels)
  T* out;                       // likewise
  const std::int64_t* samples;  // (samples): global ids
  std::int64_t rows, positions, channels;
  PhiloxKey key;
  std::uint32_t threshold;
  float scale;
  bool vector;  // a row consists of aligned packs
};

constexpr int kRowsOfBlock = 8, kPacksOfLane = 8;

// A warp for each row, or part of one, so that only one sample and one position have to be found; a lane takes whole
// packs, whose channels Philox decides four at a time. Grid: rows times parts.
template <class T>
__global__ void __launch_bounds__(kWarp* kRowsOfBlock) dropout_kernel(DropoutRows<T> args) {
  constexpr int kSize = Pack<T>::kSize;
  const std::int64_t row = row_of_thread();
  if (row >= args.rows) return;
  const std::int64_t sample = row / args.positions;
  const auto position = static_cast<std::uint32_t>(row - sample * args.positions);
  const auto id = static_cast<std::uint64_t>(args.samples[sample]);
  const T* const x = args.x + row * args.channels;
  T* const out = args.out + row * args.channels;
  const std::int64_t step = static_cast<std::int64_t>(kWarp) * kSize;
  for (std::int64_t begin = blockIdx.y * step + threadIdx.x * kSize; begin < args.channels; begin += gridDim.y * step) {
    const int count = args.channels - begin < kSize ? static_cast<int>(args.channels - begin) : kSize;
    float values[kSize] = {};
    if (args.vector) load_closed<Cache::stream>(x + begin).open(values);
    else
      for (int i = 0; i < kSize; ++i)
        if (i < count) values[i] = widen(x[begin + i]);
    for (int i = 0; i < kSize; i += 4) {
      const PhiloxWords words = dropout_words(args.key, id, position, static_cast<std::uint32_t>((begin + i) / 4));
      for (int j = 0; j < 4; ++j) values[i + j] = words[j] >= args.threshold ? values[i + j] * args.scale : 0.0f;
    }
    if (args.vector) store_values(out + begin, values);
    else
      for (int i = 0; i < kSize; ++i)
        if (i < count) out[begin + i] = narrow<T>(values[i]);
  }
}

void dropout(const DropoutArgs& args) {
  visit_kernel_type("dropout", args.x.dtype(), args.x.device(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (args.x.numel() == 0) return;
    const cudaStream_t stream = stream_of(args.x);
    if (args.probability == 1) return args.out.context().api().set_bytes(args.out.raw(), 0, args.out.bytes(), stream);
    DropoutRows<T> rows{};
    rows.x = args.x.data<T>();
    rows.out = args.out.data<T>();
    rows.samples = args.sample_ids.data<std::int64_t>();
    rows.positions = args.x.dim(1);
    rows.rows = args.x.dim(0) * rows.positions;
    rows.channels = args.x.dim(2);
    rows.key = key_of(args.key);
    rows.threshold = dropout_threshold(args.probability);
    rows.scale = static_cast<float>(1 / (1 - args.probability));
    rows.vector = packs_fit(rows.x, rows.channels) && packs_fit(rows.out, rows.channels);
    const std::int64_t together = std::min<std::int64_t>(kRowsOfBlock, rows.rows);
    const std::int64_t parts = ceil_div(rows.channels, std::int64_t{kWarp} * kPacksOfLane * Pack<T>::kSize);
    launch("dropout", dropout_kernel<T>,
           {dim3(static_cast<unsigned>(ceil_div(rows.rows, together)),
                 static_cast<unsigned>(std::min<std::int64_t>(parts, 65535))),
            dim3(kWarp, static_cast<unsigned>(together))},
           stream, rows);
  });
}

}  // namespace

void add_dropout(KernelTable& table) { table.dropout = dropout; }

}  // namespace keel::cuda
