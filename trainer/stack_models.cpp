#include "keel/trainer/stack_models.h"

#include <algorithm>
#include <map>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

std::string called(const StackModel& model) {
  return model.name.empty() ? "the model that is trained" : concat("model '", model.name, "'");
}

void check_no_common_parameter(const std::vector<StackModel>& models) {
  std::map<const Parameter::State*, std::string> seen;
  for (const StackModel& model : models) {
    std::map<const Parameter::State*, std::string> own;  // a model may have one at several places
    for_each_parameter(*model.module, [&](const std::string& path, Parameter& parameter) {
      own.emplace(parameter.state().get(), concat(path, " of ", called(model)));
    });
    for (const auto& [state, place] : own) {
      const auto [other, is_new] = seen.emplace(state, place);
      KEEL_CHECK(is_new, "the task's models have a parameter in common: ", other->second, " is ", place,
                 "; each model has parameters of its own");
    }
  }
}

}  // namespace

StackModels::StackModels(TaskBase& task) : all_(task.stacks()) {
  const auto first_frozen = std::ranges::find_if(all_, &StackModel::frozen);
  trained_ = static_cast<std::size_t>(first_frozen - all_.begin());
  KEEL_CHECK(trained_ > 0, "the task's first model is not one that is trained");
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const StackModel& model = all_[i];
    KEEL_CHECK(model.module != nullptr, called(model), " has no module");
    KEEL_CHECK(is_name(model.name) || (model.name.empty() && trained_ == 1 && i == 0), "'", model.name,
               "' is no name of a task's model: letters, digits and _ are possible");
    KEEL_CHECK(model.frozen == (i >= trained_), called(model),
               " is trained, but comes after a frozen one; those that are trained come first");
    KEEL_CHECK(!model.frozen || !model.weights.empty(), called(model),
               " is frozen, and names no weights: a safetensors file, a checkpoint or a run's folder");
    for (std::size_t other = 0; other < i; ++other)
      KEEL_CHECK(all_[other].name != model.name, "the task has two models of the name '", model.name, "'");
  }
  check_no_common_parameter(all_);
}

}  // namespace keel
