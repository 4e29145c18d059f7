// Kernels that walk along rows: sums, norms, softmax, cross-entropy.

#include "bench/micro/micro.h"
#include "keel/kernels/gated.h"
#include "keel/kernels/loss.h"
#include "keel/kernels/norm.h"
#include "keel/kernels/reduce.h"
#include "keel/kernels/rotary.h"
#include "keel/kernels/softmax.h"
#include "keel/kernels/update.h"

namespace keel::bench {
namespace {

using Prepared = MemoryKernel::Prepared;

class Rows {
 public:
  Rows(const Options& options, DType dtype) : options_(options), dtype_(dtype) {}

  void add_sums() const {
    add("sum", 1, [](const Tensor& x) -> Contestant { return [=] { kernels::sum(x); }; });
    add("sum_of_squares", 1, [](const Tensor& x) -> Contestant { return [=] { kernels::sum_of_squares(x); }; });
    add("sum_rows", 1, [](const Tensor& x) -> Contestant {
      const Tensor into = zeros(x.context(), {x.dim(1)});
      return [=] { kernels::sum_rows(x, into); };
    });
  }
  void add_norms(NormKind kind) const {
    const bool is_layer = kind == NormKind::layer;
    const std::string name = is_layer ? "layer_norm" : "rms_norm";
    add(name, 2, [=](const Tensor& x) -> Contestant {
      const Tensor weight = weight_for(x), bias = is_layer ? weight : Tensor();
      return [=] { kernels::norm(kind, x, {}, weight, bias, 1e-5); };
    });
    add(name + "_backward", 3, [=](const Tensor& x) -> Contestant {
      NormBackwardArgs args{};
      args.kind = kind;
      args.x = x;
      args.weight = weight_for(x);
      args.grad_output = numbers(x.context(), x.shape(), x.dtype(), 2);
      const kernels::NormResult forward = kernels::norm(kind, x, {}, args.weight, {}, 1e-5);
      args.mean = forward.mean;
      args.rstd = forward.rstd;
      args.grad_weight = zeros(x.context(), {x.dim(1)});
      if (is_layer) args.grad_bias = zeros(x.context(), {x.dim(1)});
      return [=] { kernels::norm_backward(args); };
    });
  }
  void add_gates() const {
    add("gated_silu", 1.5, [](const Tensor& x) -> Contestant { return [=] { kernels::gated(x, GateKind::silu); }; });
    add("gated_silu_backward", 2.5, [](const Tensor& x) -> Contestant {
      const Tensor grad = numbers(x.context(), {x.dim(0), x.dim(1) / 2}, x.dtype(), 2);
      return [=] { kernels::gated_backward(grad, x, GateKind::silu); };
    });
  }
  // Of heads of 128, a position for each row; "norm" is in front of the rotation.
  void add_rotations() const {
    for (const bool has_norm : {false, true})
      add(has_norm ? "rotary_norm" : "rotary", 2, [=](const Tensor& x) -> Contestant {
        RotaryArgs args;
        args.x = x.view({1, x.dim(0), x.dim(1) / 128, 128}).transpose(1, 2);
        args.table = {numbers(x.context(), {x.dim(0), 64}, DType::f32),
                      numbers(x.context(), {x.dim(0), 64}, DType::f32)};
        if (has_norm) args.weight = numbers(x.context(), {128}, x.dtype(), 3);
        return [=] { kernels::rotary(args); };
      });
  }
  // Rows of logits; "_in_place" writes the gradient over them.
  void add_classes(std::int64_t classes) const {
    const std::string of = concat("_of_", classes);
    add(
        "softmax" + of, 2, [](const Tensor& x) -> Contestant { return [=] { kernels::softmax(x); }; }, classes);
    using kernels::LogitsGradient;
    for (const LogitsGradient gradient : {LogitsGradient::none, LogitsGradient::over_logits}) {
      const bool is_in_place = gradient == LogitsGradient::over_logits;
      add(
          concat("cross_entropy", of, is_in_place ? "_in_place" : ""), is_in_place ? 2 : 1,
          [=](const Tensor& x) -> Contestant {
            const Tensor targets = zeros(x.context(), {x.dim(0)}, DType::i64);
            return [=] { kernels::cross_entropy(x, targets, -100, 0, gradient); };
          },
          classes);
    }
  }

 private:
  // `prepare` takes x (rows, width); the kernel moves `moved` elements for each of its.
  template <class F>
  void add(const std::string& name, double moved, F prepare, std::int64_t width = MemoryKernel().width) const {
    const auto prepare_rows = [=, dtype = dtype_](const Context& context, std::int64_t rows) -> Prepared {
      return {prepare(numbers(context, {rows, width}, dtype))};
    };
    add_memory_kernel(options_, {concat("rows/", name, '/', dtype_), moved * static_cast<double>(size_of(dtype_)),
                                 prepare_rows, width});
  }
  static Tensor weight_for(const Tensor& x) { return numbers(x.context(), {x.dim(1)}, x.dtype(), 3); }

  Options options_;
  DType dtype_;
};

}  // namespace

void add_rows(const Options& options) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Rows family(options, dtype);
    family.add_sums();
    family.add_norms(NormKind::layer);
    family.add_norms(NormKind::rms);
    family.add_gates();
    family.add_rotations();
    for (const std::int64_t classes : {65, 50257}) family.add_classes(classes);
  }
}

}  // namespace keel::bench
