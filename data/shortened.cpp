#include "keel/data/shortened.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "keel/data/collator.h"
#include "keel/data/token_batch.h"

namespace keel {
namespace {

constexpr std::string_view kLengths = "lengths";

// The first `length` positions of each row, in memory of their own.
Tensor first_positions(const Tensor& values, std::int64_t length) {
  Dims shape = values.shape();
  const std::int64_t whole = shape[1];
  shape[1] = length;
  const Tensor cut = empty(values.context(), shape, values.dtype());
  const auto position = static_cast<std::size_t>(values.numel() / (shape[0] * whole)) * size_of(values.dtype());
  const std::byte* from = values.raw();
  std::byte* to = cut.raw();
  const std::size_t from_row = static_cast<std::size_t>(whole) * position,
                    to_row = static_cast<std::size_t>(length) * position;
  for (std::int64_t row = 0; row < shape[0]; ++row, from += from_row, to += to_row) std::memcpy(to, from, to_row);
  return cut;
}

template <class T>
std::int64_t counted(const Tensor& labels) {
  const std::vector<T> all = labels.to_vector<T>();
  return std::ssize(all) - std::ranges::count(all, T{kIgnoreTarget});
}

std::int64_t counted_labels(const Tensor& labels) {
  if (labels.dtype() == DType::i32) return counted<std::int32_t>(labels);
  return labels.dtype() == DType::i64 ? counted<std::int64_t>(labels) : labels.numel();
}

class Shortened final : public BatchSource {
 public:
  Shortened(std::shared_ptr<const BatchSource> source, std::int64_t whole, LengthOfStep length)
      : source_(std::move(source)), whole_(whole), length_(std::move(length)) {}
  std::int64_t steps() const override { return source_->steps(); }
  double steps_per_epoch() const override { return source_->steps_per_epoch(); }
  std::int64_t rows(std::int64_t step) const override { return source_->rows(step); }
  std::string fingerprint() const override { return source_->fingerprint(); }
  Batch load(std::int64_t step, Rows range) const override {
    const std::int64_t length = length_(step);
    KEEL_CHECK(length >= 1 && length <= whole_, "step ", step, " is to have ", length, " of ", whole_, " positions");
    Batch batch = source_->load(step, range);
    return length == whole_ ? batch : cut(batch, length);
  }

 private:
  bool has_sequences(const Tensor& values) const { return values.rank() >= 2 && values.dim(1) == whole_; }

  Batch cut(const Batch& whole, std::int64_t length) const {
    Batch batch(whole.sample_ids(), whole.examples());
    bool has_cut = false;
    for (const auto& [name, values] : whole.fields()) {
      has_cut |= has_sequences(values);
      if (name == kLengths) batch.set(name, shorter_lengths(values, length));
      else batch.set(name, has_sequences(values) ? first_positions(values, length) : values);
      if (whole.stays_on_host(name)) batch.keep_on_host(name);
    }
    if (!has_cut)
      throw Error(MessageLines{concat("a curriculum of lengths needs sequences of ", whole_,
                                      " positions, but a batch has\n", whole.signature())});
    for (const auto& [name, value] : whole.weights())
      if (name != kRowWeight) batch.set_weight(name, weight_of(name, batch, length, counts_labels(whole, value)));
    return batch;
  }

  static Tensor shorter_lengths(const Tensor& lengths, std::int64_t most) {
    std::vector<std::int64_t> each = lengths.to_vector<std::int64_t>();
    for (std::int64_t& length : each) length = std::min(length, most);
    return from_values(lengths.context(), each, lengths.shape());
  }

  // Whether the tokens of a batch with lengths are the labels of its sequences, as where some of them are to be
  // guessed.
  bool counts_labels(const Batch& whole, double tokens) const {
    return whole.has(kLabels) && has_sequences(whole[kLabels]) &&
           static_cast<double>(counted_labels(whole[kLabels])) == tokens;
  }

  static double weight_of(const std::string& name, const Batch& batch, std::int64_t length, bool by_labels) {
    if (name == kPositionWeight) return static_cast<double>(batch.rows() * length);
    if (name == kTokenWeight && batch.has(kLengths) && !by_labels) {
      double sum = 0;
      for (const std::int64_t each : batch[kLengths].to_vector<std::int64_t>()) sum += static_cast<double>(each);
      return sum;
    }
    KEEL_CHECK(name == kTokenWeight && batch.has(kLabels), "a curriculum of lengths cannot tell what the weight '",
               name, "' of shorter sequences is");
    return static_cast<double>(counted_labels(batch[kLabels]));
  }

  std::shared_ptr<const BatchSource> source_;
  std::int64_t whole_;
  LengthOfStep length_;
};

}  // namespace

std::shared_ptr<const BatchSource> shortened(std::shared_ptr<const BatchSource> source, std::int64_t whole,
                                             LengthOfStep length) {
  return std::make_shared<Shortened>(std::move(source), whole, std::move(length));
}

}  // namespace keel
