#include "keel/autograd/gradcheck.h"

#include <cmath>

#include "keel/autograd/backward.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

// Weights in [0.5, 1.5) from a linear congruential sequence (Knuth's MMIX constants).
Tensor output_weights(const Tensor& like) {
  Tensor weights = empty(like.context(), like.shape(), DType::f64);
  std::uint64_t state = 12345;
  for (std::int64_t i = 0; i < weights.numel(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    weights.data<double>()[i] = 0.5 + static_cast<double>(state >> 11) * 0x1p-53;
  }
  return weights;
}

double weighted_sum(const Tensor& output, const Tensor& weights) {
  const std::vector<double> values = output.to_vector<double>();
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * weights.data<double>()[i];
  return sum;
}

}  // namespace

std::string gradcheck(const std::function<Variable(std::span<const Variable>)>& function,
                      std::span<const Tensor> inputs, const GradcheckOptions& options) {
  std::vector<Variable> leaves;
  for (const Tensor& input : inputs) {
    KEEL_CHECK(input.dtype() == DType::f64, "gradcheck works in f64, got ", input);
    leaves.emplace_back(kernels::clone(input), true);
  }
  const Variable output = function(leaves);
  const Tensor weights = output_weights(output.value());
  backward(std::span(&output, 1), std::span(&weights, 1));

  const NoGrad no_grad;
  for (std::size_t n = 0; n < leaves.size(); ++n) {
    const Tensor grad = leaves[n].grad();
    const std::vector<double> analytic =
        grad.defined() ? grad.to_vector<double>() : std::vector<double>(static_cast<std::size_t>(inputs[n].numel()));
    double* values = leaves[n].value().data<double>();
    for (std::size_t i = 0; i < analytic.size(); ++i) {
      const double centre = values[i];
      const auto shifted = [&](double by) {
        values[i] = centre + by;
        return weighted_sum(function(leaves).value(), weights);
      };
      const double numeric = (shifted(options.step) - shifted(-options.step)) / (2 * options.step);
      values[i] = centre;
      if (!(std::abs(analytic[i] - numeric) <= options.tolerance * (1 + std::abs(numeric))))
        return keel::concat("input ", n, ", element ", i, ": backward gives ", analytic[i],
                            ", central differences give ", numeric);
    }
  }
  return {};
}

}  // namespace keel
