// A loss that is a function of the host's.

#include <array>
#include <limits>
#include <utility>

#include "keel/autograd/functions.h"
#include "keel/capi/goal.h"
#include "keel/capi/handles.h"
#include "keel/dist/comm/agreement.h"
#include "keel/kernels/elementwise.h"

namespace keel::capi {
namespace {

int dtype_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return KEEL_F64;
    case DType::i32: return KEEL_I32;
    case DType::i64: return KEEL_I64;
    default: return KEEL_F32;
  }
}

// Tensors in the processor's memory as the host sees them.
class Views {
 public:
  // An undefined tensor is a view of nothing.
  void add(const Tensor& tensor) {
    if (tensor.defined()) {
      void* const memory = tensor.numel() > 0 ? tensor.raw() : nullptr;
      views_.push_back({memory, dtype_of(tensor.dtype()), tensor.rank(), nullptr, nullptr});
    } else {
      views_.push_back({nullptr, KEEL_F32, 0, nullptr, nullptr});
    }
    tensors_.push_back(tensor);
  }
  const keel_view* all() {
    for (std::size_t i = 0; i < views_.size(); ++i) {
      if (!tensors_[i].defined()) continue;
      views_[i].shape = tensors_[i].shape().begin();
      views_[i].strides = tensors_[i].strides().begin();
    }
    return views_.data();
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<keel_view> views_;
  std::vector<Tensor> tensors_;
};

// The host's memory as it lies; a copy of a device's.
Tensor on_processor(const std::shared_ptr<Array>& array) {
  if (!array) return {};
  const Context host = array->site->context.host();
  return array->tensor.context() == host ? array->tensor : kernels::to(kernels::contiguous(array->tensor), host);
}

class HostGoal : public Goal {
 public:
  HostGoal(keel_loss_function function, void* user, Communicator& ranks)
      : function_(function), user_(user), ranks_(ranks) {}

  void check(const Network&, const Samples&) const override {}

  SampleLoss loss(std::span<const Variable> outputs, const Samples& samples) const override {
    const Context context = outputs.front().context();
    std::vector<Variable> wide;
    Views output, target, weights, gradient;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      wide.push_back(cast(outputs[i], DType::f32));
      const Tensor numbers = kernels::to(kernels::contiguous(wide.back().value()), context.host());
      output.add(numbers);
      target.add(on_processor(samples.arrays.targets[i]));
      gradient.add(kernels::full(context.host(), numbers.shape(), std::numeric_limits<double>::quiet_NaN()));
    }
    weights.add(on_processor(samples.arrays.weights));
    context.synchronize();
    double said = 0;
    together(ranks_, [&] {
      if (product(samples.extents) == 0) return;
      ask(static_cast<int>(outputs.size()), output, target, weights, gradient, said);
    });
    std::vector<Tensor> gradients;
    for (const Tensor& each : gradient.tensors()) gradients.push_back(kernels::to(each, context));
    return {join(wide, gradients, said), samples.weight, said};
  }

 private:
  void ask(int outputs, Views& output, Views& target, Views& weights, Views& gradient, double& loss) const {
    std::array<char, KEEL_MESSAGE> message{};
    int failure = 0;
    {
      const HostCode host;
      try {
        failure =
            function_(outputs, output.all(), target.all(), weights.all(), gradient.all(), &loss, message.data(), user_);
      } catch (const std::exception& error) {
        throw Error(concat("the host's loss function threw an exception: ", error.what()));
      } catch (...) { throw Error("the host's loss function threw something that is no exception"); }
    }
    message.back() = 0;
    if (failure == 0) return;
    const std::string text = message.data();
    throw Error(concat("the host's loss function returned ", failure, text.empty() ? "" : ": ", text));
  }

  // The loss as autograd has it, of outputs whose gradients are known.
  static Variable join(const std::vector<Variable>& outputs, const std::vector<Tensor>& gradients, double loss) {
    const Tensor value = kernels::full(outputs.front().context(), {}, loss);
    return record("host_loss", std::span(&value, 1), outputs, gradients,
                  [n = outputs.size()](const Saved& saved, std::span<const Tensor> grad, const Need& need) {
                    Gradients result(n);
                    for (std::size_t i = 0; i < n; ++i) {
                      if (!need[i]) continue;
                      result[i] = saved[i];
                      kernels::scale_by(result[i], grad[0]);
                    }
                    return result;
                  })
        .front();
  }

  keel_loss_function function_;
  void* user_;
  Communicator& ranks_;
};

}  // namespace

std::unique_ptr<Goal> make_host_goal(keel_loss_function function, void* user, Communicator& ranks) {
  return std::make_unique<HostGoal>(function, user, ranks);
}

}  // namespace keel::capi
