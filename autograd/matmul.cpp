#include "keel/autograd/matmul.h"

#include <utility>
#include <vector>

#include "keel/autograd/flops.h"
#include "keel/kernels/checks.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/matmul.h"
#include "keel/kernels/reduce.h"

namespace keel {
namespace {

// x viewed as (rows, in), so that any number of leading dimensions is one product.
Tensor as_rows(const Tensor& x) { return kernels::as_rows("linear", kernels::contiguous(x)); }

Tensor product(const Tensor& a, const Tensor& b, const MatmulOptions& options = {}) {
  Tensor out = kernels::matmul(a, b, options);
  count_flops(2.0 * static_cast<double>(out.numel()) * static_cast<double>(a.dim(-1)));
  return out;
}

// A product that goes straight to where the gradient of `input` accumulates, when there is such a place.
Tensor product_into(const Need& need, std::size_t input, const Tensor& a, const Tensor& b) {
  MatmulOptions options;
  if (const auto destination = need.destination(input)) {
    options.into = destination->into;
    options.accumulate = destination->add;
  }
  return product(a, b, options);
}

Tensor bias_gradient(const Need& need, std::size_t input, const Tensor& grad_rows) {
  if (const auto destination = need.destination(input))
    return kernels::sum_rows(grad_rows, destination->into, destination->add);
  return kernels::sum_rows(grad_rows);
}

// grad: the gradient of x weight^T + bias, any leading dimensions.
Gradients linear_backward(const Tensor& x, const Tensor& weight, const Tensor& grad, const Need& need) {
  const Tensor rows = as_rows(grad);
  Gradients gradients(3);
  if (need[1]) gradients[1] = product_into(need, 1, rows.transpose(0, 1), as_rows(x));
  if (need[2]) gradients[2] = bias_gradient(need, 2, rows);
  if (need[0]) gradients[0] = product(rows, weight).view(x.shape());
  return gradients;
}

void check_linear(const Variable& x, const Variable& weight, const Variable& bias) {
  KEEL_CHECK(weight.value().rank() == 2 && x.value().rank() >= 1 && x.dim(-1) == weight.dim(1), "linear: x ", x.shape(),
             " does not fit the weight ", weight.shape(), " (out, in)");
  KEEL_CHECK(!bias.defined() || (bias.value().rank() == 1 && bias.dim(0) == weight.dim(0)), "linear: bias ",
             bias.defined() ? bias.shape() : Dims{}, " does not fit the weight ", weight.shape());
}

Dims linear_shape(const Tensor& x, const Tensor& weight) {
  Dims shape = x.shape();
  shape[shape.size() - 1] = weight.dim(0);
  return shape;
}

Tensor linear_product(const Variable& x, const Variable& weight, const Variable& bias) {
  MatmulOptions options;
  if (bias.defined()) {
    options.epilogue = Epilogue::bias;
    options.bias = bias.value();
  }
  return product(as_rows(x.value()), weight.value().transpose(0, 1), options)
      .view(linear_shape(x.value(), weight.value()));
}

void check_term(const Variable& x, const Variable& weight, const LowRankTerm& term) {
  const Tensor &a = term.a.value(), &b = term.b.value();
  KEEL_CHECK(a.rank() == 2 && b.rank() == 2 && a.dim(1) == weight.dim(1) && b.dim(1) == a.dim(0), "linear_low_rank: a ",
             a.shape(), " (rank, in) and b ", b.shape(), " (rows, rank) do not fit the weight ", weight.shape(),
             " (out, in)");
  KEEL_CHECK(term.first_row >= 0 && term.first_row + b.dim(0) <= weight.dim(0), "linear_low_rank: outputs ",
             term.first_row, " to ", term.first_row + b.dim(0), " are not among the ", weight.dim(0), " of the weight ",
             weight.shape());
  KEEL_CHECK(!term.x.defined() || (term.x.value().numel() == x.value().numel() && term.x.dim(-1) == x.dim(-1)),
             "linear_low_rank: x of a term ", term.x.defined() ? term.x.shape() : Dims{}, " does not fit the x ",
             x.shape(), " of the layer");
}

// Where the tensors of a term are among inputs and saved tensors of the node.
constexpr std::size_t kTermInputs = 3, kTermSaved = 4;
constexpr std::size_t input_of_term(std::size_t term) { return 3 + kTermInputs * term; }
constexpr std::size_t saved_of_term(std::size_t term) { return 2 + kTermSaved * term; }

// What a term is beside its tensors.
struct TermPlace {
  std::int64_t first_row;
  float scale;
};

// Adds the gradients of one term; rows: the gradient of the layer's outputs.
void add_low_rank_gradients(const TermPlace& place, std::size_t term, const Saved& saved, const Tensor& rows,
                            const Need& need, Gradients& gradients) {
  const std::size_t input = input_of_term(term), at = saved_of_term(term);
  const Tensor &a = saved[at], &b = saved[at + 1], &inner = saved[at + 2], &own = saved[at + 3];
  const bool has_own = own.defined();
  const Tensor& x = has_own ? own : saved[0];
  const Tensor grad = rows.slice(1, place.first_row, place.first_row + b.dim(0));
  if (need[input + 1]) gradients[input + 1] = product_into(need, input + 1, grad.transpose(0, 1), inner);
  const bool needs_x = need[has_own ? input + 2 : 0];
  if (!need[input] && !needs_x) return;
  const Tensor grad_inner = product(grad, b, {.alpha = place.scale});
  if (need[input]) gradients[input] = product_into(need, input, grad_inner.transpose(0, 1), as_rows(x));
  if (!needs_x) return;
  if (has_own) gradients[input + 2] = product(grad_inner, a).view(x.shape());
  else product(grad_inner, a, {.into = as_rows(gradients[0]), .accumulate = true});
}

}  // namespace

Variable matmul(const Variable& a, const Variable& b) {
  return record("matmul", product(a.value(), b.value()), {a, b}, {a.value(), b.value()},
                [](const Saved& saved, std::span<const Tensor> grad, const Need& need) -> Gradients {
                  const Tensor &x = saved[0], &y = saved[1];
                  Gradients gradients(2);
                  if (need[0]) gradients[0] = product(grad[0], y.transpose(-1, -2));
                  if (need[1]) {
                    const bool flat = y.rank() == 2 && x.rank() > 2;  // b was shared by the whole batch
                    const Tensor left = flat ? as_rows(x) : x;
                    const Tensor right = flat ? as_rows(grad[0]) : grad[0];
                    gradients[1] = product_into(need, 1, left.transpose(-1, -2), right);
                  }
                  return gradients;
                });
}

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  check_linear(x, weight, bias);
  return record("linear", linear_product(x, weight, bias), {x, weight, bias}, {x.value(), weight.value()},
                [](const Saved& saved, std::span<const Tensor> grad, const Need& need) {
                  return linear_backward(saved[0], saved[1], grad[0], need);
                });
}

Variable linear_gelu(const Variable& x, const Variable& weight, const Variable& bias) {
  check_linear(x, weight, bias);
  KEEL_CHECK(bias.defined(), "linear_gelu needs a bias");
  Tensor before;
  MatmulOptions options;
  options.epilogue = Epilogue::bias_gelu;
  options.bias = bias.value();
  options.pre_activation = &before;
  Tensor out = product(as_rows(x.value()), weight.value().transpose(0, 1), options)
                   .view(linear_shape(x.value(), weight.value()));
  before = before.view(out.shape());
  return record("linear_gelu", std::move(out), {x, weight, bias}, {x.value(), weight.value(), before},
                [](const Saved& saved, std::span<const Tensor> grad, const Need& need) {
                  const Tensor grad_before = kernels::unary_backward(index_of<GeluTanh, UnaryOps>, grad[0], saved[2]);
                  return linear_backward(saved[0], saved[1], grad_before, need);
                });
}

Variable linear_low_rank(const Variable& x, const Variable& weight, const Variable& bias,
                         std::span<const LowRankTerm> terms) {
  check_linear(x, weight, bias);
  for (const LowRankTerm& term : terms) check_term(x, weight, term);
  const Tensor out = linear_product(x, weight, bias);
  const Tensor out_rows = as_rows(out);
  std::vector<Variable> inputs = {x, weight, bias};
  std::vector<Tensor> saved = {x.value(), weight.value()};
  std::vector<TermPlace> places;
  for (const LowRankTerm& term : terms) {
    const Tensor own = term.x.defined() ? term.x.value() : Tensor();
    const Tensor &a = term.a.value(), &b = term.b.value();
    const auto scale = static_cast<float>(term.scale);
    const Tensor inner = product(as_rows(own.defined() ? own : x.value()), a.transpose(0, 1), {.alpha = scale});
    product(inner, b.transpose(0, 1),
            {.into = out_rows.slice(1, term.first_row, term.first_row + b.dim(0)), .accumulate = true});
    inputs.insert(inputs.end(), {term.a, term.b, term.x});
    saved.insert(saved.end(), {a, b, inner, own});
    places.push_back({term.first_row, scale});
  }
  return record("linear_low_rank", std::span(&out, 1), inputs, saved,
                [places = std::move(places)](const Saved& kept, std::span<const Tensor> grad, const Need& need) {
                  Gradients gradients = linear_backward(kept[0], kept[1], grad[0], need);
                  gradients.resize(input_of_term(places.size()));
                  const Tensor rows = as_rows(grad[0]);
                  for (std::size_t i = 0; i < places.size(); ++i)
                    add_low_rank_gradients(places[i], i, kept, rows, need, gradients);
                  return gradients;
                })
      .front();
}

}  // namespace keel
