#include "keel/runtime/dlpack.h"

#include <memory>

#include "keel/runtime/dlpack_layout.h"

namespace keel {
namespace {

static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64 && sizeof(DLManagedTensorVersioned) == 80);

struct DtypeRow {
  DType dtype;
  DLDataTypeCode code;
  std::uint8_t bits;
};
constexpr DtypeRow kDtypes[] = {
    {DType::f32, kDLFloat, 32}, {DType::bf16, kDLBfloat, 16}, {DType::f16, kDLFloat, 16}, {DType::f64, kDLFloat, 64},
    {DType::i32, kDLInt, 32},   {DType::i64, kDLInt, 64},     {DType::u8, kDLUInt, 8},    {DType::u8, kDLBool, 8},
};

DLDataType dlpack_dtype(DType dtype) {
  for (const DtypeRow& row : kDtypes)
    if (row.dtype == dtype) return {row.code, row.bits, 1};
  throw Error(concat("DLPack has no type for ", dtype), ErrorKind::internal);
}

DType keel_dtype(DLDataType dtype) {
  for (const DtypeRow& row : kDtypes)
    if (row.code == dtype.code && row.bits == dtype.bits && dtype.lanes == 1) return row.dtype;
  throw Error(concat("keel has no type for DLPack's numbers of code ", int{dtype.code}, " with ", int{dtype.bits},
                     " bits and ", dtype.lanes, " lanes"),
              ErrorKind::unsupported);
}

// What a result of to_dlpack() keeps alive.
template <class Managed>
struct Lent {
  Managed managed = {};
  Tensor tensor;
  Dims shape, strides;
};

template <class Managed>
Managed* lend(const Tensor& tensor) {
  KEEL_CHECK(tensor.defined(), "to_dlpack: the tensor is empty");
  const Device device = tensor.device();
  if (device.type == DeviceType::emulated)
    throw Error(concat("to_dlpack: no other framework can use the memory of ", device), ErrorKind::unsupported);
  if (tensor.storage()->comes_and_goes())
    throw Error(concat("to_dlpack: the memory of this ", tensor, " comes and goes; copy it first"),
                ErrorKind::unsupported);
  auto lent = std::make_unique<Lent<Managed>>();
  lent->tensor = tensor;
  lent->shape = tensor.shape();
  lent->strides = tensor.strides();
  lent->managed.dl_tensor = {.data = tensor.raw(),
                             .device = {device.type == DeviceType::cpu ? kDLCPU : kDLCUDA, device.index},
                             .ndim = tensor.rank(),
                             .dtype = dlpack_dtype(tensor.dtype()),
                             .shape = const_cast<std::int64_t*>(lent->shape.begin()),
                             .strides = const_cast<std::int64_t*>(lent->strides.begin()),
                             .byte_offset = 0};
  lent->managed.manager_ctx = lent.get();
  lent->managed.deleter = [](Managed* self) { delete static_cast<Lent<Managed>*>(self->manager_ctx); };
  return &lent.release()->managed;
}

template <class Managed>
void give_back(Managed* managed) {
  if (managed->deleter != nullptr) managed->deleter(managed);
}

template <class Managed>
Tensor borrow(const Context& context, std::shared_ptr<Managed> managed) {
  const DLTensor& given = managed->dl_tensor;
  const Device device = context.device();
  const bool is_here = given.device.device_type == kDLCPU || given.device.device_type == kDLCUDAHost
                           ? device.type == DeviceType::cpu
                           : given.device.device_type == kDLCUDA && device.type == DeviceType::cuda &&
                                 given.device.device_id == device.index;
  if (!is_here)
    throw Error(concat("from_dlpack: the tensor is on a device of DLPack's type ", int{given.device.device_type},
                       ", number ", given.device.device_id, ", the context on ", device),
                ErrorKind::unsupported);
  KEEL_CHECK(given.ndim >= 0 && given.ndim <= kMaxRank, "from_dlpack: a tensor has at most ", kMaxRank,
             " dimensions, got ", given.ndim);
  const auto rank = static_cast<std::size_t>(given.ndim);
  const Dims shape(std::span<const std::int64_t>(given.shape, rank));
  Dims strides(given.ndim, 1);
  for (int i = given.ndim - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
  if (given.strides != nullptr) strides = Dims(std::span<const std::int64_t>(given.strides, rank));
  auto* const memory = static_cast<std::byte*>(given.data) + given.byte_offset;
  return from_external(context, memory, shape, strides, keel_dtype(given.dtype),
                       [managed](void*) mutable { managed.reset(); });
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& tensor) {
  auto* const managed = lend<DLManagedTensorVersioned>(tensor);
  managed->version = {1, 0};
  return managed;
}

DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor) { return lend<DLManagedTensor>(tensor); }

Tensor from_dlpack(const Context& context, DLManagedTensorVersioned* tensor) {
  KEEL_CHECK(tensor != nullptr, "from_dlpack: there is no tensor");
  std::shared_ptr<DLManagedTensorVersioned> managed(tensor, give_back<DLManagedTensorVersioned>);
  if (tensor->version.major != 1)
    throw Error(concat("from_dlpack: the tensor is of DLPack ", tensor->version.major, '.', tensor->version.minor,
                       ", and keel knows version 1"),
                ErrorKind::unsupported);
  if ((tensor->flags & kDLPackReadOnly) != 0)
    throw Error("from_dlpack: the tensor is only for reading, which keel's are not; copy it first",
                ErrorKind::unsupported);
  return borrow(context, std::move(managed));
}

Tensor from_dlpack(const Context& context, DLManagedTensor* tensor) {
  KEEL_CHECK(tensor != nullptr, "from_dlpack: there is no tensor");
  return borrow(context, std::shared_ptr<DLManagedTensor>(tensor, give_back<DLManagedTensor>));
}

}  // namespace keel
