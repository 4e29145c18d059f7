// Tensors that other frameworks lend and borrow. Acceptance check 23; with PyTorch itself: dlpack_with_pytorch.

#include "keel/runtime/dlpack.h"

#include <gtest/gtest.h>

#include "keel/runtime/dlpack_layout.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;

// Memory of another framework: six numbers, and how often it was given back.
template <class Managed>
struct Lender {
  float numbers[6] = {0, 1, 2, 3, 4, 5};
  std::int64_t shape[2] = {2, 3}, strides[2] = {1, 2};  // column-major
  int deleted = 0;
  Managed managed = {};

  Lender() {
    managed.dl_tensor = {numbers, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { ++static_cast<Lender*>(self->manager_ctx)->deleted; };
    if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) managed.version = {1, 0};
  }
};
using Versioned = Lender<DLManagedTensorVersioned>;

template <class Managed>
void expect_borrowed() {
  Lender<Managed> lender;
  {
    Tensor view;
    {
      const Tensor tensor = from_dlpack(context(1), &lender.managed);
      EXPECT_EQ(static_cast<void*>(tensor.raw()), static_cast<void*>(lender.numbers));
      EXPECT_EQ(doubles(tensor), (std::vector<double>{0, 2, 4, 1, 3, 5}));
      view = tensor.select(0, 1);
    }
    lender.numbers[1] = 10;
    EXPECT_EQ(lender.deleted, 0) << "a view is left";
    EXPECT_EQ(doubles(view), (std::vector<double>{10, 3, 5}));
  }
  EXPECT_EQ(lender.deleted, 1);
}

TEST(Dlpack, BorrowsMemoryByItsStridesAndGivesItBackOnce) {
  expect_borrowed<DLManagedTensorVersioned>();
  expect_borrowed<DLManagedTensor>();
}

TEST(Dlpack, BorrowsDenseMemoryFromAnOffset) {
  Versioned lender;
  lender.managed.dl_tensor.strides = nullptr;
  lender.managed.dl_tensor.byte_offset = 8;
  lender.shape[1] = 2;
  EXPECT_EQ(doubles(from_dlpack(context(1), &lender.managed)), (std::vector<double>{2, 3, 4, 5}));
  lender.managed.dl_tensor.ndim = 0;
  EXPECT_EQ(from_dlpack(context(1), &lender.managed).item(), 2);
  EXPECT_EQ(lender.deleted, 2);
}

TEST(Dlpack, ComesBackInTheSameMemoryInEveryDtypeAndLayout) {
  const Context cpu = context(1);
  for (int number = 0; number < kDTypeCount; ++number) {
    const auto dtype = static_cast<DType>(number);
    const Tensor all = tensor_of(cpu, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {2, 3, 2}, dtype);
    for (const Tensor& x : {all, all.transpose(0, 2), all.slice(1, 1, 3), all.select(2, 1), all.slice(0, 0, 0)}) {
      const Tensor back = from_dlpack(cpu, to_dlpack(x)), old = from_dlpack(cpu, to_dlpack_unversioned(x));
      for (const Tensor& tensor : {back, old}) {
        EXPECT_EQ(tensor.raw(), x.raw());
        EXPECT_EQ(tensor.dtype(), dtype);
        EXPECT_TRUE(tensor.shape() == x.shape() && tensor.strides() == x.strides()) << tensor;
      }
    }
  }
}

TEST(Dlpack, KeepsTheMemoryUntilTheDeleterIsCalled) {
  const Context cpu = context(1);
  Tensor x = tensor_of(cpu, {1, 2, 3}, {3});
  const auto held = [&] { return cpu.memory().by_purpose[static_cast<std::size_t>(Purpose::activation)].current; };
  const std::size_t before = held();
  DLManagedTensorVersioned* const lent = to_dlpack(x);
  EXPECT_EQ(lent->version.major, 1u);
  x = Tensor();
  EXPECT_EQ(held(), before);
  EXPECT_EQ(static_cast<float*>(lent->dl_tensor.data)[2], 3);
  lent->deleter(lent);
  EXPECT_LT(held(), before);
}

TEST(Dlpack, RefusesWhatItCannotShareAndGivesItBack) {
  struct Case {
    std::string text;
    std::function<void(DLManagedTensorVersioned&)> change;
  };
  std::int64_t many[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  const std::vector<Case> cases = {
      {"is of DLPack 2.3, and keel knows version 1",
       [](auto& t) {
         t.version = {2, 3};
       }},
      {"only for reading", [](auto& t) { t.flags = kDLPackReadOnly; }},
      {"on a device of DLPack's type 2, number 3, the context on cpu",
       [](auto& t) {
         t.dl_tensor.device = {kDLCUDA, 3};
       }},
      {"code 2 with 8 bits and 1 lanes",
       [](auto& t) {
         t.dl_tensor.dtype = {kDLFloat, 8, 1};
       }},
      {"code 2 with 32 bits and 4 lanes",
       [](auto& t) {
         t.dl_tensor.dtype = {kDLFloat, 32, 4};
       }},
      {"at most 8 dimensions, got 9", [&](auto& t) { t.dl_tensor.ndim = 9, t.dl_tensor.shape = many; }},
  };
  for (const Case& one : cases) {
    Versioned lender;
    one.change(lender.managed);
    const std::string said = error_of([&] { from_dlpack(context(1), &lender.managed); });
    EXPECT_NE(said.find(one.text), std::string::npos) << said;
    EXPECT_EQ(lender.deleted, 1) << one.text;
  }
  EXPECT_NE(error_of([] { to_dlpack(Tensor()); }), "");
  const Tensor x = tensor_of(context(1), {1}, {1});
  x.storage()->drop();
  x.storage()->restore();
  EXPECT_NE(error_of([&] { to_dlpack(x); }).find("comes and goes"), std::string::npos);
}

}  // namespace
}  // namespace keel
