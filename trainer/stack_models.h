#pragma once
// The models that a run has stacks of.

#include <span>
#include <vector>

#include "keel/tasks/task.h"

namespace keel {

// All models of a task, or a model alone that is trained: functions that take it are called with either.
class StackModels {
 public:
  StackModels(Module& model) : all_{{.module = &model}} {}
  // An Error that names what is wrong with them: no model that is trained, one of them after one that is not, two of a
  // name, a frozen one without weights, or a parameter that two have in common.
  StackModels(TaskBase& task);

  const std::vector<StackModel>& all() const { return all_; }
  std::span<const StackModel> trained() const { return {all_.data(), trained_}; }
  std::span<const StackModel> frozen() const { return std::span(all_).subspan(trained_); }
  // The first that is trained.
  Module& main() const { return *all_.front().module; }

 private:
  std::vector<StackModel> all_;
  std::size_t trained_ = 1;
};

}  // namespace keel
