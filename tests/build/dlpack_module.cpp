// What tests/build/dlpack_with_pytorch calls: keel's tensors behind C functions. A null result is an error, which
// dlpack_error() tells.

#include <string>

#include "keel/kernels/elementwise.h"
#include "keel/runtime/dlpack.h"

namespace {

std::string error;

template <class F>
auto caught(F&& f) -> decltype(f()) {
  try {
    error.clear();
    return f();
  } catch (const std::exception& caught) { error = caught.what(); }
  return {};
}

const keel::Context& context() {
  static const keel::Context cpu = keel::Context::create({.threads = 1});
  return cpu;
}

}  // namespace

extern "C" {

const char* dlpack_error() { return error.c_str(); }

// 0, 1, 2, ... of that shape, transposed.
keel::Tensor* dlpack_make(const char* dtype, std::int64_t rows, std::int64_t columns) {
  return caught([&] {
    const keel::Tensor numbers = keel::kernels::arange(context(), 0, rows * columns).view({rows, columns});
    return new keel::Tensor(keel::kernels::cast(numbers, keel::parse_dtype(dtype)).transpose(0, 1));
  });
}
keel::Tensor* dlpack_borrow(void* managed, bool versioned) {
  return caught([&] {
    return new keel::Tensor(versioned ? keel::from_dlpack(context(), static_cast<DLManagedTensorVersioned*>(managed))
                                      : keel::from_dlpack(context(), static_cast<DLManagedTensor*>(managed)));
  });
}
void* dlpack_lend(const keel::Tensor* tensor, bool versioned) {
  return caught([&]() -> void* {
    if (versioned) return keel::to_dlpack(*tensor);
    return keel::to_dlpack_unversioned(*tensor);
  });
}
void* dlpack_address(const keel::Tensor* tensor) { return tensor->raw(); }
void dlpack_fill(const keel::Tensor* tensor, double value) { keel::kernels::fill(*tensor, value); }
void dlpack_release(const keel::Tensor* tensor) { delete tensor; }
std::int64_t dlpack_held() {
  std::int64_t held = 0;
  for (const auto& purpose : context().memory().by_purpose) held += static_cast<std::int64_t>(purpose.current);
  return held;
}
}
