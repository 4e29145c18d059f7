// Gather, index select, index add and top-k on a device.

#include "keel/kernels/select.h"

#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(SelectOnDevice);

// Many repeat, some never occur.
Tensor some_indices(const Context& context, const Dims& shape, std::int64_t extent) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(product(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i * i * 31) % extent;
  return from_values(context, values, shape);
}

// The Error that the work queued so far ends in.
std::string fault_of(const Context& context) {
  try {
    context.stream().synchronize();
  } catch (const Error& error) { return error.what(); }
  return "no error";
}

TEST_P(SelectOnDevice, GatherAndIndexSelectMoveEveryDtypeAsTheProcessorDoes) {
  for (const DType dtype : kAllTypes) {
    const Tensor x = uniform_tensor(host, {5, 12, 8}, 1, dtype, 0, 200), there = on_device(x);
    for (int dim = 0; dim < 3; ++dim) {
      Dims shape = x.shape();
      shape[dim] = 7;
      const Tensor index = some_indices(host, shape, x.dim(dim)), list = some_indices(host, {30}, x.dim(dim));
      EXPECT_EQ(doubles(kernels::gather(there, dim, on_device(index))), doubles(kernels::gather(x, dim, index)));
      EXPECT_EQ(doubles(kernels::index_select(there, dim, on_device(list))),
                doubles(kernels::index_select(x, dim, list)));
    }
    const Tensor turned = x.permute({2, 0, 1}), list = some_indices(host, {9}, 5);
    EXPECT_EQ(doubles(kernels::index_select(there.permute({2, 0, 1}), 1, on_device(list))),
              doubles(kernels::index_select(turned, 1, list)));
  }
}

TEST_P(SelectOnDevice, IndexAddGivesTheBitsOfTheProcessor) {
  for (const DType dtype : kKernelTypes)
    for (const std::int64_t width : {1, 24}) {
      const Tensor x = uniform_tensor(host, {3, 7, width}, 2, dtype);
      for (int dim = 0; dim < 3; ++dim) {
        Dims shape = x.shape();
        shape[dim] = 130;  // every index often, one of seven longer than a thread sums
        Tensor index = some_indices(host, {130}, x.dim(dim));
        const Tensor source = uniform_tensor(host, shape, 3, dtype);
        const Tensor expected = kernels::clone(x), result = on_device(x);
        kernels::index_add(expected, dim, index, source);
        kernels::index_add(result, dim, on_device(index), on_device(source));
        EXPECT_EQ(doubles(result), doubles(expected)) << x << dim;
      }
    }
}

TEST_P(SelectOnDevice, IndexAddSumsInOrderAndRoundsOnce) {
  // 1 + 512 times 2^-9 in bf16: one by one every addition would be lost.
  for (const std::int64_t width : {1, 16}) {
    const Tensor target = kernels::full(device, {2, width}, 1, DType::bf16);
    const Tensor source = kernels::full(device, {512, width}, 0x1p-9, DType::bf16);
    kernels::index_add(target, 0, zeros(device, {512}, DType::i64), source);
    std::vector<double> expected(static_cast<std::size_t>(2 * width), 1);
    std::fill_n(expected.begin(), width, 2);
    EXPECT_EQ(doubles(target), expected);
  }
}

TEST_P(SelectOnDevice, TopKEqualsTheProcessorsByPicksAndBySorts) {
  for (const DType dtype : kKernelTypes)
    for (const auto& [cols, k] : {std::pair{1, 1},
                                  {7, 7},
                                  {64, 5},
                                  {256, 11},
                                  {257, 5},       // a block for each row
                                  {2049, 3},      // more than registers hold
                                  {301, 301},     // by a sort
                                  {2100, 20}}) {  // of two tiles
      std::vector<double> values = uniform(2 * cols, 4, -4, 4);
      for (std::size_t i = 0; i < values.size(); ++i)
        if (i % 3 == 0) values[i] = std::trunc(values[i]);  // equal ones, and both zeros
      const Tensor x = tensor_of(host, values, {2, cols}, dtype);
      const kernels::TopK expected = kernels::top_k(x, k), result = kernels::top_k(on_device(x), k);
      EXPECT_EQ(result.indices.to_vector<std::int64_t>(), expected.indices.to_vector<std::int64_t>()) << x << k;
      EXPECT_EQ(doubles(result.values), doubles(expected.values)) << x << k;
    }
}

TEST_P(SelectOnDevice, TopKPutsNanFirstAndInfinityNext) {
  for (const DType dtype : kKernelTypes)
    for (const std::int64_t zeros_before : {0, 100}) {  // by picks and by a sort
      std::vector<double> values(static_cast<std::size_t>(zeros_before), -0.0);
      values.insert(values.end(), {1, NAN, -INFINITY, INFINITY, 0, -NAN, 1});
      const auto cols = static_cast<std::int64_t>(values.size());
      const Tensor x = tensor_of(device, values, {cols}, dtype);
      const std::vector<std::int64_t> order = kernels::top_k(x, cols).indices.to_vector<std::int64_t>();
      std::vector<std::int64_t> expected = {1, 5, 3, 0, 6};
      for (std::int64_t& index : expected) index += zeros_before;
      for (std::int64_t i = 0; i < zeros_before; ++i) expected.push_back(i);
      expected.push_back(zeros_before + 4);
      expected.push_back(zeros_before + 2);
      EXPECT_EQ(order, expected) << dtype;
    }
}

TEST_P(SelectOnDevice, EmptyListsChooseNothing) {
  const Tensor x = uniform_tensor(device, {3, 4}, 8), none = empty(device, {0}, DType::i64);
  EXPECT_EQ(kernels::index_select(x, 0, none).shape(), (Dims{0, 4}));
  EXPECT_EQ(kernels::gather(x, 1, empty(device, {3, 0}, DType::i64)).shape(), (Dims{3, 0}));
  EXPECT_EQ(kernels::top_k(x, 0).values.shape(), (Dims{3, 0}));
  EXPECT_EQ(kernels::top_k(empty(device, {0, 4}), 2).indices.shape(), (Dims{0, 2}));
  const std::vector<double> before = doubles(x);
  kernels::index_add(x, 1, none, empty(device, {3, 0}));
  EXPECT_EQ(doubles(x), before);
}

TEST_P(SelectOnDevice, AnIndexOutOfRangeIsNamedAtTheNextWait) {
  const Tensor x = kernels::full(device, {3, 4}, 2);
  const auto indices = [&](const std::vector<std::int64_t>& values, const Dims& shape) {
    return from_values(device, values, shape);
  };
  const Tensor gathered = kernels::gather(x, 1, indices({0, 4, 0}, {3, 1}));
  EXPECT_NE(fault_of(device).find("gather: index 4 at position 1 is outside [0, 4)"), std::string::npos);
  EXPECT_EQ(doubles(gathered), (std::vector<double>{2, 0, 2}));
  const Tensor selected = kernels::index_select(x, 0, indices({-1, 1}, {2}));
  EXPECT_NE(fault_of(device).find("index_select: index -1 at position 0 is outside [0, 3)"), std::string::npos);
  EXPECT_EQ(doubles(selected), (std::vector<double>{0, 0, 0, 0, 2, 2, 2, 2}));
  kernels::index_add(x, 0, indices({1, 3}, {2}), kernels::full(device, {2, 4}, 1));
  EXPECT_NE(fault_of(device).find("index_add: index 3 at position 1 is outside [0, 3)"), std::string::npos);
  EXPECT_EQ(doubles(x), (std::vector<double>{2, 2, 2, 2, 3, 3, 3, 3, 2, 2, 2, 2}));
}

TEST_P(SelectOnDevice, RefuseFp64) {
  EXPECT_THROW(kernels::top_k(zeros(device, {3}, DType::f64), 1), Error);
  EXPECT_THROW(kernels::index_add(zeros(device, {3}, DType::f64), 0, zeros(device, {1}, DType::i64),
                                  zeros(device, {1}, DType::f64)),
               Error);
}

}  // namespace
}  // namespace keel
