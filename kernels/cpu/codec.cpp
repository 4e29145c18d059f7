// Codecs, and what makes narrow matrices orthonormal.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "keel/kernels/codec_formulas.h"
#include "keel/kernels/cpu/backend.h"
#include "keel/runtime/parallel.h"

namespace keel::cpu {
namespace {

using namespace keel::codec;

// Calls f(part, block, first, count) for every block of every part.
template <class F>
void for_each_block(const CodecArgs& args, const F& f) {
  const std::int64_t count = args.numbers.dim(1), blocks = (count + Codec::kBlock - 1) / Codec::kBlock;
  parallel_for(args.numbers.context(), args.numbers.dim(0) * blocks, kElementGrain / Codec::kBlock,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t at = begin; at < end; ++at) {
                   const std::int64_t block = at % blocks, first = block * Codec::kBlock;
                   f(at / blocks, block, first, std::min(Codec::kBlock, count - first));
                 }
               });
}

// Writes the block's scale.
float put_scale(const float* x, std::int64_t n, float largest_multiple, std::byte* payload, std::int64_t block) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, size_bits(x[i]));
  const float scale = scale_of(largest, largest_multiple);
  put(payload, block, scale);
  return scale;
}

void encode_int8(const CodecArgs& args) {
  const std::int64_t count = args.numbers.dim(1), bytes = args.payload.dim(1);
  for_each_block(args, [&](std::int64_t part, std::int64_t block, std::int64_t first, std::int64_t n) {
    std::byte* const payload = args.payload.raw() + part * bytes;
    float* const x = args.numbers.data<float>() + part * count + first;
    const float scale = put_scale(x, n, kLargestInt8, payload, block);
    std::int8_t* const to = multiples_of(payload, bytes, count) + first;
    for (std::int64_t i = 0; i < n; ++i) to[i] = take_multiple(x[i], scale, kLargestInt8);
  });
}

void encode_int4(const CodecArgs& args) {
  const std::int64_t count = args.numbers.dim(1), bytes = args.payload.dim(1);
  const std::int64_t blocks = (count + Codec::kBlock - 1) / Codec::kBlock;
  for_each_block(args, [&](std::int64_t part, std::int64_t block, std::int64_t first, std::int64_t n) {
    std::byte* const payload = args.payload.raw() + part * bytes;
    float* const x = args.numbers.data<float>() + part * count + first;
    const float scale = put_scale(x, n, kLargestInt4, payload, block);
    std::byte* const to = pairs_of(payload, blocks, block);
    for (std::int64_t i = 0; i < std::min(n, kPairs); ++i) {
      const std::int8_t lower = take_multiple(x[i], scale, kLargestInt4);
      to[i] = pair_of(lower, i + kPairs < n ? take_multiple(x[i + kPairs], scale, kLargestInt4) : std::int8_t{0});
    }
  });
}

void add_int4(const CodecArgs& args) {
  const std::int64_t count = args.numbers.dim(1), bytes = args.payload.dim(1);
  const std::int64_t blocks = (count + Codec::kBlock - 1) / Codec::kBlock;
  for_each_block(args, [&](std::int64_t part, std::int64_t block, std::int64_t first, std::int64_t n) {
    std::byte* const payload = args.payload.raw() + part * bytes;
    const auto scale = get<float>(payload, block);
    const std::byte* const from = pairs_of(payload, blocks, block);
    float* const sum = args.numbers.data<float>() + part * count + first;
    for (std::int64_t i = 0; i < std::min(n, kPairs); ++i) {
      sum[i] += scale * lower_of(from[i]);
      if (i + kPairs < n) sum[i + kPairs] += scale * upper_of(from[i]);
    }
  });
}

void add_int8(const CodecArgs& args) {
  const std::int64_t count = args.numbers.dim(1), bytes = args.payload.dim(1);
  for_each_block(args, [&](std::int64_t part, std::int64_t block, std::int64_t first, std::int64_t n) {
    std::byte* const payload = args.payload.raw() + part * bytes;
    const auto scale = get<float>(payload, block);
    const std::int8_t* const from = multiples_of(payload, bytes, count) + first;
    float* const sum = args.numbers.data<float>() + part * count + first;
    for (std::int64_t i = 0; i < n; ++i) sum[i] += scale * static_cast<float>(from[i]);
  });
}

// The size that `kept` numbers have at least, and how many of those with exactly that size are among them.
struct Threshold {
  std::uint32_t size;
  std::int64_t ties;
};

// The sizes among which the threshold is. Of many, those are counted by their upper bits first, so that only those of
// one count must be sorted; `kept` becomes how many of these are kept.
std::vector<std::uint32_t> candidates(const float* x, std::int64_t count, std::int64_t& kept) {
  constexpr unsigned kLowBits = 16;
  constexpr std::int64_t kMany = 4096;
  std::vector<std::uint32_t> sizes;
  if (count < kMany) {
    for (std::int64_t i = 0; i < count; ++i) sizes.push_back(size_bits(x[i]));
    return sizes;
  }
  std::vector<std::int64_t> counts(std::size_t{1} << (31 - kLowBits));
  for (std::int64_t i = 0; i < count; ++i) ++counts[size_bits(x[i]) >> kLowBits];
  std::size_t upper = counts.size() - 1;
  for (; counts[upper] < kept; --upper) kept -= counts[upper];
  for (std::int64_t i = 0; i < count; ++i)
    if (size_bits(x[i]) >> kLowBits == upper) sizes.push_back(size_bits(x[i]));
  return sizes;
}

Threshold find_threshold(const float* x, std::int64_t count, std::int64_t kept) {
  std::vector<std::uint32_t> sizes = candidates(x, count, kept);
  std::nth_element(sizes.begin(), sizes.begin() + (kept - 1), sizes.end(), std::greater<>());
  const std::uint32_t size = sizes[static_cast<std::size_t>(kept - 1)];
  return {size, kept - std::count_if(sizes.begin(), sizes.begin() + kept, [&](auto each) { return each > size; })};
}

// Place and number of each that is kept, by place.
void keep_largest(float* x, std::int64_t count, std::int64_t kept, std::byte* payload) {
  if (kept == 0) return;
  auto [least, ties] = find_threshold(x, count, kept);
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t size = size_bits(x[i]);
    if (size < least || (size == least && ties-- <= 0)) continue;
    put(payload, at++, Kept{static_cast<std::uint32_t>(i), x[i]});
    x[i] = 0;
  }
}

void encode_top_k(const CodecArgs& args) {
  const std::int64_t count = args.numbers.dim(1), bytes = args.payload.dim(1);
  parallel_for(args.numbers.context(), args.numbers.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part)
      keep_largest(args.numbers.data<float>() + part * count, count, args.codec.kept(count),
                   args.payload.raw() + part * bytes);
  });
}

void add_top_k(const CodecArgs& args) {
  const std::int64_t count = args.numbers.dim(1), bytes = args.payload.dim(1);
  parallel_for(args.numbers.context(), args.numbers.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::byte* const payload = args.payload.raw() + part * bytes;
      float* const sum = args.numbers.data<float>() + part * count;
      for (std::int64_t i = 0; i < bytes / kKeptBytes; ++i) {
        const auto [place, number] = get<Kept>(payload, i);
        KEEL_CHECK(place < count, "decode_add: a payload names element ", place, " of ", count);
        sum[place] += number;
      }
    }
  });
}

SizeClasses classes_of(const std::vector<Kept>& kept) {
  SizeClasses classes{.kept = static_cast<std::int64_t>(kept.size())};
  for (const Kept& each : kept) classes.largest = std::max(classes.largest, size_bits(each.number));
  for (const Kept& each : kept) classes.sum += size_units(each.number, classes.largest);
  for (const Kept& each : kept)
    if (is_larger(each.number, classes)) {
      classes.larger_sum += size_units(each.number, classes.largest);
      ++classes.larger;
    }
  return classes;
}

void encode_top_k_2bit(const CodecArgs& args) {
  const std::int64_t count = args.numbers.dim(1), bytes = args.payload.dim(1);
  if (count == 0) return;
  const int width = entry_width(count);
  parallel_for(args.numbers.context(), args.numbers.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Kept> kept(static_cast<std::size_t>(args.codec.kept(count)));
    for (std::int64_t part = begin; part < end; ++part) {
      float* const x = args.numbers.data<float>() + part * count;
      std::byte* const payload = args.payload.raw() + part * bytes;
      keep_largest(x, count, std::ssize(kept), reinterpret_cast<std::byte*>(kept.data()));
      const SizeClasses classes = classes_of(kept);
      const Levels levels = levels_of(classes);
      const auto entry = [&](std::int64_t i) { return Entry(kept[static_cast<std::size_t>(i)], classes, width); };
      put(payload, 0, levels);
      for (std::int64_t i = 0; i < bytes - kLevelBytes; ++i)
        payload[kLevelBytes + i] = packed_byte(i, width, std::ssize(kept), entry);
      for (std::int64_t i = 0; i < std::ssize(kept); ++i) {
        const auto& [place, number] = kept[static_cast<std::size_t>(i)];
        x[place] = number - entry(i).number(levels);
      }
    }
  });
}

void add_top_k_2bit(const CodecArgs& args) {
  const std::int64_t count = args.numbers.dim(1), bytes = args.payload.dim(1);
  if (count == 0) return;
  const int width = entry_width(count);
  parallel_for(args.numbers.context(), args.numbers.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::byte* const payload = args.payload.raw() + part * bytes;
      float* const sum = args.numbers.data<float>() + part * count;
      const auto levels = get<Levels>(payload, 0);
      for (std::int64_t i = 0; i < args.codec.kept(count); ++i) {
        const Entry entry = packed_entry(payload + kLevelBytes, width, i);
        KEEL_CHECK(entry.place() < count, "decode_add: a payload names element ", entry.place(), " of ", count);
        sum[entry.place()] += entry.number(levels);
      }
    }
  });
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void encode(const CodecArgs& args) {
  switch (args.codec.kind) {
    case Codec::Kind::int8: return encode_int8(args);
    case Codec::Kind::int4: return encode_int4(args);
    case Codec::Kind::top_k: return encode_top_k(args);
    case Codec::Kind::top_k_2bit: return encode_top_k_2bit(args);
  }
}
void decode_add(const CodecArgs& args) {
  switch (args.codec.kind) {
    case Codec::Kind::int8: return add_int8(args);
    case Codec::Kind::int4: return add_int4(args);
    case Codec::Kind::top_k: return add_top_k(args);
    case Codec::Kind::top_k_2bit: return add_top_k_2bit(args);
  }
}

void orthonormalise(const Tensor& x) {
  const auto rows = static_cast<std::size_t>(x.dim(0)), columns = static_cast<std::size_t>(x.dim(1));
  float* const numbers = x.data<float>();
  std::vector<std::vector<double>> done;
  for (std::size_t c = 0; c < columns; ++c) {
    std::vector<double> column(rows);
    for (std::size_t r = 0; r < rows; ++r) column[r] = static_cast<double>(numbers[r * columns + c]);
    const double before = std::sqrt(dot(column, column));
    for (const std::vector<double>& other : done) {
      const double along = dot(column, other);
      for (std::size_t r = 0; r < rows; ++r) column[r] -= along * other[r];
    }
    const double factor = normalising_factor(std::sqrt(dot(column, column)), before);
    for (std::size_t r = 0; r < rows; ++r) numbers[r * columns + c] = static_cast<float>(column[r] *= factor);
    done.push_back(std::move(column));
  }
}

void fill_empty_rows(const Tensor& x, PhiloxKey key) {
  const std::int64_t rows = x.dim(0), columns = x.dim(1);
  for (std::int64_t r = 0; r < rows; ++r) {
    float* const row = x.data<float>() + r * columns;
    if (std::any_of(row, row + columns, [](float each) { return each != 0; })) continue;
    for (std::int64_t c = 0; c < columns; ++c) row[c] = normal_at(key, r * columns + c);
  }
}

}  // namespace

void add_codec(KernelTable& table) {
  table.encode = encode;
  table.decode_add = decode_add;
  table.orthonormalise = orthonormalise;
  table.fill_empty_rows = fill_empty_rows;
}

}  // namespace keel::cpu
