#include "keel/trainer/diagnosis.h"

#include <map>
#include <vector>

#include "keel/kernels/update.h"

namespace keel {
namespace {

// Follows which modules a forward pass is in.
class Path : public ForwardObserver {
 public:
  explicit Path(Module& model) {
    for_each_module(model, [&](const std::string& path, Module& module) { names_[&module] = path; });
  }
  void forward_begins(const Module& module) override { inside_.push_back(names_.at(&module)); }
  void forward_ends(const Module&) noexcept override { inside_.pop_back(); }
  std::string innermost() const { return inside_.empty() || inside_.back().empty() ? "the model" : inside_.back(); }

 private:
  std::map<const Module*, std::string> names_;
  std::vector<std::string> inside_;
};

}  // namespace

std::string first_bad_tensor(Module& model, const LossFunction& loss, const Batch& batch, Forward pass) {
  std::string bad;
  for_each_parameter(model, [&](const std::string& path, Parameter& parameter) {
    if (bad.empty() && !kernels::all_finite(parameter.value())) bad = "weight " + path;
  });
  if (!bad.empty()) return bad;

  const auto path = std::make_shared<Path>(model);
  for_each_module(model, [&](const std::string&, Module& module) { module.subscribe(path); });
  const OperationTrace trace([&](std::string_view name, std::span<const Tensor> outputs) {
    for (const Tensor& output : outputs)
      if (bad.empty() && output.defined() && is_floating(output.dtype()) && !kernels::all_finite(output))
        bad = concat("output of ", name, " in ", path->innermost());
  });
  const NoGrad no_grad;
  loss(batch, pass);
  for_each_module(model, [&](const std::string&, Module& module) { module.unsubscribe(path); });
  return bad;
}

}  // namespace keel
