#include "keel/kernels/embedding.h"

#include <gtest/gtest.h>

#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;
using kernels::embedding;
using kernels::embedding_backward;

std::vector<std::int64_t> some_ids(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(i * i * 31 % vocabulary);  // many repeat, some never occur
  return ids;
}

// table[id] += grad[i], in order, in the precision Sum.
template <class Sum>
std::vector<double> scatter_add(std::vector<double> table, const std::vector<std::int64_t>& ids,
                                const std::vector<double>& grad, std::int64_t width) {
  std::vector<Sum> sums(table.begin(), table.end());
  for (std::size_t i = 0; i < ids.size(); ++i)
    for (std::size_t j = 0; j < static_cast<std::size_t>(width); ++j)
      sums[static_cast<std::size_t>(ids[i] * width) + j] +=
          static_cast<Sum>(grad[i * static_cast<std::size_t>(width) + j]);
  return {sums.begin(), sums.end()};
}

TEST(Embedding, CopiesTheRowsOfItsIdsForEveryDtype) {
  const Context context = testing::context();
  for (const DType dtype : kFloats) {
    const Tensor table = uniform_tensor(context, {13, 7}, 1, dtype);
    const Tensor ids = from_values(context, std::vector<std::int32_t>{12, 0, 5, 5, 1, 12}, {2, 3});
    const Tensor out = embedding(table, ids);
    EXPECT_EQ(out.shape(), (Dims{2, 3, 7}));
    for (std::int64_t i = 0; i < 6; ++i)
      EXPECT_EQ(doubles(out.view({6, 7}).select(0, i)),
                doubles(table.select(0, ids.flatten().data<std::int32_t>()[i])));
  }
}

TEST(Embedding, ReadsTablesWithSpacedRows) {
  const Context context = testing::context();
  const Tensor wide = uniform_tensor(context, {5, 9}, 2);
  const Tensor ids = from_values(context, std::vector<std::int64_t>{4, 2}, {2});
  EXPECT_EQ(doubles(embedding(wide.slice(1, 3, 8), ids)), doubles(kernels::embedding(wide, ids).slice(1, 3, 8)));
}

TEST(Embedding, BackwardIsAScatterAddInPositionOrder) {
  const Context context = testing::context();
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool add : {false, true}) {
      const std::vector<std::int64_t> ids = some_ids(523, 97);
      const Tensor grad = uniform_tensor(context, {523, 19}, 3, dtype),
                   table = uniform_tensor(context, {97, 19}, 4, dtype);
      const std::vector<double> held = add ? doubles(table) : std::vector<double>(97 * 19, 0);
      const std::uint64_t version = table.storage()->version();
      embedding_backward(grad, from_values(context, ids, {523}), table, add);
      // The same additions in the same order: equal to the last bit.
      EXPECT_EQ(doubles(table), dtype == DType::f32 ? scatter_add<float>(held, ids, doubles(grad), 19)
                                                    : scatter_add<double>(held, ids, doubles(grad), 19));
      EXPECT_GT(table.storage()->version(), version);
    }
}

TEST(Embedding, BackwardOfNarrowGradientsSumsInFp32AndRoundsOnce) {
  const Context context = testing::context();
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const DType destination : {DType::f32, dtype})
      for (const bool add : {false, true}) {
        const std::vector<std::int64_t> ids = some_ids(700, 11);
        const Tensor grad = uniform_tensor(context, {700, 5}, 5, dtype);
        const Tensor table = uniform_tensor(context, {11, 5}, 6, destination);
        const std::vector<double> held = add ? doubles(table) : std::vector<double>(55, 0);
        embedding_backward(grad, from_values(context, ids, {700}), table, add);
        const Tensor expected =
            tensor_of(context, scatter_add<float>(held, ids, doubles(grad), 5), {11, 5}, destination);
        EXPECT_TRUE(same_bits(table, expected)) << dtype << destination;
      }
}

TEST(Embedding, BackwardGivesTheSameBitsAtOneAndTwoThreads) {
  for (const DType dtype : kFloats) {
    const auto run = [&](int threads) {
      const Context context = testing::context(threads);
      const Tensor table = zeros(context, {211, 67});
      embedding_backward(uniform_tensor(context, {3001, 67}, 7, dtype),
                         from_values(context, some_ids(3001, 211), {3001}), table, true);
      return table;
    };
    EXPECT_TRUE(same_bits(run(1), run(2))) << dtype;
  }
}

TEST(Embedding, AcceptsNoIdsAndNoColumns) {
  const Context context = testing::context();
  const Tensor table = uniform_tensor(context, {3, 4}, 8), none = empty(context, {0}, DType::i64);
  EXPECT_EQ(embedding(table, none).shape(), (Dims{0, 4}));
  embedding_backward(empty(context, {0, 4}), none, table, false);
  EXPECT_EQ(doubles(table), std::vector<double>(12, 0));
  const Tensor id = from_values(context, std::vector<std::int64_t>{2}, {});
  EXPECT_EQ(embedding(empty(context, {3, 0}), id).shape(), (Dims{0}));
  EXPECT_EQ(embedding(table, id).shape(), (Dims{4}));
}

TEST(Embedding, NamesAnIdOutsideTheTable) {
  const Context context = testing::context();
  const Tensor table = zeros(context, {5, 2});
  const Tensor past = from_values(context, std::vector<std::int64_t>{0, 1, 5}, {3});
  const Tensor negative = from_values(context, std::vector<std::int32_t>{-1}, {1});
  EXPECT_EQ(error_of([&] { embedding(table, past); }), "embedding: id 5 at position 2 is outside [0, 5)");
  EXPECT_EQ(error_of([&] { embedding(table, negative); }), "embedding: id -1 at position 0 is outside [0, 5)");
  EXPECT_EQ(error_of([&] {
              embedding_backward(zeros(context, {3, 2}), past, table, true);
            }),
            "embedding_backward: id 5 at position 2 is outside [0, 5)");
  EXPECT_EQ(error_of([&] {
              embedding(zeros(context, {0, 2}), negative);
            }),
            "embedding: id -1 at position 0 is outside [0, 0)");
}

TEST(Embedding, RefusesWhatDoesNotFit) {
  const Context context = testing::context();
  const Tensor table = zeros(context, {5, 2}), ids = zeros(context, {3}, DType::i64);
  EXPECT_EQ(error_of([&] { embedding(zeros(context, {5}), ids); }),
            "embedding: table must be (vocabulary, width), got f32 (5) on cpu");
  EXPECT_EQ(error_of([&] { embedding(table, zeros(context, {3})); }),
            "embedding: ids must be i32 or i64, got f32 (3) on cpu");
  EXPECT_EQ(error_of([&] {
              embedding_backward(zeros(context, {3, 4}), ids, table, false);
            }),
            "embedding_backward: grad_output must be f32 (3, 2), got f32 (3, 4) on cpu");
  EXPECT_EQ(error_of([&] {
              embedding_backward(zeros(context, {3, 2}), ids, zeros(context, {5, 2}, DType::bf16), false);
            }),
            "embedding_backward: grad_table must have the dtype of grad_output or f32, got bf16 (5, 2) on cpu");
}

}  // namespace
}  // namespace keel
