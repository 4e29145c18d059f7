#pragma once
// Heads of a model: what it says of an example, by name, each with a loss and metrics of its own.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keel/config/settings.h"
#include "keel/tasks/loss.h"

namespace keel {

enum class HeadType : unsigned char { regression, classification };

// An entry of the list of losses; keys, checks and dispatch come from it.
struct HeadLoss {
  std::string_view name;
  HeadType type;
  std::string_view summary;
  // Adds a term of this name and weight. `outputs`: f32 (rows, width); `targets`: of regression f32 of the same shape,
  // of classification i32 (rows).
  void (*add)(Loss& loss, const std::string& term, const Variable& outputs, const Tensor& targets, double weight,
              double smoothing);
};
const std::vector<HeadLoss>& head_losses();
// The one that a type has where none is named.
const HeadLoss& standard_loss(HeadType type);

// A term on a head's outputs alone.
struct Regularizer {
  std::string_view name, summary;
  Variable (*of)(const Variable& outputs);  // (rows, width), f32: a mean over rows
};
const std::vector<Regularizer>& regularizers();

// What a configuration says of a head.
struct SupervisedHead {
  std::string name;
  HeadType type = HeadType::regression;
  std::vector<std::string> columns;  // of the data, at least one
  const HeadLoss* loss = nullptr;
  double weight = 1, smoothing = 0;
  bool is_scaled = false;    // regression: the model learns (target - mean) / deviation
  std::int64_t classes = 0;  // 0: those that the data has
  std::vector<std::string> metrics;

  bool has_classes() const { return type == HeadType::classification; }
};

// An entry of model.heads.
SupervisedHead head_options(const Settings& head);

struct ChosenRegularizer {
  std::string head;
  const Regularizer* regularizer;
  double weight;
  std::string term() const { return concat(head, '_', regularizer->name); }
};
// An entry of task.regularizers.
ChosenRegularizer chosen_regularizer(const Settings& part);

}  // namespace keel
