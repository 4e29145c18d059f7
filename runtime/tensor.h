#pragma once
// A tensor: a typed, strided view of a storage. It holds numbers and does no arithmetic.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "keel/runtime/dims.h"
#include "keel/runtime/dtype.h"
#include "keel/runtime/storage.h"

namespace keel {

// A value handle. Copying a Tensor copies the view, never the numbers.
class Tensor {
 public:
  Tensor() = default;  // empty: defined() is false
  // `offset` and `strides` count elements. Every element must lie inside the storage.
  Tensor(std::shared_ptr<Storage> storage, Dims shape, Dims strides, std::int64_t offset, DType dtype);

  bool defined() const { return storage_ != nullptr; }
  const Dims& shape() const { return shape_; }
  const Dims& strides() const { return strides_; }
  int rank() const { return shape_.size(); }
  // Extent of a dimension; -1 is the last. An Error when out of range.
  std::int64_t dim(int i) const { return shape_[wrap_dim(i)]; }
  std::int64_t stride(int i) const { return strides_[wrap_dim(i)]; }
  std::int64_t numel() const { return numel_; }
  std::int64_t offset() const { return offset_; }
  DType dtype() const { return dtype_; }
  std::size_t bytes() const { return static_cast<std::size_t>(numel_) * size_of(dtype_); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  const Context& context() const { return storage_->context(); }
  Device device() const { return context().device(); }
  // Dense in row-major order.
  bool is_contiguous() const;
  // `i` counted from the front; throws when it is not a dimension of this tensor.
  int wrap_dim(int i) const;

  // The first element. T must be the tensor's dtype. Runs the storage's touch hook.
  template <class T>
  T* data() const {
    if (dtype_of<T>() != dtype_) [[unlikely]]
      throw_dtype(dtype_of<T>());
    return reinterpret_cast<T*>(raw());
  }
  std::byte* raw() const { return storage_->data() + static_cast<std::size_t>(offset_) * size_of(dtype_); }
  // An in-place write happened: whoever saved this storage for backward will notice.
  void mark_written() const { storage_->bump_version(); }

  // Views. None copies; each throws an Error when the view cannot exist.
  Tensor slice(int dim, std::int64_t begin, std::int64_t end) const;
  Tensor select(int dim, std::int64_t index) const;  // drops the dimension
  Tensor transpose(int a, int b) const;
  Tensor permute(const Dims& order) const;
  Tensor view(Dims shape) const;           // one extent may be -1; needs compatible strides
  Tensor expand(const Dims& shape) const;  // broadcast: extent 1 (or a missing leading one) repeats
  Tensor unsqueeze(int dim) const;
  Tensor squeeze(int dim) const;
  Tensor flatten() const { return view({-1}); }

  // Copies to the host in row-major order. T must be the dtype.
  template <class T>
  std::vector<T> to_vector() const {
    std::vector<T> values(static_cast<std::size_t>(numel_));
    if (dtype_of<T>() != dtype_) throw_dtype(dtype_of<T>());
    copy_to_host(values.data());
    return values;
  }
  // The single number of a one-element tensor, as double.
  double item() const;
  // Fills a dense tensor with numel() numbers of its dtype from the host's memory, which may be reused on return.
  void copy_from_host(const void* source) const;
  // The same for a tensor that nobody has seen yet: it does not count as a write.
  void begin_as(const void* source) const;

 private:
  [[noreturn]] void throw_dtype(DType asked) const;
  void copy_to_host(void* target) const;
  void gather_to_host(void* target, const std::byte* data) const;

  std::shared_ptr<Storage> storage_;
  Dims shape_;
  Dims strides_;
  std::int64_t offset_ = 0;
  std::int64_t numel_ = 0;
  DType dtype_ = DType::f32;
};

// "f32 (2, 3) on cpu", for messages.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

// Uninitialised.
Tensor empty(const Context& context, const Dims& shape, DType dtype = DType::f32,
             Purpose purpose = Purpose::activation);
Tensor zeros(const Context& context, const Dims& shape, DType dtype = DType::f32,
             Purpose purpose = Purpose::activation);
inline Tensor empty_like(const Tensor& like) { return empty(like.context(), like.shape(), like.dtype()); }

// Copies host values into a new tensor of the given shape.
template <class T>
Tensor from_values(const Context& context, std::span<const T> values, const Dims& shape,
                   Purpose purpose = Purpose::activation) {
  Tensor tensor = empty(context, shape, dtype_of<T>(), purpose);
  KEEL_CHECK(static_cast<std::int64_t>(values.size()) == tensor.numel(), "shape ", shape, " holds ", tensor.numel(),
             " elements, but ", values.size(), " values were given");
  if (!values.empty()) tensor.begin_as(values.data());
  return tensor;
}
template <class T>
Tensor from_values(const Context& context, const std::vector<T>& values, const Dims& shape,
                   Purpose purpose = Purpose::activation) {
  return from_values(context, std::span<const T>(values), shape, purpose);
}

// Copies a dense tensor to another context: between devices, to the host or from it. The copy is ordered among the
// work of both sides' current streams; to the host it has happened on return.
Tensor transfer(const Tensor& x, const Context& target, Purpose purpose = Purpose::activation);
// The same into a dense tensor of as many bytes, of another context. It does not count as a write.
void transfer(const Tensor& x, const Tensor& target);

// A dense tensor's numbers on their way to the host, so that other work can go on meanwhile.
class HostCopy {
 public:
  HostCopy() = default;
  explicit HostCopy(const Tensor& x);
  // Into memory of the host that the caller has, of the tensor's size.
  HostCopy(const Tensor& x, const Tensor& target);
  // Blocks until they are there; the tensor is of the host. Throws what the device's work before did wrong.
  const Tensor& get() const;
  bool has_arrived() const { return arrived_.has_passed(); }

 private:
  Tensor copy_;
  Event arrived_;
};

// Hands over the bytes of a dense tensor, from a device through the host's memory. What lies elsewhere, in a file,
// comes in pieces, and its storage stays away.
void read_once(const Tensor& x, const Elsewhere::Reader& reader);

// Adopts the caller's memory without a copy. Strides count elements; `deleter` (may be empty) is
// called once, when the last view is gone. The memory must belong to the context's device.
Tensor from_external(const Context& context, void* memory, const Dims& shape, const Dims& strides, DType dtype,
                     Storage::Deleter deleter = {});

}  // namespace keel
