#pragma once
// The metrics that a configuration can name, `task.metrics: [accuracy, f1_macro]`.
//
//   const MetricList metrics_{settings.texts("task.metrics"), MetricInput::classes, kClasses};
//   void make_metrics(std::string_view, Metrics& metrics) override { metrics_.make(metrics); }
//   ... metrics_.feed(metrics, {.outputs = logits, .targets = batch["label"], .examples = batch.examples()});

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tasks/metric.h"

namespace keel {

// What a metric is fed with, as outputs and targets of Outcome.
enum class MetricInput : unsigned char {
  classes,  // scores before softmax, (rows, ..., classes), and classes, whole (rows, ...), of which -100 does not count
  numbers,  // predictions and what is right, floating (rows, ...)
  lists,    // scores and relevances, floating (rows), and groups, whole (rows): RankingMetric
};

// What a model says of a batch, and what is right.
struct Outcome {
  Tensor outputs, targets;
  Tensor groups = {};                           // of lists
  std::span<const std::int64_t> examples = {};  // batch.examples(); for metrics that need all examples at once
};

// An entry of the catalog. Documentation, checks and dispatch come from it.
struct MetricEntry {
  std::string_view name;  // of a family "ndcg_K", where K is a whole number from 1
  std::string_view summary;
  MetricInput input;
  // `width`: classes, or numbers of a row.
  void (*make)(Metrics& metrics, const std::string& name, std::int64_t width, std::int64_t k);
  void (*feed)(Metrics& metrics, const std::string& name, const Outcome& outcome);
};
// In the order of documentation.
std::span<const MetricEntry> metric_catalog();

// Metrics by name.
class MetricList {
 public:
  // An Error of complaint(). Results are named by `prefix` and the metric's name, as "digit_accuracy".
  MetricList(const std::vector<std::string>& names, MetricInput input, std::int64_t width,
             const std::string& prefix = {});
  // What is wrong with the names: one that is unknown (with the nearest and all that there are), twice, or not for so
  // many classes; empty: nothing.
  static std::string complaint(const std::vector<std::string>& names, MetricInput input, std::int64_t width);

  void make(Metrics& metrics) const;
  // An Error where the shapes do not fit together.
  void feed(Metrics& metrics, const Outcome& outcome) const;

 private:
  struct Named {
    std::string name;  // with the prefix
    const MetricEntry* entry;
    std::int64_t k;
  };
  static const MetricEntry* find(std::string_view name, MetricInput input, std::int64_t& k);

  std::vector<Named> metrics_;
  std::int64_t width_;
};

}  // namespace keel
