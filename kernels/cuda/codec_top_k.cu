// Codecs of the largest numbers. The size that is kept at least is found digit by digit from the highest on, as a radix
// sort would, but only where the digits so far are its own; then every number that stays knows its place among the
// others by how many come before it.

#include "keel/kernels/codec_formulas.h"
#include "keel/kernels/cuda/codec.h"
#include "keel/kernels/cuda/device.h"

namespace keel::cuda {
namespace {

using namespace keel::codec;
using Rows = CodecRows;

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

constexpr int kSteps = 16;  // numbers of a thread
constexpr int kTile = kThreads * kSteps;
constexpr int kDigitBits = 11, kDigits = 1 << kDigitBits, kDigitsOfThread = kDigits / kThreads;
constexpr int kPasses = (kSizeBits + kDigitBits - 1) / kDigitBits;

// What is known of the size that a part keeps at least.
struct Bound {
  std::uint32_t size;  // the digits so far
  std::uint32_t left;  // how many are kept of those that have them; in the end, of those of exactly this size
};

struct Selection {
  Rows rows;
  std::int64_t tiles;     // of a part
  std::uint32_t* counts;  // (passes, parts, digits)
  Bound* bounds;          // (parts)
  std::uint64_t* before;  // (parts, tiles): numbers that are larger, in the upper half, and equal ones, in the lower
};

// A warp takes the numbers of a tile at kSteps times kWarp places that follow one another.
__device__ inline std::int64_t place_of(std::int64_t tile, int step) {
  const std::int64_t warp = tile * kWarps + threadIdx.x / kWarp;
  return (warp * kSteps + step) * kWarp + threadIdx.x % kWarp;
}

// Calls f(place, size) for each of the thread's numbers.
template <class F>
__device__ void for_each_size(const float* numbers, std::int64_t count, std::int64_t tile, const F& f) {
#pragma unroll 4
  for (int step = 0; step < kSteps; ++step) {
    const std::int64_t at = place_of(tile, step);
    if (at < count) f(size_bits(numbers[at]));
  }
}

__global__ void count_digits_kernel(Selection selection, int pass, int shift) {
  const std::int64_t part = blockIdx.x / selection.tiles, tile = blockIdx.x % selection.tiles;
  KEEL_SHARED(std::uint32_t, found, kDigits);
  for (int digit = static_cast<int>(threadIdx.x); digit < kDigits; digit += kThreads) found[digit] = 0;
  __syncthreads();
  const std::uint32_t known = pass == 0 ? 0 : selection.bounds[part].size;
  for_each_size(selection.rows.numbers + part * selection.rows.count, selection.rows.count, tile,
                [&](std::uint32_t size) {
                  const std::uint32_t digits = size >> shift;
                  if (digits >> kDigitBits == known) atomicAdd(found.data() + digits % kDigits, 1u);
                });
  __syncthreads();
  std::uint32_t* const counts = selection.counts + (pass * selection.rows.parts + part) * kDigits;
  for (int digit = static_cast<int>(threadIdx.x); digit < kDigits; digit += kThreads)
    if (found[digit] != 0) atomicAdd(counts + digit, static_cast<std::uint32_t>(found[digit]));
}

// A block for each part; its threads look through the digits from the largest on.
__global__ void choose_digit_kernel(Selection selection, int pass, std::uint32_t kept) {
  const std::int64_t part = blockIdx.x;
  KEEL_SHARED(std::uint32_t, scratch, kWarp);
  const std::uint32_t* const counts = selection.counts + (pass * selection.rows.parts + part) * kDigits;
  const Bound known = pass == 0 ? Bound{0, kept} : selection.bounds[part];
  const int first = kDigits - 1 - static_cast<int>(threadIdx.x) * kDigitsOfThread;
  std::uint32_t own = 0;
  for (int i = 0; i < kDigitsOfThread; ++i) own += counts[first - i];
  const std::uint32_t up_to = sum_up_to_thread(own, scratch);
  std::uint32_t before = up_to - own;
  if (known.left <= before || known.left > up_to) return;
  int digit = first;
  for (; before + counts[digit] < known.left; --digit) before += counts[digit];
  selection.bounds[part] = {known.size << kDigitBits | static_cast<std::uint32_t>(digit), known.left - before};
}

__device__ inline std::uint64_t counted(std::uint32_t size, std::uint32_t bound) {
  return size > bound ? std::uint64_t{1} << 32 : size == bound ? 1 : 0;
}

__global__ void count_kept_kernel(Selection selection) {
  const std::int64_t part = blockIdx.x / selection.tiles, tile = blockIdx.x % selection.tiles;
  KEEL_SHARED(std::uint64_t, scratch, kWarp);
  const std::uint32_t bound = selection.bounds[part].size;
  std::uint64_t own = 0;
  for_each_size(selection.rows.numbers + part * selection.rows.count, selection.rows.count, tile,
                [&](std::uint32_t size) { own += counted(size, bound); });
  const std::uint64_t all = reduce_block(own, std::uint64_t{0}, Sum{}, scratch);
  if (threadIdx.x == 0) selection.before[blockIdx.x] = all;
}

// A block for each part.
__global__ void sum_tiles_kernel(Selection selection) {
  KEEL_SHARED(std::uint64_t, scratch, kWarp);
  std::uint64_t* const tiles = selection.before + blockIdx.x * selection.tiles;
  std::uint64_t total = 0;
  for (std::int64_t first = 0; first < selection.tiles; first += kThreads) {
    const std::int64_t tile = first + threadIdx.x;
    const std::uint64_t own = tile < selection.tiles ? tiles[tile] : 0;
    const std::uint64_t up_to = sum_up_to_thread(own, scratch);
    if (tile < selection.tiles) tiles[tile] = total + up_to - own;
    total += reduce_block(own, std::uint64_t{0}, Sum{}, scratch);
  }
}

__global__ void keep_largest_kernel(Selection selection) {
  const std::int64_t part = blockIdx.x / selection.tiles, tile = blockIdx.x % selection.tiles;
  KEEL_SHARED(std::uint64_t, scratch, kWarp);
  const Rows& rows = selection.rows;
  const Bound bound = selection.bounds[part];
  float* const numbers = rows.numbers + part * rows.count;
  const unsigned lane = threadIdx.x % kWarp, earlier = (1u << lane) - 1;
  float x[kSteps];
  unsigned larger[kSteps], equal[kSteps];  // the warp's lanes
  std::uint64_t of_warp = 0;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const std::int64_t at = place_of(tile, step);
    const bool inside = at < rows.count;
    x[step] = inside ? numbers[at] : 0.0f;
    larger[step] = __ballot_sync(kAllLanes, inside && size_bits(x[step]) > bound.size);
    equal[step] = __ballot_sync(kAllLanes, inside && size_bits(x[step]) == bound.size);
    of_warp += std::uint64_t(__popc(larger[step])) << 32 | std::uint64_t(__popc(equal[step]));
  }
  // The last lane adds for its warp, so that the first one's sum ends with the warp before.
  const std::uint64_t up_to = sum_up_to_thread(lane == kWarp - 1 ? of_warp : 0, scratch);
  const std::uint64_t before = selection.before[blockIdx.x] + __shfl_sync(kAllLanes, up_to, 0);
  auto larger_before = static_cast<std::uint32_t>(before >> 32), equal_before = static_cast<std::uint32_t>(before);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const std::uint32_t equals = equal_before + static_cast<std::uint32_t>(__popc(equal[step] & earlier));
    if ((larger[step] >> lane & 1u) != 0 || ((equal[step] >> lane & 1u) != 0 && equals < bound.left)) {
      const std::int64_t at = place_of(tile, step);
      const std::uint32_t larger_ones = larger_before + static_cast<std::uint32_t>(__popc(larger[step] & earlier));
      put(rows.payload + part * rows.bytes, larger_ones + std::min(equals, bound.left),
          Kept{static_cast<std::uint32_t>(at), x[step]});
      numbers[at] = 0;
    }
    larger_before += static_cast<std::uint32_t>(__popc(larger[step]));
    equal_before += static_cast<std::uint32_t>(__popc(equal[step]));
  }
}

__global__ void add_kept_kernel(Rows rows, Fault* fault) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t kept = rows.bytes / kKeptBytes;
  if (at >= rows.parts * kept) return;
  const std::int64_t part = at / kept;
  const auto [place, number] = get<Kept>(rows.payload + part * rows.bytes, at % kept);
  if (place < rows.count) rows.numbers[part * rows.count + place] += number;
  else raise_fault(fault, FaultKind::payload_place, at % kept, place, rows.count);
}

// A block for each part, whose numbers that are kept are in `selected`.
__global__ void pack_kept_kernel(Rows rows, const Kept* selected, std::int64_t kept) {
  KEEL_SHARED(std::uint64_t, scratch, kWarp);
  const std::int64_t part = blockIdx.x;
  selected += part * kept;
  const auto reduced = [&](const auto& of_number, const auto& op) {
    std::uint64_t own = 0;
    for (std::int64_t i = threadIdx.x; i < kept; i += kThreads)
      own = op(own, std::uint64_t{of_number(selected[i].number)});
    return reduce_block(own, std::uint64_t{0}, op, scratch);
  };
  SizeClasses classes{.kept = kept};
  classes.largest = static_cast<std::uint32_t>(reduced([](float x) { return size_bits(x); }, Largest{}));
  classes.sum = reduced([&](float x) { return size_units(x, classes.largest); }, Sum{});
  classes.larger_sum =
      reduced([&](float x) { return is_larger(x, classes) ? size_units(x, classes.largest) : 0; }, Sum{});
  classes.larger = static_cast<std::int64_t>(reduced([&](float x) { return is_larger(x, classes) ? 1u : 0u; }, Sum{}));

  const Levels levels = levels_of(classes);
  std::byte* const payload = rows.payload + part * rows.bytes;
  if (threadIdx.x == 0) put(payload, 0, levels);
  const int width = entry_width(rows.count);
  const auto entry = [&](std::int64_t i) { return Entry(selected[i], classes, width); };
  for (std::int64_t i = threadIdx.x; i < rows.bytes - kLevelBytes; i += kThreads)
    payload[kLevelBytes + i] = packed_byte(i, width, kept, entry);
  float* const numbers = rows.numbers + part * rows.count;
  for (std::int64_t i = threadIdx.x; i < kept; i += kThreads)
    numbers[selected[i].place] = selected[i].number - entry(i).number(levels);
}

__global__ void add_packed_kernel(Rows rows, std::int64_t kept, Fault* fault) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows.parts * kept) return;
  const std::int64_t part = at / kept;
  const std::byte* const payload = rows.payload + part * rows.bytes;
  const Entry entry = packed_entry(payload + kLevelBytes, entry_width(rows.count), at % kept);
  if (entry.place() < rows.count)
    rows.numbers[part * rows.count + entry.place()] += entry.number(get<Levels>(payload, 0));
  else raise_fault(fault, FaultKind::payload_place, at % kept, entry.place(), rows.count);
}

// A thread for each number that is kept.
LaunchShape by_kept(const Rows& rows, std::int64_t kept) {
  return {grid_of(ceil_div(rows.parts * kept, std::int64_t{kThreads})), kThreads};
}

}  // namespace

void encode_top_k(const CodecArgs& args) {
  Selection selection{Rows(args), ceil_div(args.numbers.dim(1), kTile), nullptr, nullptr, nullptr};
  const std::int64_t parts = selection.rows.parts;
  const Context& context = args.numbers.context();
  const Tensor counts = zeros(context, {kPasses, parts, kDigits}, DType::i32, Purpose::workspace);
  const Tensor bounds = empty(context, {parts, 2}, DType::i32, Purpose::workspace);
  const Tensor before = empty(context, {parts, selection.tiles}, DType::i64, Purpose::workspace);
  selection.counts = reinterpret_cast<std::uint32_t*>(counts.data<std::int32_t>());
  selection.bounds = reinterpret_cast<Bound*>(bounds.data<std::int32_t>());
  selection.before = reinterpret_cast<std::uint64_t*>(before.data<std::int64_t>());

  const cudaStream_t stream = stream_of(args.numbers);
  const LaunchShape by_tile{grid_of(parts * selection.tiles), kThreads}, by_part{grid_of(parts), kThreads};
  const auto kept = static_cast<std::uint32_t>(args.codec.kept(selection.rows.count));
  for (int pass = 0; pass < kPasses; ++pass) {
    launch("encode: count", count_digits_kernel, by_tile, stream, selection, pass, (kPasses - 1 - pass) * kDigitBits);
    launch("encode: choose", choose_digit_kernel, by_part, stream, selection, pass, kept);
  }
  launch("encode: count kept", count_kept_kernel, by_tile, stream, selection);
  launch("encode: sum tiles", sum_tiles_kernel, by_part, stream, selection);
  launch("encode: keep", keep_largest_kernel, by_tile, stream, selection);
}

void add_top_k(const CodecArgs& args) {
  const Rows rows(args);
  launch("decode_add", add_kept_kernel, by_kept(rows, rows.bytes / kKeptBytes), stream_of(args.numbers), rows,
         args.numbers.context().api().fault());
}

void encode_top_k_2bit(const CodecArgs& args) {
  const Rows rows(args);
  const std::int64_t kept = args.codec.kept(rows.count);
  const Tensor selected = empty(args.numbers.context(), {rows.parts, kKeptBytes * kept}, DType::u8, Purpose::workspace);
  encode_top_k({args.numbers, selected, {.kind = Codec::Kind::top_k, .number = kept}});
  launch("encode: pack", pack_kept_kernel, {grid_of(rows.parts), kThreads}, stream_of(args.numbers), rows,
         reinterpret_cast<const Kept*>(selected.raw()), kept);
}

void add_top_k_2bit(const CodecArgs& args) {
  const Rows rows(args);
  const std::int64_t kept = args.codec.kept(rows.count);
  launch("decode_add", add_packed_kernel, by_kept(rows, kept), stream_of(args.numbers), rows, kept,
         args.numbers.context().api().fault());
}

}  // namespace keel::cuda
