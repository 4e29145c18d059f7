#include "keel/autograd/loss.h"

#include "keel/autograd/elementwise.h"
#include "keel/autograd/reduce.h"
#include "keel/kernels/checks.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/softmax.h"

namespace keel {

Variable softmax(const Variable& x) {
  Tensor out = kernels::softmax(x.value());
  return record("softmax", out, {x}, {out},
                [](const Saved& saved, std::span<const Tensor> grad, const Need&) -> Gradients {
                  return {kernels::softmax_backward(grad[0], saved[0])};
                });
}

Variable log_softmax(const Variable& x) {
  Tensor out = kernels::log_softmax(x.value());
  return record("log_softmax", out, {x}, {out},
                [](const Saved& saved, std::span<const Tensor> grad, const Need&) -> Gradients {
                  return {kernels::log_softmax_backward(grad[0], saved[0])};
                });
}

CrossEntropyLoss cross_entropy(const Variable& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  // The gradient costs one more pass over a row that is in the cache anyway, so it is taken in the forward pass.
  const bool wanted = logits.requires_grad() && grad_mode() == GradMode::record;
  const kernels::LogitsGradient gradient = !wanted                    ? kernels::LogitsGradient::none
                                           : options.overwrite_logits ? kernels::LogitsGradient::over_logits
                                                                      : kernels::LogitsGradient::fresh;
  const Tensor rows = kernels::as_rows("cross_entropy", kernels::contiguous(logits.value()));
  kernels::CrossEntropyResult result = kernels::cross_entropy(rows, kernels::contiguous(targets).flatten(),
                                                              options.ignore_index, options.label_smoothing, gradient);
  const Variable loss =
      record("cross_entropy", result.loss, {logits}, {result.grad_logits, result.count},
             [shape = logits.shape()](const Saved& saved, std::span<const Tensor> grad, const Need&) -> Gradients {
               const Tensor& grad_logits = saved[0];
               kernels::scale_by(grad_logits, grad[0], saved[1]);
               return {grad_logits.view(shape)};
             });
  return {loss, result.count};
}

Variable mse_loss(const Variable& prediction, const Variable& target) {
  KEEL_CHECK(prediction.shape() == target.shape(), "mse_loss: prediction ", prediction.shape(), " and target ",
             target.shape(), " differ in shape");
  return mean(square(sub(prediction, target)));
}

}  // namespace keel
