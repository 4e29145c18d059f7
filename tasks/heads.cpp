#include "keel/tasks/heads.h"

#include <algorithm>

#include "keel/autograd/elementwise.h"
#include "keel/autograd/reduce.h"
#include "keel/autograd/shape.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

Variable difference(const Variable& outputs, const Tensor& targets) { return sub(outputs, Variable(targets)); }

void add_cross_entropy(Loss& loss, const std::string& term, const Variable& outputs, const Tensor& targets,
                       double weight, double smoothing) {
  loss.add(term, cross_entropy(outputs, targets, {.label_smoothing = smoothing}), std::string(kRowWeight), weight);
}

template <Variable (*error)(const Variable& difference)>
void add_mean_error(Loss& loss, const std::string& term, const Variable& outputs, const Tensor& targets, double weight,
                    double /*smoothing*/) {
  loss.add(term, mean(error(difference(outputs, targets))), std::string(kRowWeight), weight);
}

// d^2 / 2 below 1, |d| - 1/2 beyond (Huber 1964): with r = relu(|d| - 1) that is (|d| - r)^2 / 2 + r.
Variable huber(const Variable& d) {
  const Variable size = abs(d), beyond = relu(shift(size, -1));
  return add(scale(square(sub(size, beyond)), 0.5), beyond);
}

Variable total_variation(const Variable& outputs) {
  const std::int64_t width = outputs.dim(-1);
  if (width < 2) return scale(mean(outputs), 0);
  return mean(abs(sub(slice(outputs, 1, 1, width), slice(outputs, 1, 0, width - 1))));
}

template <class Entry>
const Entry& entry_of(const std::vector<Entry>& entries, std::string_view name) {
  const auto found = std::ranges::find(entries, name, &Entry::name);
  KEEL_CHECK(found != entries.end(), "there is no '", name, "' among the heads' losses and regularizers");
  return *found;
}

}  // namespace

const std::vector<HeadLoss>& head_losses() {
  static const std::vector<HeadLoss> losses = {
      {"mse", HeadType::regression, "squared differences", add_mean_error<square>},
      {"mae", HeadType::regression, "absolute differences", add_mean_error<abs>},
      {"huber", HeadType::regression, "squared differences, halved, and beyond 1 absolute ones", add_mean_error<huber>},
      {"cross_entropy", HeadType::classification, "the negative logarithm of the right class's probability",
       add_cross_entropy}};
  return losses;
}

const HeadLoss& standard_loss(HeadType type) { return *std::ranges::find(head_losses(), type, &HeadLoss::type); }

const std::vector<Regularizer>& regularizers() {
  static const std::vector<Regularizer> all = {
      {"square", "squares of the outputs", [](const Variable& outputs) { return mean(square(outputs)); }},
      {"absolute", "absolute outputs", [](const Variable& outputs) { return mean(abs(outputs)); }},
      {"total_variation", "absolute differences of neighbouring outputs", total_variation}};
  return all;
}

SupervisedHead head_options(const Settings& head) {
  SupervisedHead options = {
      .name = head.text("name"),
      .type = head.text("type") == "classification" ? HeadType::classification : HeadType::regression,
      .columns = head.texts("columns"),
      .weight = head.number("weight"),
      .smoothing = head.number("label_smoothing"),
      .is_scaled = head.text("scale") == "standard",
      .classes = head.integer("classes"),
      .metrics = head.texts("metrics")};
  const std::string& loss = head.text("loss");
  options.loss = loss == "auto" ? &standard_loss(options.type) : &entry_of(head_losses(), loss);
  if (options.columns.empty()) options.columns = {options.name};
  if (options.metrics.empty())
    options.metrics =
        options.has_classes() ? std::vector<std::string>{"accuracy"} : std::vector<std::string>{"r2", "mae"};
  return options;
}

ChosenRegularizer chosen_regularizer(const Settings& part) {
  return {part.text("head"), &entry_of(regularizers(), part.text("type")), part.number("weight")};
}

}  // namespace keel
