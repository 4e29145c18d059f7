// Table look-up and its gradient on a device, and the sort that they rest on.

#include "keel/kernels/embedding.h"

#include <algorithm>
#include <numeric>

#include "keel/kernels/cuda/sort.h"
#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(EmbeddingOnDevice);

// Many repeat, some never occur.
std::vector<std::int64_t> some_ids(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(i * i * 31 % vocabulary);
  return ids;
}

TEST_P(EmbeddingOnDevice, SortKeepsTheOrderOfEqualKeys) {
  for (const std::int64_t count : {1, 33, 2048, 4100})  // in one tile and several
    for (const std::uint32_t mask : {0u, 0x30u, 0xffffffu}) {
      const std::int64_t rows = 2;
      std::vector<std::uint32_t> keys;
      for (std::int64_t i = 0; i < rows * count; ++i)
        keys.push_back(static_cast<std::uint32_t>(i * i) * 2654435761u & mask);
      const std::vector<std::int32_t> given(keys.begin(), keys.end());
      const int bits = mask == 0 ? 0 : 32 - std::countl_zero(mask);
      const cuda::SortedRows sorted = cuda::sort_rows(from_values(device, given, {rows, count}), 0, bits);
      const std::vector<std::int32_t> got = sorted.keys.to_vector<std::int32_t>();
      const std::vector<std::int32_t> positions = sorted.positions.to_vector<std::int32_t>();
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::uint32_t* const first = keys.data() + row * count;
        std::vector<std::int32_t> order(static_cast<std::size_t>(count));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return first[a] < first[b]; });
        for (std::int64_t i = 0; i < count; ++i) {
          const auto at = static_cast<std::size_t>(row * count + i);
          ASSERT_EQ(positions[at], order[static_cast<std::size_t>(i)]) << count << ' ' << mask << ' ' << i;
          ASSERT_EQ(static_cast<std::uint32_t>(got[at]), first[positions[at]]);
        }
      }
    }
}

TEST_P(EmbeddingOnDevice, SortLooksAtTheGivenBitsOnly) {
  const std::vector<std::int32_t> keys = {0x3ff, 0x201, 0x0ff, 0x100};
  const cuda::SortedRows sorted = cuda::sort_rows(from_values(device, keys, {1, 4}), 8, 16);
  EXPECT_EQ(sorted.positions.to_vector<std::int32_t>(), (std::vector<std::int32_t>{2, 3, 1, 0}));
}

TEST_P(EmbeddingOnDevice, CopiesTheRowsOfItsIds) {
  for (const DType dtype : kKernelTypes)
    for (const std::int64_t width : {1, 7, 8, 130}) {
      const Tensor table = uniform_tensor(device, {13, width + 3}, 1, dtype);
      const Tensor wide = from_values(device, some_ids(22, 13), {2, 11}), narrow = kernels::cast(wide, DType::i32);
      for (const Tensor& rows : {table, table.slice(1, 3, width + 3), table.slice(1, 0, width)}) {
        const Tensor expected = kernels::embedding(kernels::to(rows, host), kernels::to(wide, host));
        for (const Tensor& ids : {wide, narrow}) {
          const Tensor out = kernels::embedding(rows, ids);
          EXPECT_EQ(out.shape(), expected.shape());
          EXPECT_EQ(doubles(out), doubles(expected)) << rows << rows.strides();
        }
      }
    }
  EXPECT_EQ(kernels::embedding(zeros(device, {3, 4}), empty(device, {0}, DType::i64)).shape(), (Dims{0, 4}));
  EXPECT_EQ(kernels::embedding(zeros(device, {3, 0}), zeros(device, {2}, DType::i64)).shape(), (Dims{2, 0}));
}

TEST_P(EmbeddingOnDevice, AnIdOutsideTheTableGivesZerosAndIsNamedAtTheNextWait) {
  const Tensor table = kernels::full(device, {3, 5}, 2);
  for (const std::int64_t bad : {std::int64_t{3}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    const Tensor ids = from_values(device, std::vector<std::int64_t>{1, bad}, {2});
    const Tensor out = kernels::embedding(table, ids);
    const auto message = [&] {
      try {
        device.stream().synchronize();
      } catch (const Error& error) { return std::string(error.what()); }
      return std::string("no error");
    };
    EXPECT_NE(message().find(concat("embedding: id ", bad, " at position 1 is outside [0, 3)")), std::string::npos);
    EXPECT_EQ(doubles(out), (std::vector<double>{2, 2, 2, 2, 2, 0, 0, 0, 0, 0}));
    const Tensor grad_table = empty(device, {3, 5});
    kernels::embedding_backward(out, ids, grad_table, false);
    EXPECT_NE(message().find(concat(" ", bad, " at position 1 is outside [0, 3)")), std::string::npos);
    EXPECT_EQ(doubles(grad_table), (std::vector<double>{0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0}));
  }
}

TEST_P(EmbeddingOnDevice, BackwardGivesTheBitsOfTheProcessor) {
  for (const DType dtype : kKernelTypes)
    for (const DType table_type : {dtype, DType::f32})
      for (const std::int64_t width : {1, 8, 9, 24, 72})
        for (const bool add : {false, true}) {
          const Tensor grad = uniform_tensor(host, {300, width}, 3, dtype);
          const Tensor ids = from_values(host, some_ids(300, 41), {300});
          const Tensor held = uniform_tensor(host, {41, width}, 4, table_type);
          const Tensor result = on_device(held);
          kernels::embedding_backward(on_device(grad), on_device(ids), result, add);
          kernels::embedding_backward(grad, ids, held, add);
          EXPECT_EQ(doubles(result), doubles(held)) << grad << held << add;
        }
}

TEST_P(EmbeddingOnDevice, LongRunsOfOneIdAreAddedInOrderToo) {
  for (const DType dtype : kKernelTypes)
    for (const std::int64_t width : {17, 64, 80})
      for (const std::int64_t before : {0, 1, 63}) {  // where in the sorted ids the long run begins
        std::vector<std::int64_t> ids(static_cast<std::size_t>(before), 0);
        ids.insert(ids.end(), 64, 2);
        ids.insert(ids.end(), 63, 3);
        ids.insert(ids.end(), 131, 4);
        for (std::size_t i = 0; i < ids.size(); ++i) std::swap(ids[i], ids[i * 97 % ids.size()]);
        const auto count = static_cast<std::int64_t>(ids.size());
        const Tensor grad = uniform_tensor(host, {count, width}, 5, dtype), held = zeros(host, {6, width});
        const Tensor result = kernels::full(device, {6, width}, 7);
        kernels::embedding_backward(on_device(grad), from_values(device, ids, {count}), result, false);
        kernels::embedding_backward(grad, from_values(host, ids, {count}), held, false);
        EXPECT_EQ(doubles(result), doubles(held)) << grad << before;
      }
}

TEST_P(EmbeddingOnDevice, BackwardOfNothingIsZero) {
  const Tensor none = empty(device, {0}, DType::i64), grad = empty(device, {0, 5});
  const Tensor table = kernels::full(device, {3, 5}, 2);
  kernels::embedding_backward(grad, none, table, true);
  EXPECT_EQ(doubles(table), std::vector<double>(15, 2));
  kernels::embedding_backward(grad, none, table, false);
  EXPECT_EQ(doubles(table), std::vector<double>(15, 0));
  kernels::embedding_backward(empty(device, {4, 0}), zeros(device, {4}, DType::i64), empty(device, {3, 0}), false);
}

}  // namespace
}  // namespace keel
