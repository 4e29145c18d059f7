#pragma once
// Metrics: numbers over a whole validation set that come out the same at any number of ranks.
//
// A metric is fed batch by batch. Whole batches are shared out among ranks, never parts of them; what each batch adds
// to the state travels to the first rank, which joins it in the order of batches, as one process alone would. So
// results are equal to the bit at any number of ranks, whatever is summed. The first rank computes the result and tells
// it: all decide alike. There are two kinds of state and no third, as a state that can be neither added nor listed has
// no meaning on several ranks: derive from SumMetric or ListMetric. keel's own are here and in keel/tasks/metrics/.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/tensor.h"

namespace keel {

struct NamedNumber {
  std::string name;  // what stands behind the metric's own: "", or "2" of a class
  double value = 0;
};

class Metrics;

class Metric {
 public:
  virtual ~Metric() = default;
  // Of everything joined so far. A number that is not defined (no row at all) is NaN, and logged as null.
  virtual std::vector<NamedNumber> result() const = 0;
  // Whether more is better, for early stopping and best models.
  virtual bool is_better_greater() const { return true; }

 protected:
  Metric() = default;

 private:
  friend class SumMetric;
  friend class ListMetric;
  friend std::string take_added(Metrics& metrics);
  friend void join_added(Metrics& metrics, std::string_view added);
  virtual std::string take() = 0;                 // what was added since the last call, as bytes
  virtual void join(std::string_view added) = 0;  // bytes of take() of this or another rank
};

// Sums: counts are exact up to 2^53; the sum of each batch is rounded by itself, and sums of batches are added in fp64.
class SumMetric : public Metric {
 protected:
  explicit SumMetric(std::size_t count) : batch_(count), joined_(count) {}
  // For update(): what this batch adds. There are as many sums as were added to.
  void add(std::size_t sum, double value) {
    if (sum >= batch_.size()) batch_.resize(sum + 1);
    batch_[sum] += value;
  }
  // For result().
  std::size_t sums() const { return joined_.size(); }
  double sum(std::size_t i) const { return joined_[i]; }

 private:
  std::string take() final;
  void join(std::string_view added) final;
  std::vector<double> batch_, joined_;
};

// Values of each example, for what needs all of them (AUROC, nDCG). The first rank keeps them: 8 bytes a value and 8 an
// example.
class ListMetric : public Metric {
 protected:
  explicit ListMetric(std::size_t values) : width_(values) {}
  // `example`: batch.examples(). One that has come already is an Error: no example counts twice.
  void add(std::int64_t example, std::span<const double> values);
  // For result(): the values of each example, in the order of examples.
  std::vector<std::span<const double>> in_order() const;

 private:
  std::string take() final;
  void join(std::string_view added) final;
  std::size_t width_;
  std::vector<std::int64_t> taken_;             // examples of this batch
  std::map<std::int64_t, std::size_t> places_;  // of all examples joined so far
  std::vector<double> batch_, joined_;
};

// A mean: sum of weight * value by sum of weight.
class MeanMetric : public SumMetric {
 public:
  MeanMetric() : SumMetric(2) {}
  // A mean over nothing (weight 0) adds nothing, whatever it is. `part`: the result is the sum of several means, each
  // over a weight of its own, as a loss of such terms is. A part without weight adds nothing.
  void update(double mean, double weight, std::size_t part = 0);
  double weight(std::size_t part = 0) const { return sum(2 * part + 1); }
  std::vector<NamedNumber> result() const override;
  bool is_better_greater() const override { return false; }
};

// Fraction of targets that are guessed; targets of -100 do not count. Both: whole numbers of one shape, else an Error
// that names both shapes.
class Accuracy : public SumMetric {
 public:
  Accuracy() : SumMetric(2) {}
  void update(const Tensor& guesses, const Tensor& targets);
  std::vector<NamedNumber> result() const override;
};

// The metrics of one validation set, by name. All are made before the evaluation begins, and are the same on every
// rank.
class Metrics {
 public:
  // An Error for a name twice, or "loss" and the terms' names, which are there already.
  template <class M, class... Args>
  M& make(const std::string& name, Args&&... args) {
    auto metric = std::make_unique<M>(std::forward<Args>(args)...);
    M& made = *metric;
    insert(name, std::move(metric));
    return made;
  }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // A name that is not there, or of another type, is an Error that lists those that are.
  template <class M>
  M& at(std::string_view name) {
    auto* metric = dynamic_cast<M*>(find(name));
    if (metric == nullptr) refuse(name);
    return *metric;
  }
  const std::map<std::string, std::unique_ptr<Metric>, std::less<>>& all() const { return metrics_; }

 private:
  void insert(const std::string& name, std::unique_ptr<Metric> metric);
  Metric* find(std::string_view name) const;
  [[noreturn]] void refuse(std::string_view name) const;
  std::map<std::string, std::unique_ptr<Metric>, std::less<>> metrics_;
};

// For the evaluation: what a batch has added to all metrics, as bytes, which leave them; and how it joins their states.
// Both walk the metrics by name; ranks that have other ones are an Error.
std::string take_added(Metrics& metrics);
void join_added(Metrics& metrics, std::string_view added);

}  // namespace keel
