#include "keel/tasks/task.h"

#include <algorithm>

#include "keel/autograd/elementwise.h"
#include "keel/data/sampler.h"
#include "keel/data/split.h"
#include "keel/runtime/error.h"

namespace keel {

DividedExamples held_back(const DatasetPtr& examples, double fraction, std::uint64_t seed) {
  if (fraction <= 0) return {.trained = examples, .validation = {}};
  const std::vector<DatasetPtr> parts = split(examples, {1 - fraction, fraction}, seed);
  DividedExamples divided = {.trained = parts[0], .validation = {}};
  if (parts[1]->size() > 0) divided.validation.push_back({"", parts[1]});
  return divided;
}

Data make_data(const TaskSite& site, const DividedExamples& examples, const Collator& collator,
               const MakeDataOptions& options) {
  Data data;
  for (const auto& [name, set, path] : examples.validation) {
    KEEL_CHECK(set->size() > 0, "the validation set '", name, "' has no examples");
    data.validation.push_back({name,
                               make_source(site.host, set, sequential(set->size(), site.validation_rows), collator,
                                           {.varying = options.varying}),
                               path});
  }
  const SamplerOptions sampling = {.rows = site.rows, .seed = site.data_seed, .last = options.last};
  const SamplerPtr sampler = options.length_window > 0
                                 ? grouped_by_length(examples.trained, options.length_window, sampling)
                                 : shuffled(examples.trained->size(), sampling);
  data.training = make_source(site.host, examples.trained, sampler, options.training ? options.training : collator,
                              {.seed = site.data_seed, .varying = options.varying});
  return data;
}

Data make_data(const TaskSite& site, const DatasetPtr& examples, double held_out, const Collator& collator,
               const std::vector<std::string>& varying) {
  return make_data(site, held_back(examples, held_out, site.data_seed), collator, {.varying = varying});
}

std::shared_ptr<const BatchSource> in_order(const TaskSite& site, const DatasetPtr& examples, const Collator& collator,
                                            const std::vector<std::string>& varying) {
  KEEL_CHECK(examples->size() > 0, "there is no example to predict");
  return make_source(site.host, examples, sequential(examples->size(), site.validation_rows), collator,
                     {.varying = varying});
}

Variable input(const Batch& batch, std::string_view field, const Forward& pass) {
  const Tensor& values = batch[field];
  return is_floating(values.dtype()) ? cast(Variable(values), pass.dtype) : Variable(values);
}

void feed(Metrics& metrics, const Loss& loss, const Batch& batch) {
  KEEL_CHECK(!loss.terms().empty(), "a loss without a term says nothing");
  std::vector<std::string> weights;  // of the terms, each once
  std::vector<double> sums;          // of factor * mean over terms of that weight
  for (const LossTerm& term : loss.terms()) {
    const double weight = batch.weight(term.weight);
    double mean = term.value.value().item();
    if (term.is_sum && weight > 0) mean /= weight;
    const auto place = std::ranges::find(weights, term.weight);
    if (place == weights.end()) {
      weights.push_back(term.weight);
      sums.push_back(term.factor * mean);
    } else {
      sums[static_cast<std::size_t>(place - weights.begin())] += term.factor * mean;
    }
    if (term.name.empty()) continue;
    if (!metrics.has(term.name)) metrics.make<MeanMetric>(term.name);
    metrics.at<MeanMetric>(term.name).update(mean, weight);
  }
  for (std::size_t i = 0; i < weights.size(); ++i)
    metrics.at<MeanMetric>("loss").update(sums[i], batch.weight(weights[i]), i);
}

std::vector<StackModel> Task::stacks() {
  Module& trained = model();
  const Beginning begins = beginning();
  std::vector<StackModel> all = {
      {.module = &trained, .weights = begins.weights, .hub = begins.hub, .adapters = begins.adapters}};
  if (const Teacher frozen = teacher(); frozen.module != nullptr)
    all.push_back(
        {.name = "teacher", .module = frozen.module, .frozen = true, .weights = frozen.weights, .hub = frozen.hub});
  return all;
}

void Task::validation_step(const Batch& batch, Forward& pass, Metrics& metrics) {
  feed(metrics, training_step(batch, pass), batch);
}

std::shared_ptr<const BatchSource> TaskBase::prediction_data(const std::string& /*path*/) {
  throw Error("this task does not predict: it has no prediction_data()", ErrorKind::unsupported);
}

void TaskBase::predict_step(const Batch& /*batch*/, Forward& /*pass*/, Predictions& /*out*/) {
  throw Error("this task does not predict: it has no predict_step()", ErrorKind::unsupported);
}

HubFiles TaskBase::hub_files(DType /*dtype*/) {
  return {.why_not = "models of this task have no form of Hugging Face's"};
}

void TaskBase::answer(std::string_view /*prompt*/, const AnswerOptions& /*options*/, Forward& /*pass*/,
                      const std::function<void(std::string_view)>& /*on_text*/) {
  throw Error("this task does not continue texts", ErrorKind::unsupported);
}

void TaskBase::answer_all(std::span<const std::string> prompts, const AnswerOptions& options, Forward& pass,
                          const std::function<void(std::size_t, std::string_view)>& on_text) {
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    AnswerOptions own = options;
    own.first_row += i;
    answer(prompts[i], own, pass, [&](std::string_view text) { on_text(i, text); });
  }
}

}  // namespace keel
