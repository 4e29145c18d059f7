// Gradients of tables that are kept as rows, against the dense ones.

#include "keel/autograd/row_gradient.h"

#include <gtest/gtest.h>

#include "keel/autograd/backward.h"
#include "keel/autograd/functions.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;
using testing::uniform_tensor;

constexpr std::int64_t kVocabulary = 40, kWidth = 7;

Variable table_of(const Context& context, bool sparse, DType dtype = DType::f32) {
  Variable table(uniform_tensor(context, {kVocabulary, kWidth}, 1, dtype), true);
  table.leaf()->sparse = sparse;
  return table;
}

Tensor ids_of(const Context& context, const std::vector<std::int64_t>& ids) {
  return from_values(context, ids, {static_cast<std::int64_t>(ids.size())});
}

std::vector<std::int64_t> rows_of(const RowGradient& gradient) {
  return {gradient.rows().begin(), gradient.rows().end()};
}

// A weighted sum of what is looked up, so that every number has a gradient of its own.
Variable loss_of(const Variable& table, const std::vector<std::int64_t>& ids, std::uint64_t seed) {
  const Variable found = embedding(table, ids_of(table.context(), ids));
  return sum(mul(found, Variable(uniform_tensor(table.context(), found.shape(), seed, table.dtype()))));
}

TEST(RowGradient, HasTheBitsOfTheDenseGradient) {
  const Context context = testing::context(2);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const Variable dense = table_of(context, false, dtype), sparse = table_of(context, true, dtype);
    // Micro-batches: each repeats rows, the second has new ones, and the last looks up twice.
    for (int micro = 0; micro < 3; ++micro)
      for (const Variable& table : {dense, sparse}) {
        Variable loss = loss_of(table, {5, 3, 5, 0, 39 - micro, 5}, 10 + static_cast<std::uint64_t>(micro));
        if (micro == 2) loss = add(loss, loss_of(table, {3, 20, 20}, 7));
        backward(loss);
      }
    EXPECT_EQ(rows_of(sparse.row_grad()), (std::vector<std::int64_t>{0, 3, 5, 20, 37, 38, 39})) << dtype;
    EXPECT_EQ(doubles(sparse.row_grad().dense()), doubles(dense.grad())) << dtype;
  }
}

TEST(RowGradient, IsAddedInTheWiderTypeOfItsLeaf) {
  const Context context = testing::context(1);
  const Variable dense = table_of(context, false, DType::bf16), sparse = table_of(context, true, DType::bf16);
  dense.leaf()->grad = empty(context, {kVocabulary, kWidth}, DType::f32);
  dense.leaf()->assigned = true;
  sparse.leaf()->dtype = DType::f32;
  for (int micro = 0; micro < 3; ++micro)
    for (const Variable& table : {dense, sparse}) backward(loss_of(table, {4, 4, 11 + micro}, 3));
  EXPECT_EQ(sparse.row_grad().values().dtype(), DType::f32);
  EXPECT_EQ(doubles(sparse.row_grad().dense()), doubles(dense.grad()));
}

TEST(RowGradient, TakesMemoryForTheRowsThatWereUsedAlone) {
  const Context context = testing::context(1);
  Variable table(uniform_tensor(context, {100000, kWidth}, 1), true);
  table.leaf()->sparse = true;
  const auto bytes = [&] { return context.memory()[Purpose::gradient].current; };
  for (int micro = 0; micro < 2; ++micro) {
    backward(loss_of(table, {99999, 5, 5, 70000 + micro}, 3));
    const std::size_t rows = 3 + static_cast<std::size_t>(micro);
    EXPECT_EQ(bytes(), rows * (sizeof(std::int64_t) + kWidth * sizeof(float)));
  }
  EXPECT_LT(context.memory()[Purpose::gradient].peak, 1024U);
  table.zero_grad();
  EXPECT_EQ(bytes(), 0U);
}

TEST(RowGradient, NamesARowThatWasUsedWithAGradientOfZero) {
  const Context context = testing::context(1);
  const Variable table = table_of(context, true);
  const Tensor ids = ids_of(context, {8, 2, 8});
  backward(sum(mul(embedding(table, ids), Variable(zeros(context, {3, kWidth})))));
  EXPECT_EQ(rows_of(table.row_grad()), (std::vector<std::int64_t>{2, 8}));
  EXPECT_EQ(doubles(table.row_grad().values()), std::vector<double>(2 * kWidth));
}

TEST(RowGradient, IsEmptyWhereNothingWasLookedUp) {
  const Context context = testing::context(1);
  const Variable table = table_of(context, true);
  EXPECT_FALSE(table.row_grad().defined());
  backward(add(sum(embedding(table, empty(context, {0}, DType::i64))), sum(Variable(zeros(context, {1}), true))));
  EXPECT_TRUE(table.row_grad().defined());
  EXPECT_EQ(table.row_grad().count(), 0);
  EXPECT_EQ(table.row_grad().values().shape(), (Dims{0, kWidth}));
  EXPECT_EQ(doubles(table.row_grad().dense()), std::vector<double>(kVocabulary * kWidth));
}

TEST(RowGradient, ComesThroughACheckpointOnce) {
  const Context context = testing::context(1);
  const Variable plain = table_of(context, true), again = table_of(context, true);
  const Variable factor(uniform_tensor(context, {3, kWidth}, 5), true);
  const auto look_up = [&](const Variable& table) {
    return [&context, table](const Variable& x) { return mul(embedding(table, ids_of(context, {9, 1, 9})), x); };
  };
  backward(sum(look_up(plain)(factor)));
  const std::function<Variable(const Variable&)> function = look_up(again);
  backward(sum(checkpoint(function, factor)));
  EXPECT_EQ(rows_of(again.row_grad()), rows_of(plain.row_grad()));
  EXPECT_EQ(doubles(again.row_grad().values()), doubles(plain.row_grad().values()));
}

TEST(RowGradient, IsCutByRowsOfTheTable) {
  const Context context = testing::context(1);
  RowGradient gradient(context, {kVocabulary, 2}, DType::f32);
  const std::vector<std::int32_t> ids = {30, 4, 12};
  gradient.add(from_values(context, ids, {3}), testing::tensor_of(context, {1, 2, 3, 4, 5, 6}, {3, 2}));
  EXPECT_EQ(rows_of(gradient.between(4, 30)), (std::vector<std::int64_t>{4, 12}));
  EXPECT_EQ(doubles(gradient.between(4, 30).values()), (std::vector<double>{3, 4, 5, 6}));
  EXPECT_EQ(gradient.between(13, 30).count(), 0);
  EXPECT_EQ(gradient.between(40, 0).count(), 0);
  EXPECT_EQ(gradient.between(0, 40).count(), 3);
}

TEST(RowGradient, RefusesAnOperationThatGivesAllRows) {
  const Context context = testing::context(1);
  const Variable table = table_of(context, true);
  table.leaf()->name = "wte.weight";
  EXPECT_EQ(error_of([&] { backward(sum(mul(table, table))); }),
            "the gradient of wte.weight, of shape (40, 7), is kept as rows, so only look-ups (embedding) may use it; "
            "another operation has given all of it: keep a dense gradient (sparse = false)");
  EXPECT_NE(error_of([&] { (void)table.grad(); }).find("row_grad()"), std::string::npos);
  EXPECT_NE(error_of([&] { (void)table_of(context, false).row_grad(); }).find("not kept as rows"), std::string::npos);
  RowGradient gradient(context, {kVocabulary, 1}, DType::f32);
  EXPECT_EQ(error_of([&] {
              gradient.add(ids_of(context, {3, 40}), zeros(context, {2, 1}));
            }),
            "rows of a gradient: id 40 is outside [0, 40)");
  EXPECT_EQ(error_of([&] {
              gradient.add(ids_of(context, {-1}), zeros(context, {1, 1}));
            }),
            "rows of a gradient: id -1 is outside [0, 40)");
  EXPECT_NE(error_of([&] {
              gradient.add(zeros(context, {1}), zeros(context, {1, 1}));
            }).find("ids must be i32 or i64"),
            std::string::npos);
  EXPECT_NE(error_of([&] { RowGradient(context, {kVocabulary}, DType::f32); }).find("got the shape (40)"),
            std::string::npos);
  EXPECT_EQ(gradient.count(), 0);
}

}  // namespace
}  // namespace keel
