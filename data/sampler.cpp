#include "keel/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <mutex>
#include <numeric>

#include "keel/data/batch.h"
#include "keel/data/draws.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// Where the rows of endless epochs of `size` places lie.
class EpochPlaces {
 public:
  struct Place {
    std::int64_t epoch, at;  // at in [0, size)
  };

  EpochPlaces(std::int64_t size, std::int64_t rows, LastRows last) : size_(size), rows_(rows), last_(last) {
    KEEL_CHECK(rows >= 1, "a step has at least one row, not ", rows);
    KEEL_CHECK(size >= 1, "there are no examples to draw from");
    KEEL_CHECK(last != LastRows::drop || size >= rows, "a step of ", rows, " rows is more than the ", size,
               " examples of an epoch, whose incomplete steps are dropped");
    steps_ = last == LastRows::fewer ? (size - 1) / rows + 1 : size / rows;
    used_ = last == LastRows::drop ? steps_ * rows : size;
  }

  std::int64_t size() const { return size_; }
  std::int64_t full_rows() const { return rows_; }
  LastRows last() const { return last_; }
  double steps_per_epoch() const {
    return last_ == LastRows::join ? static_cast<double>(size_) / static_cast<double>(rows_)
                                   : static_cast<double>(steps_);
  }
  // Steps of an epoch that have all rows; of no meaning where steps join epochs.
  std::int64_t full_steps() const { return size_ / rows_; }
  std::int64_t steps() const { return steps_; }

  std::int64_t rows(std::int64_t step) const {
    KEEL_CHECK(step >= 0 && step < BatchSource::kEndless / rows_, "there is no step ", step);
    if (last_ == LastRows::join) return rows_;
    return std::min(rows_, used_ - step % steps_ * rows_);
  }
  std::int64_t first_sample(std::int64_t step) const {
    (void)rows(step);
    return last_ == LastRows::join ? step * rows_ : step / steps_ * used_ + step % steps_ * rows_;
  }
  Place place(std::int64_t step, std::int64_t row) const {
    KEEL_CHECK(0 <= row && row < rows(step), "row ", row, " is none of the ", rows(step), " rows of step ", step);
    const std::int64_t sample = first_sample(step) + row;
    return {sample / used_, sample % used_};
  }

 private:
  std::int64_t size_, rows_;
  LastRows last_;
  std::int64_t steps_ = 0;  // of an epoch, unless steps join epochs
  std::int64_t used_ = 0;   // examples of an epoch
};

class EpochSampler : public Sampler {
 public:
  explicit EpochSampler(const EpochPlaces& places) : places_(places) {}
  std::int64_t steps() const override { return BatchSource::kEndless; }
  double steps_per_epoch() const override { return places_.steps_per_epoch(); }
  std::int64_t rows(std::int64_t step) const override { return places_.rows(step); }
  std::int64_t first_sample(std::int64_t step) const override { return places_.first_sample(step); }
  std::int64_t epoch(std::int64_t step, std::int64_t row) const override { return places_.place(step, row).epoch; }

 protected:
  EpochPlaces places_;
};

class SequentialSampler : public Sampler {
 public:
  SequentialSampler(std::int64_t size, std::int64_t rows) : size_(size), rows_(rows) {
    KEEL_CHECK(rows >= 1, "a step has at least one row, not ", rows);
    KEEL_CHECK(size >= 0, "a data set cannot have ", size, " examples");
  }
  std::int64_t steps() const override { return (size_ + rows_ - 1) / rows_; }
  double steps_per_epoch() const override { return static_cast<double>(steps()); }
  std::int64_t rows(std::int64_t step) const override { return std::min(rows_, size_ - first_sample(step)); }
  std::int64_t first_sample(std::int64_t step) const override {
    KEEL_CHECK(step >= 0 && step < steps(), "step ", step, " is outside the ", steps(), " steps");
    return step * rows_;
  }
  std::int64_t example(std::int64_t step, std::int64_t row) const override {
    KEEL_CHECK(0 <= row && row < rows(step), "row ", row, " is none of the ", rows(step), " rows of step ", step);
    return first_sample(step) + row;
  }
  std::int64_t epoch(std::int64_t step, std::int64_t row) const override {
    (void)example(step, row);
    return 0;
  }

 private:
  std::int64_t size_, rows_;
};

class StretchSampler final : public SequentialSampler {
 public:
  StretchSampler(std::int64_t size, std::int64_t rows, std::int64_t world)
      : SequentialSampler(size, rows), size_(size), world_(world) {
    KEEL_CHECK(world >= 1 && rows % world == 0, "a step of ", rows, " rows does not give ", world,
               " ranks as many each");
  }
  std::int64_t example(std::int64_t step, std::int64_t row) const override {
    const std::int64_t first = SequentialSampler::example(step, row) - row, rows = this->rows(step);
    // The rank whose part of the step the row is in. Each has read as many examples in every step before, of which the
    // last alone may be uneven.
    const std::int64_t shorter = rows / world_, longer = rows % world_;
    const std::int64_t rank =
        row < longer * (shorter + 1) ? row / (shorter + 1) : longer + (row - longer * (shorter + 1)) / shorter;
    return begin_of(size_, rank) + first / world_ + row - begin_of(rows, rank);
  }

 private:
  // Where a rank's part of `count` things begins; the first ranks have one more where they do not come out even.
  std::int64_t begin_of(std::int64_t count, std::int64_t rank) const {
    return rank * (count / world_) + std::min(rank, count % world_);
  }

  std::int64_t size_, world_;
};

class ShuffledSampler final : public EpochSampler {
 public:
  ShuffledSampler(const EpochPlaces& places, std::uint64_t seed) : EpochSampler(places), seed_(seed) {}
  std::int64_t example(std::int64_t step, std::int64_t row) const override {
    const auto [epoch, at] = places_.place(step, row);
    return epoch_element(epoch * places_.size() + at, places_.size(), seed_);
  }

 private:
  std::uint64_t seed_;
};

class WeightedSampler final : public EpochSampler {
 public:
  WeightedSampler(const EpochPlaces& places, const std::vector<double>& weights, std::uint64_t seed)
      : EpochSampler(places), key_(key_of(seed, "weighted")), sums_(weights.size()) {
    double sum = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      KEEL_CHECK(std::isfinite(weights[i]) && weights[i] >= 0, "the weight of example ", i, " is ", weights[i],
                 "; it must be finite and not negative");
      sums_[i] = sum += weights[i];
    }
    KEEL_CHECK(sum > 0 && std::isfinite(sum), "the sum of all weights is ", sum, "; it must be finite and above 0");
    heaviest_ = std::ranges::max_element(weights) - weights.begin();
  }
  std::int64_t example(std::int64_t step, std::int64_t row) const override {
    (void)places_.place(step, row);
    const std::int64_t sample = places_.first_sample(step) + row;
    const PhiloxWords words =
        philox({static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32), 0, 0}, key_);
    const double uniform = static_cast<double>((std::uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
    // The first sum above it belongs to an example of a weight above 0. Rounding may reach the last sum.
    const auto found = std::ranges::upper_bound(sums_, uniform * sums_.back());
    return found == sums_.end() ? heaviest_ : found - sums_.begin();
  }

 private:
  PhiloxKey key_;
  std::vector<double> sums_;
  std::int64_t heaviest_ = 0;
};

class GroupedSampler final : public EpochSampler {
 public:
  GroupedSampler(const EpochPlaces& places, const DatasetPtr& data, std::int64_t window, std::uint64_t seed)
      : EpochSampler(places), window_(window), seed_(seed), lengths_(static_cast<std::size_t>(places.size())) {
    KEEL_CHECK(window >= 1, "a window has at least one step, not ", window);
    for (std::int64_t i = 0; i < places.size(); ++i) lengths_[static_cast<std::size_t>(i)] = data->length(i);
    KEEL_CHECK(std::ranges::any_of(lengths_, [](std::int64_t length) { return length != 0; }),
               "this data set does not know the lengths of its examples, so they cannot be grouped by length");
  }
  std::int64_t example(std::int64_t step, std::int64_t row) const override { return sample_at(step, row).example; }
  std::int64_t epoch(std::int64_t step, std::int64_t row) const override { return sample_at(step, row).epoch; }

 private:
  struct Sample {
    std::int64_t example, epoch;
  };
  using Window = std::shared_ptr<const std::vector<Sample>>;
  static constexpr std::size_t kKept = 4;

  Sample in_order(std::int64_t step, std::int64_t row) const {
    const auto [epoch, at] = places_.place(step, row);
    return {epoch_element(epoch * places_.size() + at, places_.size(), seed_), epoch};
  }

  Sample sample_at(std::int64_t step, std::int64_t row) const {
    (void)places_.place(step, row);
    // Windows are counted in each epoch, unless steps join epochs.
    const bool joined = places_.last() == LastRows::join;
    const std::int64_t begin = joined ? 0 : step / places_.steps() * places_.steps();
    const std::int64_t full = joined ? BatchSource::kEndless : begin + places_.full_steps();
    if (step >= full) return in_order(step, row);
    const std::int64_t first = begin + (step - begin) / window_ * window_;
    const std::int64_t steps = std::min(window_, full - first);
    const RandomOrder order(static_cast<std::uint64_t>(steps), seed_ ^ fnv1a64("windows"),
                            static_cast<std::uint64_t>(first));
    const auto drawn = static_cast<std::int64_t>(order[static_cast<std::uint64_t>(step - first)]);
    return (*sorted(first, steps))[static_cast<std::size_t>(drawn * places_.full_rows() + row)];
  }

  // The samples of these steps by length, those of one length in the epoch's order. The last few are kept, as a step
  // asks for its window once a row.
  Window sorted(std::int64_t first, std::int64_t steps) const {
    const std::lock_guard lock(mutex_);
    for (auto each = kept_.begin(); each != kept_.end(); ++each) {
      if (each->first != first) continue;
      kept_.splice(kept_.begin(), kept_, each);
      return each->second;
    }
    auto window = std::make_shared<std::vector<Sample>>();
    window->reserve(static_cast<std::size_t>(steps * places_.full_rows()));
    for (std::int64_t step = first; step < first + steps; ++step)
      for (std::int64_t row = 0; row < places_.full_rows(); ++row) window->push_back(in_order(step, row));
    std::ranges::stable_sort(*window, {},
                             [&](const Sample& s) { return lengths_[static_cast<std::size_t>(s.example)]; });
    kept_.emplace_front(first, std::move(window));
    if (kept_.size() > kKept) kept_.pop_back();
    return kept_.front().second;
  }

  std::int64_t window_;
  std::uint64_t seed_;
  std::vector<std::int64_t> lengths_;
  mutable std::mutex mutex_;
  mutable std::list<std::pair<std::int64_t, Window>> kept_;  // the last one asked for first
};

}  // namespace

SamplerPtr sequential(std::int64_t size, std::int64_t rows) { return std::make_shared<SequentialSampler>(size, rows); }

SamplerPtr in_stretches(std::int64_t size, std::int64_t rows, std::int64_t world) {
  return std::make_shared<StretchSampler>(size, rows, world);
}

SamplerPtr shuffled(std::int64_t size, const SamplerOptions& options) {
  return std::make_shared<ShuffledSampler>(EpochPlaces(size, options.rows, options.last), options.seed);
}

SamplerPtr weighted(const std::vector<double>& weights, const SamplerOptions& options) {
  return std::make_shared<WeightedSampler>(EpochPlaces(std::ssize(weights), options.rows, options.last), weights,
                                           options.seed);
}

SamplerPtr grouped_by_length(const DatasetPtr& data, std::int64_t window, const SamplerOptions& options) {
  KEEL_CHECK(data != nullptr, "there is no data set whose examples could be grouped");
  return std::make_shared<GroupedSampler>(EpochPlaces(data->size(), options.rows, options.last), data, window,
                                          options.seed);
}

}  // namespace keel
