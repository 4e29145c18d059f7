#include "keel/tasks/metrics/catalog.h"

#include <algorithm>
#include <charconv>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/reduce.h"
#include "keel/kernels/softmax.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/tasks/metrics/classes.h"
#include "keel/tasks/metrics/numbers.h"
#include "keel/tasks/metrics/ranking.h"

namespace keel {
namespace {

template <class M>
void feed_guesses(Metrics& metrics, const std::string& name, const Outcome& outcome) {
  metrics.at<M>(name).update(kernels::argmax(outcome.outputs, -1), outcome.targets);
}

template <class M>
constexpr MetricEntry of_guesses(std::string_view name, std::string_view summary) {
  return {name, summary, MetricInput::classes,
          [](Metrics& metrics, const std::string& own, std::int64_t, std::int64_t) { metrics.make<M>(own); },
          feed_guesses<M>};
}

template <ClassQuotient quotient, ClassAverage average>
constexpr MetricEntry class_score(std::string_view name, std::string_view summary) {
  return {name, summary, MetricInput::classes,
          [](Metrics& metrics, const std::string& own, std::int64_t width, std::int64_t) {
            metrics.make<ClassScore>(own, quotient, average, width);
          },
          feed_guesses<ClassScore>};
}

template <class M, auto... args>
constexpr MetricEntry of_errors(std::string_view name, std::string_view summary) {
  return {name, summary, MetricInput::numbers,
          [](Metrics& metrics, const std::string& own, std::int64_t width, std::int64_t) {
            metrics.make<M>(own, width, args...);
          },
          [](Metrics& metrics, const std::string& own, const Outcome& outcome) {
            metrics.at<M>(own).update(outcome.outputs, outcome.targets);
          }};
}

template <class M>
constexpr MetricEntry of_lists(std::string_view name, std::string_view summary) {
  return {name, summary, MetricInput::lists,
          [](Metrics& metrics, const std::string& own, std::int64_t, std::int64_t k) {
            metrics.make<M>(own, RankingOptions{.k = k});
          },
          [](Metrics& metrics, const std::string& own, const Outcome& outcome) {
            metrics.at<M>(own).update(outcome.outputs, outcome.targets, outcome.groups, outcome.examples);
          }};
}

void make_confusion(Metrics& metrics, const std::string& name, std::int64_t width, std::int64_t) {
  metrics.make<ConfusionCounts>(name, width);
}

void make_auroc(Metrics& metrics, const std::string& name, std::int64_t width, std::int64_t) {
  metrics.make<Auroc>(name, width);
}

void feed_auroc(Metrics& metrics, const std::string& name, const Outcome& outcome) {
  const Tensor probabilities = kernels::softmax(kernels::cast(outcome.outputs, DType::f32));
  metrics.at<Auroc>(name).update(probabilities, outcome.targets, outcome.examples);
}

using Quotient = ClassQuotient;
using Average = ClassAverage;

constexpr MetricEntry kMetrics[] = {
    of_guesses<Accuracy>("accuracy", "fraction of targets that are guessed"),
    of_guesses<ExactMatch>("exact_match", "fraction of rows whose every target is guessed"),
    class_score<Quotient::precision, Average::binary>("precision",
                                                      "right guesses of class 1 by its guesses; of two classes"),
    class_score<Quotient::precision, Average::macro>("precision_macro", "mean of the classes' precisions"),
    class_score<Quotient::precision, Average::micro>("precision_micro", "precision by the counts of all classes"),
    class_score<Quotient::precision, Average::weighted>("precision_weighted", "mean of the precisions by targets"),
    class_score<Quotient::precision, Average::per_class>("precision_per_class", "of each class, by its number"),
    class_score<Quotient::recall, Average::binary>("recall", "right guesses of class 1 by its targets; of two classes"),
    class_score<Quotient::recall, Average::macro>("recall_macro", "mean of the classes' recalls"),
    class_score<Quotient::recall, Average::micro>("recall_micro", "recall by the counts of all classes"),
    class_score<Quotient::recall, Average::weighted>("recall_weighted", "mean of the recalls by targets"),
    class_score<Quotient::recall, Average::per_class>("recall_per_class", "of each class, by its number"),
    class_score<Quotient::f1, Average::binary>("f1", "2 right / (guesses + targets) of class 1; of two classes"),
    class_score<Quotient::f1, Average::macro>("f1_macro", "mean of the classes' F1"),
    class_score<Quotient::f1, Average::micro>("f1_micro", "F1 by the counts of all classes"),
    class_score<Quotient::f1, Average::weighted>("f1_weighted", "mean of the F1 by targets"),
    class_score<Quotient::f1, Average::per_class>("f1_per_class", "of each class, by its number"),
    {"confusion", "how often class t was wanted and class g guessed, as confusion_t_g", MetricInput::classes,
     make_confusion, feed_guesses<ConfusionCounts>},
    {"auroc", "area under the ROC curve: of class 1 of two, else the mean of one against the rest",
     MetricInput::classes, make_auroc, feed_auroc},
    {"perplexity", "exp of the mean of -log softmax(scores) of the targets", MetricInput::classes,
     [](Metrics& metrics, const std::string& own, std::int64_t, std::int64_t) { metrics.make<Perplexity>(own); },
     [](Metrics& metrics, const std::string& own, const Outcome& outcome) {
       metrics.at<Perplexity>(own).update(outcome.outputs, outcome.targets);
     }},
    of_errors<MeanAbsoluteError>("mae", "mean absolute error"),
    of_errors<MeanSquaredError>("mse", "mean squared error"),
    of_errors<MeanSquaredError, true>("rmse", "root of the mean squared error of each output, mean over outputs"),
    of_errors<R2>("r2", "the part of the targets' variance that is explained, mean over outputs"),
    of_lists<MeanAveragePrecision>("map", "mean average precision"),
    of_lists<MeanAveragePrecision>("map_K", "the same of the first K of each list"),
    of_lists<MeanReciprocalRank>("mrr", "mean reciprocal rank of the first relevant example"),
    of_lists<MeanReciprocalRank>("mrr_K", "the same among the first K of each list"),
    of_lists<Ndcg>("ndcg", "normalised discounted cumulative gain"),
    of_lists<Ndcg>("ndcg_K", "the same of the first K of each list"),
    of_lists<HitRate>("hit_rate_K", "fraction of lists with a relevant example among the first K"),
    of_lists<PrecisionAt>("precision_at_K", "relevant examples among the first K by K, mean over lists"),
};

constexpr std::string_view kFamily = "_K";

// 0: the text is no K.
std::int64_t number_of(std::string_view text) {
  std::int64_t k = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), k);
  const bool is_plain = error == std::errc{} && end == text.data() + text.size() && !text.empty() && text[0] != '0';
  return is_plain && k > 0 ? k : 0;
}

}  // namespace

std::span<const MetricEntry> metric_catalog() { return kMetrics; }

const MetricEntry* MetricList::find(std::string_view name, MetricInput input, std::int64_t& k) {
  k = 0;
  for (const MetricEntry& entry : kMetrics) {
    if (entry.input != input) continue;
    if (!entry.name.ends_with(kFamily)) {
      if (entry.name == name) return &entry;
      continue;
    }
    const std::string_view stem = entry.name.substr(0, entry.name.size() - kFamily.size() + 1);
    if (name.starts_with(stem) && (k = number_of(name.substr(stem.size()))) > 0) return &entry;
  }
  return nullptr;
}

std::string MetricList::complaint(const std::vector<std::string>& names, MetricInput input, std::int64_t width) {
  std::vector<std::string_view> offered;
  std::string all;
  for (const MetricEntry& entry : kMetrics) {
    if (entry.input != input) continue;
    offered.push_back(entry.name);
    all += concat(all.empty() ? "" : ", ", entry.name);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    std::int64_t k = 0;
    if (std::find(names.begin(), names.begin() + std::ptrdiff_t(i), name) != names.begin() + std::ptrdiff_t(i))
      return concat("metric '", printable(name, 64), "' is named twice");
    const MetricEntry* entry = find(name, input, k);
    if (entry == nullptr) {
      const std::string close = nearest(name, offered);
      return concat("there is no metric '", printable(name, 64), "' for this task",
                    close.empty() ? "; there are " : concat("; did you mean '", close, "'? There are "), all);
    }
    try {
      Metrics trial;
      entry->make(trial, name, width, k);
    } catch (const Error& error) { return concat("metric '", name, "': ", error.what()); }
  }
  return "";
}

MetricList::MetricList(const std::vector<std::string>& names, MetricInput input, std::int64_t width,
                       const std::string& prefix)
    : width_(width) {
  if (const std::string wrong = complaint(names, input, width); !wrong.empty()) throw Error(wrong);
  for (const std::string& name : names) {
    Named named{prefix + name, nullptr, 0};
    named.entry = find(name, input, named.k);
    metrics_.push_back(std::move(named));
  }
}

void MetricList::make(Metrics& metrics) const {
  for (const Named& each : metrics_) each.entry->make(metrics, each.name, width_, each.k);
}

void MetricList::feed(Metrics& metrics, const Outcome& outcome) const {
  for (const Named& each : metrics_) each.entry->feed(metrics, each.name, outcome);
}

}  // namespace keel
