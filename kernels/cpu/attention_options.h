#pragma once
// Rows of attention's bias and of its dropout.

#include <bit>
#include <cstdint>
#include <cstring>

#include "keel/kernels/attention.h"
#include "keel/runtime/half.h"

namespace keel::cpu {

// The bias of a call, one row of keys at a time; false where there is none. T: dtype of q.
template <class T>
class BiasRows {
 public:
  explicit BiasRows(const Tensor& bias) {
    if (!bias.defined()) return;
    is_wide_ = bias.dtype() != dtype_of<T>();
    data_ = is_wide_ ? static_cast<const void*>(bias.data<Wide>()) : bias.data<T>();
    for (int i = 0; i < 3; ++i) strides_[i] = bias.dim(i) == 1 ? 0 : bias.stride(i);
  }
  explicit operator bool() const { return data_ != nullptr; }

  // row[j] += bias of key `first` + j, for n keys.
  template <class Sum>
  void add_to(Sum* row, std::int64_t b, std::int64_t head, std::int64_t query, std::int64_t first,
              std::int64_t n) const {
    const std::int64_t at = b * strides_[0] + head * strides_[1] + query * strides_[2] + first;
    if (is_wide_) add(row, static_cast<const Wide*>(data_) + at, n);
    else add(row, static_cast<const T*>(data_) + at, n);
  }

 private:
  using Wide = Accumulator<T>;
  template <class Sum, class B>
  static void add(Sum* row, const B* bias, std::int64_t n) {
    for (std::int64_t j = 0; j < n; ++j) row[j] += static_cast<Sum>(bias[j]);
  }
  const void* data_ = nullptr;
  bool is_wide_ = false;
  std::int64_t strides_[3] = {};
};

// The dropout of a call, one row of weights at a time; false where there is none.
class WeightDropout {
 public:
  explicit WeightDropout(const AttentionArgs& args)
      : threshold_(static_cast<std::uint16_t>(attention_dropout_threshold(args.dropout.probability))),
        key_(key_of(args.dropout.key)),
        first_key_(args.dropout.position),
        first_query_(args.dropout.position + args.q_offset) {
    if (threshold_ != 0) samples_ = args.dropout.sample_ids.data<std::int64_t>();
  }
  explicit operator bool() const { return threshold_ != 0; }
  // 1 / the share of weights that are kept.
  double scale() const { return 0x1p16 / (0x1p16 - threshold_); }

  // The random bits of the n keys from `first` on.
  void draw(std::int64_t b, std::int64_t head, std::int64_t query, std::int64_t first, std::int64_t n,
            std::uint16_t* bits) const {
    const PhiloxKey key = attention_dropout_key(key_, static_cast<std::uint32_t>(head));
    const auto sample = static_cast<std::uint64_t>(samples_[b]);
    const auto position = static_cast<std::uint32_t>(first_query_ + query);
    auto block = static_cast<std::uint32_t>((first_key_ + first) / kKeys);
    std::int64_t skipped = (first_key_ + first) % kKeys;
    for (std::int64_t done = 0; done < n; block += kBlocksAtOnce, skipped = 0) {
      std::uint32_t words[4 * kBlocksAtOnce];
      for (std::uint32_t i = 0; i < kBlocksAtOnce; ++i) {
        const PhiloxWords four = attention_dropout_words(key, sample, position, block + i);
        for (std::size_t w = 0; w < 4; ++w) words[4 * i + w] = four[w];
      }
      const std::int64_t count = std::min(kKeys * kBlocksAtOnce - skipped, n - done);
      std::memcpy(bits + done, reinterpret_cast<const unsigned char*>(words) + 2 * skipped,
                  static_cast<std::size_t>(2 * count));
      done += count;
    }
  }
  // Weights become zero where the bits say so.
  template <class W>
  void drop(const std::uint16_t* bits, std::int64_t n, W* weights) const {
    for (std::int64_t j = 0; j < n; ++j) weights[j] = bits[j] >= threshold_ ? weights[j] : W{};
  }

 private:
  static_assert(std::endian::native == std::endian::little, "halves of words are read in the order of memory");
  static constexpr std::int64_t kKeys = 8;  // of one block of words
  static constexpr std::uint32_t kBlocksAtOnce = 16;

  std::uint16_t threshold_;
  PhiloxKey key_;
  const std::int64_t* samples_ = nullptr;
  std::int64_t first_key_, first_query_;  // positions in the row
};

}  // namespace keel::cpu
