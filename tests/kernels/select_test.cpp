#include "keel/kernels/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;
using kernels::gather;
using kernels::index_add;
using kernels::index_select;
using kernels::top_k;

Tensor indices(const Context& context, const std::vector<std::int64_t>& values, const Dims& shape) {
  return from_values(context, values, shape);
}

TEST(Select, GatherPicksAlongEveryDimensionForEveryDtype) {
  const Context context = testing::context();
  for (int d = 0; d < kDTypeCount; ++d)
    for (int dim = 0; dim < 3; ++dim) {
      const Tensor x = uniform_tensor(context, {3, 4, 5}, 1, static_cast<DType>(d), 0, 200);
      Dims shape = x.shape();
      shape[dim] = 7;
      std::vector<std::int64_t> picks(static_cast<std::size_t>(product(shape)));
      for (std::size_t i = 0; i < picks.size(); ++i) picks[i] = static_cast<std::int64_t>(i * i) % x.dim(dim);
      const std::vector<double> out = doubles(gather(x, dim, indices(context, picks, shape))), from = doubles(x);
      const Dims strides = dense_strides(x.shape()), out_strides = dense_strides(shape);
      for (std::size_t i = 0; i < picks.size(); ++i) {
        std::int64_t at = 0;
        for (int k = 0; k < 3; ++k) {
          const std::int64_t coordinate = static_cast<std::int64_t>(i) / out_strides[k] % shape[k];
          at += (k == dim ? picks[i] : coordinate) * strides[k];
        }
        ASSERT_EQ(out[i], from[static_cast<std::size_t>(at)]) << x << dim;
      }
    }
}

TEST(Select, IndexSelectTakesSlicesInTheGivenOrder) {
  const Context context = testing::context();
  const std::vector<std::int64_t> picks = {3, 0, 3, 1, 2};
  for (int d = 0; d < kDTypeCount; ++d)
    for (int dim = -3; dim < 3; ++dim) {
      const Tensor x = uniform_tensor(context, {4, 4, 4}, 2, static_cast<DType>(d), 0, 200);
      const Tensor out = index_select(x, dim, indices(context, picks, {5}));
      for (std::int64_t i = 0; i < 5; ++i)
        EXPECT_EQ(doubles(out.select(dim, i)), doubles(x.select(dim, picks[static_cast<std::size_t>(i)])));
    }
}

TEST(Select, IndexAddIsTheTransposeOfIndexSelect) {
  const Context context = testing::context();
  for (int dim = 0; dim < 3; ++dim) {
    const Tensor x = uniform_tensor(context, {5, 6, 7}, 3, DType::f64);
    const Tensor picks = indices(context, {0, 4, 4, 1}, {4});
    const Tensor selected = index_select(x, dim, picks);
    const Tensor g = uniform_tensor(context, selected.shape(), 4, DType::f64);
    const Tensor back = zeros(context, x.shape(), DType::f64);
    index_add(back, dim, picks, g);
    EXPECT_NEAR(dot(doubles(selected), doubles(g)), dot(doubles(x), doubles(back)), 1e-12);
  }
}

TEST(Select, IndexAddSumsInOrderAndRoundsOnce) {
  const Context context = testing::context();
  // 1 + 512 times 2^-9 in bf16: one by one every addition would be lost.
  const Tensor target = tensor_of(context, {1, 5}, {2, 1}, DType::bf16);
  const Tensor source = tensor_of(context, std::vector<double>(512, 0x1p-9), {512, 1}, DType::bf16);
  index_add(target, 0, zeros(context, {512}, DType::i64), source);
  EXPECT_EQ(doubles(target), (std::vector<double>{2, 5}));
  const Tensor whole = from_values(context, std::vector<std::int32_t>{1, 2, 3}, {3});
  index_add(whole, 0, indices(context, {2, 2}, {2}), from_values(context, std::vector<std::int32_t>{10, 20}, {2}));
  EXPECT_EQ(doubles(whole), (std::vector<double>{1, 2, 33}));
}

TEST(Select, IndexAddGivesTheSameBitsAtOneAndTwoThreads) {
  const auto run = [](int threads) {
    const Context context = testing::context(threads);
    std::vector<std::int64_t> picks(401);
    for (std::size_t i = 0; i < picks.size(); ++i) picks[i] = static_cast<std::int64_t>(i * i % 53);
    const Tensor target = uniform_tensor(context, {3, 53, 211}, 5);
    index_add(target, 1, indices(context, picks, {401}), uniform_tensor(context, {3, 401, 211}, 6));
    return target;
  };
  EXPECT_TRUE(same_bits(run(1), run(2)));
}

TEST(Select, TopKEqualsASortOfEachRow) {
  const Context context = testing::context();
  for (int d = 0; d < kDTypeCount; ++d) {
    const Tensor x = uniform_tensor(context, {7, 301}, 7, static_cast<DType>(d), 0, 90);  // integers repeat
    const kernels::TopK best = top_k(x, 17);
    for (std::int64_t row = 0; row < 7; ++row) {
      const std::vector<double> values = doubles(x.select(0, row));
      std::vector<std::int64_t> order(values.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
      });
      order.resize(17);
      EXPECT_EQ(best.indices.select(0, row).to_vector<std::int64_t>(), order) << x.dtype();
      for (std::size_t i = 0; i < 17; ++i)
        EXPECT_EQ(doubles(best.values.select(0, row))[i], values[static_cast<std::size_t>(order[i])]);
    }
  }
}

TEST(Select, TopKPutsNanFirstAndInfinityNext) {
  const Context context = testing::context();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : kFloats) {
    const Tensor x = tensor_of(context, {1, std::nan(""), -infinity, infinity, 0, std::nan(""), 1}, {7}, dtype);
    EXPECT_EQ(top_k(x, 7).indices.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 5, 3, 0, 6, 4, 2}));
  }
}

TEST(Select, AcceptsEmptyAndStridedTensors) {
  const Context context = testing::context();
  const Tensor x = uniform_tensor(context, {3, 4}, 8), none = empty(context, {0}, DType::i64);
  EXPECT_EQ(index_select(x, 0, none).shape(), (Dims{0, 4}));
  EXPECT_EQ(gather(x, 1, empty(context, {3, 0}, DType::i64)).shape(), (Dims{3, 0}));
  EXPECT_EQ(top_k(x, 0).values.shape(), (Dims{3, 0}));
  EXPECT_EQ(top_k(empty(context, {0, 4}), 2).indices.shape(), (Dims{0, 2}));
  const std::vector<double> before = doubles(x);
  index_add(x, 1, none, empty(context, {3, 0}));
  EXPECT_EQ(doubles(x), before);
  const Tensor turned = x.transpose(0, 1);
  EXPECT_EQ(doubles(index_select(turned, 0, indices(context, {2}, {1}))), doubles(x.select(1, 2)));
}

TEST(Select, NamesAnIndexOutOfRange) {
  const Context context = testing::context();
  const Tensor x = zeros(context, {3, 4});
  EXPECT_EQ(error_of([&] {
              gather(x, 1, indices(context, {0, 4, 0}, {3, 1}));
            }),
            "gather: index 4 at position 1 is outside [0, 4)");
  EXPECT_EQ(error_of([&] { index_select(x, 0, indices(context, {-1}, {1})); }),
            "index_select: index -1 at position 0 is outside [0, 3)");
  EXPECT_EQ(error_of([&] {
              index_add(x, 0, indices(context, {1, 3}, {2}), zeros(context, {2, 4}));
            }),
            "index_add: index 3 at position 1 is outside [0, 3)");
  EXPECT_EQ(error_of([&] { top_k(x, 5); }), "top_k: k must be in [0, 4], got 5 for x f32 (3, 4) on cpu");
}

TEST(Select, RefusesWhatDoesNotFit) {
  const Context context = testing::context();
  const Tensor x = zeros(context, {3, 4});
  EXPECT_EQ(error_of([&] {
              gather(x, 0, zeros(context, {2, 5}, DType::i64));
            }),
            "gather: index must have the shape of x except at dimension 0, got i64 (2, 5) on cpu for x f32 (3, 4) on "
            "cpu");
  EXPECT_EQ(error_of([&] {
              gather(x, 0, zeros(context, {2, 4}, DType::i32));
            }),
            "gather: index must be i64, got i32 (2, 4) on cpu");
  EXPECT_EQ(error_of([&] { index_select(x, 2, zeros(context, {1}, DType::i64)); }),
            "dimension 2 does not exist in f32 (3, 4) on cpu");
  EXPECT_EQ(error_of([&] {
              index_add(x, 0, zeros(context, {2}, DType::i64), zeros(context, {2, 3}));
            }),
            "index_add: source must be f32 (2, 4), got f32 (2, 3) on cpu");
  EXPECT_EQ(error_of([&] {
              index_add(x.transpose(0, 1), 0, zeros(context, {2}, DType::i64), zeros(context, {2, 3}));
            }),
            "index_add: target f32 (4, 3) on cpu is written in place and must be dense, but has strides (1, 4)");
}

}  // namespace
}  // namespace keel
