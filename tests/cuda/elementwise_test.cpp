// The elementwise operations of the op table on a device.

#include "tests/cuda/device.h"
#include "tests/kernels/op_table.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(ElementwiseOnDevice);

// A transposed view, so that neighbours in memory are not neighbours in the tensor.
Tensor turned(const Tensor& x) { return kernels::contiguous(x.transpose(0, 1)).transpose(0, 1); }

TEST_P(ElementwiseOnDevice, UnaryOperationsFollowTheOpTableInEveryDtypeAndLayout) {
  for (const UnaryRow& row : unary_rows())
    for (const DType dtype : kKernelTypes) {
      const Tensor x = uniform_tensor(device, {5, 7}, 1, dtype, row.low, row.high);
      const std::vector<double> in = doubles(x);
      std::vector<double> expected;
      for (const double value : in) expected.push_back(row.value(value, row.parameter));
      for (const Tensor& layout : {x, turned(x)}) {
        SCOPED_TRACE(name_of_unary(row.op));
        expect_close(kernels::unary(row.op, layout, row.parameter), expected, 4, 0.1);
      }
    }
}

TEST_P(ElementwiseOnDevice, UnaryDerivativesFollowTheOpTable) {
  for (const UnaryRow& row : unary_rows())
    for (const DType dtype : kKernelTypes) {
      const Tensor x = uniform_tensor(device, {5, 7}, 1, dtype, row.low, row.high);
      const Tensor grad = uniform_tensor(device, {5, 7}, 2, dtype);
      const Tensor kept = keep_of_unary(row.op) == Keep::output ? kernels::unary(row.op, x, row.parameter) : x;
      const std::vector<double> in = doubles(x), upstream = doubles(grad);
      std::vector<double> expected;
      for (std::size_t i = 0; i < in.size(); ++i)
        expected.push_back(upstream[i] * row.derivative(in[i], row.parameter));
      SCOPED_TRACE(name_of_unary(row.op));
      // A rounded output, which some derivatives are computed from, is good for a few more roundings.
      expect_close(kernels::unary_backward(row.op, grad, kept, row.parameter), expected, 8, 0.3);
    }
}

TEST_P(ElementwiseOnDevice, BinaryOperationsBroadcastAndFollowTheOpTable) {
  for (const BinaryRow& row : binary_rows())
    for (const DType dtype : kKernelTypes) {
      const Tensor a = uniform_tensor(device, {3, 17}, 1, dtype, row.low, row.high);
      const Tensor b = uniform_tensor(device, {17}, 2, dtype, row.low, row.high);
      const Tensor grad = uniform_tensor(device, {3, 17}, 3, dtype);
      const std::vector<double> x = doubles(a), y = doubles(b), upstream = doubles(grad);
      std::vector<double> expected, slopes[2];
      for (std::size_t i = 0; i < x.size(); ++i) {
        expected.push_back(row.value(x[i], y[i % 17]));
        if (row.derivative_a == nullptr) continue;
        slopes[0].push_back(upstream[i] * row.derivative_a(x[i], y[i % 17]));
        slopes[1].push_back(upstream[i] * row.derivative_b(x[i], y[i % 17]));
      }
      SCOPED_TRACE(name_of_binary(row.op));
      expect_close(kernels::binary(row.op, a, b), expected, 4, 0.1);
      if (row.derivative_a == nullptr) continue;
      for (const int input : {0, 1})
        expect_close(kernels::binary_backward(row.op, input, grad, a, b), slopes[input], 8, 0.3);
    }
}

// GELU of 16-bit numbers goes a quicker way (kernels/cuda/quick_functors.h). With u = 2^-24, y = x / (1 + e) and
// e = 2^t, |t| <= 126 where y is not 0:
//
//   t  is rounded five times on its way, so it is at most 5u |t| off
//   e  is ln 2 times that, and the 4u of ex2.approx: at most 441u of it
//   y  no more than e is, since e / (1 + e) < 1, then u for the sum and 4u for the quotient: less than 2^-15 of it
//
// The processor's functor is closer to y. A step of f16 is at least 2^-11 of a number, one of bf16 2^-8.
TEST_P(ElementwiseOnDevice, GiveTheBitsOfTheProcessor) {
  for (int op = 0; op < UnaryOps::size; ++op) {
    if (op == index_of<PowScalar, UnaryOps>) continue;  // whose power is the C library's there and CUDA's here
    for (const DType dtype : kKernelTypes) {
      const Tensor x = uniform_tensor(host, {2115}, 5, dtype, 0.1, 3);  // more than a block
      for (const std::int64_t from : {0, 1}) {
        SCOPED_TRACE(concat(name_of_unary(op), ' ', dtype));
        const Tensor there = kernels::unary(op, on_device(x).slice(0, from, 2115), 0.5);
        const Tensor here = kernels::unary(op, x.slice(0, from, 2115), 0.5);
        if (op == index_of<GeluTanh, UnaryOps> && dtype != DType::f32) expect_same_or_neighbours(there, here);
        else EXPECT_EQ(doubles(there), doubles(here));
      }
    }
  }
}

TEST_P(ElementwiseOnDevice, DerivativesOfGeluAndSiluHaveTheirLimitsFarFromZero) {
  for (const int op : gated_operations())
    for (const DType dtype : kKernelTypes)
      for (const double size : huge_arguments()) {
        SCOPED_TRACE(concat(name_of_unary(op), ' ', dtype, " at ", size));
        const Tensor x = tensor_of(device, {size, -size, NAN}, {3}, dtype);
        const std::vector<double> got =
            doubles(kernels::unary_backward(op, kernels::full(device, {3}, 0.75, dtype), x));
        EXPECT_EQ(got[0], 0.75);
        EXPECT_EQ(got[1], 0);
        EXPECT_TRUE(std::isnan(got[2]));
      }
}

TEST_P(ElementwiseOnDevice, GeluOf16BitNumbersIsTheProcessorsFarFromZeroToo) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::vector<double> ends = {0, -0.0, 1e-7, -1e-7, 12, -12, 95, -95, 6e4, -6e4, INFINITY, -INFINITY, NAN};
    const Tensor x = tensor_of(host, ends, {static_cast<std::int64_t>(ends.size())}, dtype);
    const Tensor grad = kernels::full(host, x.shape(), 0.75, dtype);
    expect_same_or_neighbours(kernels::unary<GeluTanh>(on_device(x)), kernels::unary<GeluTanh>(x));
    const int op = index_of<GeluTanh, UnaryOps>;
    expect_same_or_neighbours(kernels::unary_backward(op, on_device(grad), on_device(x)),
                              kernels::unary_backward(op, grad, x));
  }
}

TEST_P(ElementwiseOnDevice, GiveTheBitsOfTheProcessorInLayoutsWithRunsAndWithout) {
  const auto check = [&](const Tensor& a, const Tensor& b) {
    const auto both = [](const Tensor& x, const Tensor& y) {
      return kernels::binary<Mul>(kernels::binary<Sub>(x, y), y);
    };
    // The same views on the device, of storages copied whole.
    const auto there = [&](const Tensor& x) {
      const auto elements = static_cast<std::int64_t>(x.storage()->bytes() / size_of(x.dtype()));
      const Tensor whole = on_device(Tensor(x.storage(), {elements}, {1}, 0, x.dtype()));
      return Tensor(whole.storage(), x.shape(), x.strides(), x.offset(), x.dtype());
    };
    EXPECT_EQ(doubles(both(there(a), there(b))), doubles(both(a, b))) << a.strides() << b.strides();
  };
  for (const DType dtype : kKernelTypes) {
    const Tensor a = uniform_tensor(host, {96, 48}, 6, dtype), b = uniform_tensor(host, {96, 56}, 7, dtype);
    check(a, b.slice(1, 0, 48));                  // rows of runs
    check(a, b.slice(1, 3, 51));                  // not at multiples of 16 bytes
    check(a, b.slice(1, 2, 3));                   // one number a row
    check(a, b.slice(0, 1, 2).slice(1, 8, 56));   // one row
    check(a, b.slice(0, 1, 2).slice(1, 9, 10));   // one number
    check(a.slice(1, 0, 40), b.slice(1, 8, 48));  // the result's rows are shorter
    check(a.view({4, 24, 48}).transpose(0, 1), b.view({24, 4, 56}).slice(2, 0, 48));
    check(a.transpose(0, 1), uniform_tensor(host, {48, 96}, 8, dtype));
    check(a.slice(1, 0, 45), b.slice(1, 8, 53));  // odd rows
  }
}

TEST_P(ElementwiseOnDevice, IntegersAreTakenWhereTheProcessorTakesThem) {
  const Tensor a = from_values(device, std::vector<std::int64_t>{1, -5, std::int64_t{1} << 60}, {3});
  const Tensor b = from_values(device, std::vector<std::int64_t>{1, 7, 1}, {3});
  EXPECT_EQ((kernels::binary<Add>(a, b).to_vector<std::int64_t>()),
            (std::vector<std::int64_t>{2, 2, (std::int64_t{1} << 60) + 1}));
  EXPECT_EQ(doubles(kernels::binary<Equal>(a, b)), (std::vector<double>{1, 0, 0}));
  EXPECT_THROW(kernels::unary<Exp>(a), Error);
}

TEST_P(ElementwiseOnDevice, RefuseFp64WithItsName) {
  try {
    kernels::unary<Exp>(empty(device, {2}, DType::f64));
    FAIL() << "fp64 arithmetic is not offered on a device";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(),
              concat("exp in f64 is not implemented on ", device.device(), "; it takes f32, bf16 and f16"));
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
  }
}

}  // namespace
}  // namespace keel
