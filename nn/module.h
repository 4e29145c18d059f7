#pragma once
// Modules: plain structs of parameters and other modules that a visitor can walk.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/nn/parameter.h"
#include "keel/runtime/random.h"

namespace keel {

class Module;
class Buffer;     // keel/nn/buffer.h
class RankGroup;  // keel/nn/rank_group.h

// Walks a model: called once for every named member, in the order in which visit() lists them.
class Visitor {
 public:
  virtual ~Visitor() = default;
  virtual void operator()(std::string_view name, Parameter& parameter) = 0;
  virtual void operator()(std::string_view name, Module& module) = 0;
  virtual void operator()(std::string_view /*name*/, Buffer& /*buffer*/) {}
  template <class M>
  void operator()(std::string_view name, std::vector<M>& modules) {
    for (std::size_t i = 0; i < modules.size(); ++i) (*this)(concat(name, '.', i), modules[i]);
  }
  template <class M>
  void operator()(std::string_view name, std::vector<std::unique_ptr<M>>& modules) {
    for (std::size_t i = 0; i < modules.size(); ++i) (*this)(concat(name, '.', i), *modules[i]);
  }
};

// Told about the begin and end of a module's forward pass; a sharding engine attaches here.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  virtual void forward_begins(const Module& module) = 0;
  virtual void forward_ends(const Module& module) noexcept = 0;  // from a destructor
};

// Modules move, they do not copy; clone() of nn/state.h is the explicit copy.
class Module {
 public:
  virtual ~Module() = default;
  Module() = default;
  Module(Module&&) = default;
  Module& operator=(Module&&) = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Names every member: `v("weight", weight); v("mlp", mlp);`. An absent parameter may be named too.
  virtual void visit(Visitor& v) = 0;
  // Whether this module's parameters form a unit of their own for sharding and flat memory.
  virtual bool is_unit() const { return false; }
  // How often a forward pass of the module around it goes through this one, as through a layer whose weights several
  // layers of a model share. Such gradients are added up in the policy's gradient dtype, and plans count the uses.
  virtual std::int64_t uses() const { return 1; }

  void subscribe(std::shared_ptr<ForwardObserver> observer) { observers_.push_back(std::move(observer)); }
  void unsubscribe(const std::shared_ptr<ForwardObserver>& observer) { std::erase(observers_, observer); }

  // Marks the begin and end of a forward pass; the first line of a unit's operator().
  class Scope {
   public:
    explicit Scope(const Module& module) : module_(module) {
      for (const auto& observer : module_.observers_) observer->forward_begins(module_);
    }
    ~Scope() {
      for (const auto& observer : module_.observers_) observer->forward_ends(module_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const Module& module_;
  };

 private:
  std::vector<std::shared_ptr<ForwardObserver>> observers_;
};

// What a forward pass knows besides its input. The default is evaluation.
struct Forward {
  bool training = false;
  RandomStream random;       // of dropout masks
  Tensor sample_ids;         // i64 (batch): global ids of the samples; needed when training with dropout
  DType dtype = DType::f32;  // of weights and activations, to which inputs are cast
  // The ranks that compute such a pass at the same time, in evaluation and prediction; null: this one alone, or
  // training.
  RankGroup* group = nullptr;
  // Whether buffers take what they observe. The trainer says so for the first forward pass of each micro-batch of a
  // step that has rows; evaluation and diagnosis leave it.
  bool observes = false;

  // A pass that evaluates in the midst of this one, of a model that only answers (a teacher).
  Forward evaluating() const { return {.random = random, .sample_ids = sample_ids, .dtype = dtype, .group = group}; }
};

// Calls f(path, parameter) for every parameter present, in visiting order; tied ones at each place.
void for_each_parameter(Module& module, const std::function<void(const std::string& path, Parameter&)>& f);
// Calls f(path, buffer) for every buffer present, in visiting order.
void for_each_buffer(Module& module, const std::function<void(const std::string& path, Buffer&)>& f);
// Calls f(path, module) for the module ("") and all below it.
void for_each_module(Module& module, const std::function<void(const std::string& path, Module&)>& f);

// Elements of all parameters, tied ones counted once.
std::int64_t count_parameters(Module& module, bool trainable_only = false);

}  // namespace keel
