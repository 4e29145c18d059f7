#include "keel/nn/module.h"

#include <set>

#include "keel/nn/buffer.h"

namespace keel {
namespace {

std::string join(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : concat(path, '.', name);
}

class Walker : public Visitor {
 public:
  using Visitor::operator();
  std::function<void(const std::string&, Parameter&)> on_parameter;
  std::function<void(const std::string&, Module&)> on_module;
  std::function<void(const std::string&, Buffer&)> on_buffer;

  void operator()(std::string_view name, Parameter& parameter) override {
    if (on_parameter && parameter.defined()) on_parameter(join(path_, name), parameter);
  }
  void operator()(std::string_view name, Buffer& buffer) override {
    if (on_buffer && buffer.defined()) on_buffer(join(path_, name), buffer);
  }
  void operator()(std::string_view name, Module& module) override {
    const std::string outer = path_;
    path_ = join(path_, name);
    walk(module);
    path_ = outer;
  }
  void walk(Module& module) {
    if (on_module) on_module(path_, module);
    module.visit(*this);
  }

 private:
  std::string path_;
};

}  // namespace

void for_each_parameter(Module& module, const std::function<void(const std::string&, Parameter&)>& f) {
  Walker walker;
  walker.on_parameter = f;
  walker.walk(module);
}

void for_each_buffer(Module& module, const std::function<void(const std::string&, Buffer&)>& f) {
  Walker walker;
  walker.on_buffer = f;
  walker.walk(module);
}

void for_each_module(Module& module, const std::function<void(const std::string&, Module&)>& f) {
  Walker walker;
  walker.on_module = f;
  walker.walk(module);
}

std::int64_t count_parameters(Module& module, bool trainable_only) {
  std::set<const Parameter::State*> seen;
  std::int64_t count = 0;
  for_each_parameter(module, [&](const std::string&, Parameter& parameter) {
    if (trainable_only && !parameter.trainable()) return;
    if (seen.insert(parameter.state().get()).second) count += product(parameter.shape());
  });
  return count;
}

const Variable& Parameter::variable() const {
  static const Variable absent;
  if (!state_) return absent;
  KEEL_CHECK(state_->variable.defined(), "a parameter of shape ", state_->shape,
             " has no memory yet; call materialize(model, context) first");
  return state_->variable;
}

}  // namespace keel
