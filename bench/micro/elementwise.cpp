// Elementwise kernels, casts and copies with another layout.

#include "keel/kernels/elementwise.h"

#include "bench/micro/micro.h"

namespace keel::bench {
namespace {

using Prepared = MemoryKernel::Prepared;

class Elementwise {
 public:
  Elementwise(const Options& options, DType dtype) : options_(options), dtype_(dtype) {}

  // `run` takes `inputs` tensors of the dtype; it reads them and writes one that is as large.
  template <class F>
  void add(const std::string& name, int inputs, F run) const {
    const auto prepare = [=, dtype = dtype_](const Context& context, std::int64_t rows) -> Prepared {
      std::vector<Tensor> x;
      for (int i = 0; i < inputs; ++i) x.push_back(positive(context, rows, dtype, static_cast<std::uint32_t>(i + 1)));
      return {[=] { run(x); }};
    };
    add_memory_kernel(options_, {concat("elementwise/", name, '/', dtype_),
                                 (inputs + 1.0) * static_cast<double>(size_of(dtype_)), prepare});
  }
  template <class Op>
  void add_unary() const {
    add(std::string(Op::name), 1, [](const Inputs& x) { kernels::unary<Op>(x[0], 1.5); });
  }
  template <class Op>
  void add_unary_backward() const {
    add(concat(Op::name, "_backward"), 2,
        [](const Inputs& x) { kernels::unary_backward(index_of<Op, UnaryOps>, x[0], x[1]); });
  }
  template <class Op>
  void add_binary() const {
    add(std::string(Op::name), 2, [](const Inputs& x) { kernels::binary<Op>(x[0], x[1]); });
  }
  void add_moves() const {
    add("transpose", 1, [](const Inputs& x) { kernels::contiguous(x[0].transpose(0, 1)); });
    // (sequences, positions, heads, channels) to (sequences, heads, positions, channels)
    add("split_heads", 1, [](const Inputs& x) {
      kernels::contiguous(x[0].view({-1, 16, x[0].dim(1) / 64, 64}).transpose(1, 2));
    });
  }
  void add_cast(DType to) const {
    const auto prepare = [from = dtype_, to](const Context& context, std::int64_t rows) -> Prepared {
      const Tensor x = positive(context, rows, from);
      return {[=] { kernels::cast(x, to); }};
    };
    add_memory_kernel(options_, {concat("elementwise/cast_to_", to, '/', dtype_),
                                 static_cast<double>(size_of(dtype_) + size_of(to)), prepare});
  }

 private:
  using Inputs = std::vector<Tensor>;
  // So that logarithms have something to do.
  static Tensor positive(const Context& context, std::int64_t rows, DType dtype, std::uint32_t seed = 1) {
    return numbers(context, {rows, MemoryKernel().width}, dtype, seed, 0.01, 2);
  }

  Options options_;
  DType dtype_;
};

}  // namespace

void add_elementwise(const Options& options) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Elementwise family(options, dtype);
    family.add_unary<Exp>();
    family.add_unary<Log>();
    family.add_unary<Tanh>();
    family.add_unary<Sigmoid>();
    family.add_unary<Silu>();
    family.add_unary_backward<Silu>();
    family.add_unary<Gelu>();
    family.add_unary_backward<Gelu>();
    family.add_unary<GeluTanh>();
    family.add_unary_backward<GeluTanh>();
    family.add_unary<MulScalar>();
    family.add_binary<Add>();
    family.add_binary<Mul>();
    family.add_moves();
  }
  Elementwise(options, DType::f32).add_cast(DType::bf16);
  Elementwise(options, DType::bf16).add_cast(DType::f32);
  Elementwise(options, DType::f32).add_cast(DType::f16);
  Elementwise(options, DType::f16).add_cast(DType::f32);
}

}  // namespace keel::bench
