#include "keel/capi/array.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "keel/capi/handles.h"
#include "keel/kernels/elementwise.h"

namespace keel::capi {
namespace {

constexpr std::int64_t kMostElements = std::numeric_limits<std::int64_t>::max() / 16;

DType dtype_of(int dtype) {
  switch (dtype) {
    case KEEL_F32: return DType::f32;
    case KEEL_F64: return DType::f64;
    case KEEL_I32: return DType::i32;
    case KEEL_I64: return DType::i64;
    default: throw Error(concat("dtype ", dtype, " is none of KEEL_F32, KEEL_F64, KEEL_I32 and KEEL_I64"));
  }
}

// An Error where an extent is negative or memory of that size cannot be.
void check_extents(const Dims& shape, const Dims& strides) {
  std::int64_t elements = 1, last = 0;
  for (int i = 0; i < shape.size(); ++i) {
    KEEL_CHECK(shape[i] >= 0 && strides[i] >= 0, "shape ", shape, " with strides ", strides,
               ": extents and strides must not be negative");
    KEEL_CHECK(shape[i] == 0 || elements <= kMostElements / shape[i], "shape ", shape, " has too many elements");
    elements *= shape[i];
    KEEL_CHECK(shape[i] <= 1 || strides[i] <= (kMostElements - last) / (shape[i] - 1), "shape ", shape,
               " with strides ", strides, " is larger than any memory");
    if (shape[i] > 1) last += (shape[i] - 1) * strides[i];
  }
}

Dims dims_of(const std::int64_t* values, int rank) { return Dims(std::span(values, static_cast<std::size_t>(rank))); }

std::shared_ptr<Array> make_array(std::shared_ptr<Site> site, void* memory, DType dtype, int place, const Dims& shape,
                                  const Dims& strides) {
  check_extents(shape, strides);
  KEEL_CHECK(memory != nullptr || product(shape) == 0, "memory is NULL, but the shape ", shape, " has elements");
  KEEL_CHECK(reinterpret_cast<std::uintptr_t>(memory) % size_of(dtype) == 0, "memory at ", memory,
             " is not aligned to the ", size_of(dtype), " bytes of ", dtype);
  KEEL_CHECK(place == KEEL_HOST || place == KEEL_DEVICE, "place ", place, " is neither KEEL_HOST nor KEEL_DEVICE");
  KEEL_CHECK(
      place == KEEL_HOST || site->context.device().type != DeviceType::cpu,
      "KEEL_DEVICE memory is that of the context's GPU, and this context computes on the processor: say KEEL_HOST, or "
      "give the context the setting device: cuda");
  const Context& owner = place == KEEL_DEVICE ? site->context : site->context.host();
  Tensor tensor = from_external(owner, memory, shape, strides, dtype);
  return std::make_shared<Array>(Array{std::move(site), std::move(tensor)});
}

}  // namespace

void check_writable(const Array& array) {
  if (array.tensor.numel() == 0) return;
  const Dims &shape = array.tensor.shape(), &strides = array.tensor.strides();
  std::vector<std::pair<std::int64_t, std::int64_t>> by_stride;  // stride, extent
  for (int i = 0; i < shape.size(); ++i)
    if (shape[i] > 1) by_stride.emplace_back(strides[i], shape[i]);
  std::sort(by_stride.begin(), by_stride.end());
  std::int64_t last = 0;  // that is reached without the larger strides
  for (const auto& [stride, extent] : by_stride) {
    KEEL_CHECK(stride > last, "the output's strides ", strides, " for its shape ", shape,
               " put several elements in one place");
    last += stride * (extent - 1);
  }
}

Tensor read_array(const Array& array, DType dtype) {
  const Context& context = array.site->context;
  const Tensor& tensor = array.tensor;
  if (tensor.context() == context) return kernels::cast(tensor, dtype);
  return kernels::to(kernels::contiguous(kernels::cast(tensor, dtype)), context);
}

void write_array(const Tensor& result, const Array& array) {
  const Tensor& target = array.tensor;
  kernels::copy_into(target, kernels::to(kernels::contiguous(result), target.context()));
  array.site->context.synchronize();
}

}  // namespace keel::capi

using namespace keel;
using namespace keel::capi;

extern "C" {

keel_status keel_array_create(const keel_context* context, void* memory, int dtype, int place, int rank,
                              const int64_t* shape, const int64_t* strides, keel_array** array) {
  return call("keel_array_create", [&] {
    create(array, "array", [&] {
      const auto site = object_of(context);
      KEEL_CHECK(rank >= 0 && rank <= kMaxRank, "rank ", rank, " is not in [0, ", kMaxRank, "]");
      KEEL_CHECK(shape != nullptr || rank == 0, "shape is NULL");
      const Dims extents = dims_of(shape, rank);
      const Turn turn(*site);
      return make_array(site, memory, dtype_of(dtype), place, extents,
                        strides == nullptr ? dense_strides(extents) : dims_of(strides, rank));
    });
  });
}

keel_status keel_array_destroy(keel_array** array) {
  return call("keel_array_destroy", [&] { destroy(array, "array"); });
}
}
