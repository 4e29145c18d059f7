#include "keel/runtime/tensor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "keel/runtime/device_api.h"

namespace keel {
namespace {

// Elements from the first to one past the last that a view touches.
std::int64_t extent_of(const Dims& shape, const Dims& strides) {
  std::int64_t last = 0;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    last += (shape[i] - 1) * strides[i];
  }
  return last + 1;
}

}  // namespace

Tensor::Tensor(std::shared_ptr<Storage> storage, Dims shape, Dims strides, std::int64_t offset, DType dtype)
    : storage_(std::move(storage)),
      shape_(shape),
      strides_(strides),
      offset_(offset),
      numel_(product(shape)),
      dtype_(dtype) {
  KEEL_CHECK(shape_.size() == strides_.size(), "shape ", shape_, " and strides ", strides_, " differ in rank");
  for (int i = 0; i < shape_.size(); ++i)
    KEEL_CHECK(shape_[i] >= 0 && strides_[i] >= 0, "shape ", shape_, " with strides ", strides_,
               ": extents and strides must not be negative");
  KEEL_CHECK(offset >= 0, "a view of shape ", shape_, " at offset ", offset, " begins before its storage");
  if (numel_ == 0) offset_ = 0;  // a view without elements lies nowhere
  const std::int64_t extent = extent_of(shape_, strides_);
  KEEL_CHECK(static_cast<std::size_t>(offset_ + extent) * size_of(dtype) <= storage_->bytes(), "a view of shape ",
             shape_, " at offset ", offset, " reaches past its storage of ", storage_->bytes(), " bytes");
}

int Tensor::wrap_dim(int i) const {
  const int wrapped = i < 0 ? i + rank() : i;
  KEEL_CHECK(wrapped >= 0 && wrapped < rank(), "dimension ", i, " does not exist in ", *this);
  return wrapped;
}

bool Tensor::is_contiguous() const {
  std::int64_t expected = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != expected) return numel_ == 0;
    expected *= shape_[i];
  }
  return true;
}

Tensor Tensor::slice(int dim, std::int64_t begin, std::int64_t end) const {
  dim = wrap_dim(dim);
  KEEL_CHECK(0 <= begin && begin <= end && end <= shape_[dim], "slice [", begin, ", ", end, ") of dimension ", dim,
             " is outside ", *this);
  Dims shape = shape_;
  shape[dim] = end - begin;
  return Tensor(storage_, shape, strides_, offset_ + begin * strides_[dim], dtype_);
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  dim = wrap_dim(dim);
  KEEL_CHECK(0 <= index && index < shape_[dim], "index ", index, " of dimension ", dim, " is outside ", *this);
  Dims shape = shape_, strides = strides_;
  shape.erase(dim);
  strides.erase(dim);
  return Tensor(storage_, shape, strides, offset_ + index * strides_[dim], dtype_);
}

Tensor Tensor::transpose(int a, int b) const {
  a = wrap_dim(a);
  b = wrap_dim(b);
  Dims shape = shape_, strides = strides_;
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return Tensor(storage_, shape, strides, offset_, dtype_);
}

Tensor Tensor::permute(const Dims& order) const {
  KEEL_CHECK(order.size() == rank(), "permutation ", order, " does not fit ", *this);
  Dims shape, strides;
  std::array<bool, kMaxRank> seen{};
  for (const std::int64_t from : order) {
    const int dim = wrap_dim(static_cast<int>(from));
    KEEL_CHECK(!std::exchange(seen[static_cast<std::size_t>(dim)], true), "permutation ", order, " repeats dimension ",
               dim);
    shape.push_back(shape_[dim]);
    strides.push_back(strides_[dim]);
  }
  return Tensor(storage_, shape, strides, offset_, dtype_);
}

Tensor Tensor::view(Dims shape) const {
  std::int64_t known = 1;
  int inferred = -1;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1) {
      KEEL_CHECK(inferred < 0, "view ", shape, " has more than one -1");
      inferred = i;
    } else {
      known *= shape[i];
    }
  }
  if (inferred >= 0) {
    KEEL_CHECK(known != 0 && numel_ % known == 0, "view ", shape, " does not fit ", *this);
    shape[inferred] = numel_ / known;
  }
  KEEL_CHECK(product(shape) == numel_, "view ", shape, " does not fit ", *this);
  if (numel_ == 0 || is_contiguous()) return Tensor(storage_, shape, dense_strides(shape), offset_, dtype_);

  // Walk both shapes from the right; a group of new extents must lie inside one run of old
  // dimensions that are dense among themselves.
  Dims strides(shape.size(), 0);
  int at = rank() - 1;
  int next = shape.size() - 1;
  while (at >= 0) {
    std::int64_t run = shape_[at];
    const std::int64_t base = strides_[at];
    while (at > 0 && (shape_[at - 1] == 1 || strides_[at - 1] == run * base)) {
      --at;
      run *= shape_[at];
    }
    std::int64_t covered = 1;
    while (next >= 0 && covered < run) {
      strides[next] = base * covered;
      covered *= shape[next--];
    }
    while (next >= 0 && shape[next] == 1) strides[next--] = base * covered;
    KEEL_CHECK(covered == run, "view ", shape, " of ", *this, " with strides ", strides_, " would need a copy");
    --at;
  }
  return Tensor(storage_, shape, strides, offset_, dtype_);
}

Tensor Tensor::expand(const Dims& shape) const {
  KEEL_CHECK(shape.size() >= rank(), "cannot expand ", *this, " to ", shape);
  const int added = shape.size() - rank();
  Dims strides(shape.size(), 0);
  for (int i = 0; i < rank(); ++i) {
    KEEL_CHECK(shape_[i] == shape[i + added] || shape_[i] == 1, "cannot expand ", *this, " to ", shape);
    strides[i + added] = shape_[i] == shape[i + added] ? strides_[i] : 0;
  }
  return Tensor(storage_, shape, strides, offset_, dtype_);
}

Tensor Tensor::unsqueeze(int dim) const {
  if (dim < 0) dim += rank() + 1;
  KEEL_CHECK(dim >= 0 && dim <= rank(), "cannot insert dimension ", dim, " into ", *this);
  Dims shape = shape_, strides = strides_;
  shape.insert(dim, 1);
  strides.insert(dim, dim < rank() ? strides_[dim] * shape_[dim] : 1);
  return Tensor(storage_, shape, strides, offset_, dtype_);
}

Tensor Tensor::squeeze(int dim) const {
  dim = wrap_dim(dim);
  KEEL_CHECK(shape_[dim] == 1, "dimension ", dim, " of ", *this, " is not 1");
  Dims shape = shape_, strides = strides_;
  shape.erase(dim);
  strides.erase(dim);
  return Tensor(storage_, shape, strides, offset_, dtype_);
}

void Tensor::copy_to_host(void* target) const {
  KEEL_CHECK(defined(), "an empty tensor handle holds no numbers");
  if (numel_ == 0) return;
  const Stream stream = context().stream();
  DeviceApi& api = context().api();
  if (is_contiguous()) {
    api.copy(target, raw(), bytes(), stream.native());
    stream.synchronize();
  } else if (device().type == DeviceType::cpu) {
    gather_to_host(target, raw());
  } else {
    std::vector<std::byte> whole(static_cast<std::size_t>(extent_of(shape_, strides_)) * size_of(dtype_));
    api.copy(whole.data(), raw(), whole.size(), stream.native());
    stream.synchronize();
    gather_to_host(target, whole.data());
  }
}

// data: where the first element is, in the host's memory.
void Tensor::gather_to_host(void* target, const std::byte* data) const {
  const std::size_t size = size_of(dtype_);
  auto* out = static_cast<std::byte*>(target);
  Dims index(rank(), 0);
  for (std::int64_t i = 0; i < numel_; ++i) {
    std::int64_t at = 0;
    for (int d = 0; d < rank(); ++d) at += index[d] * strides_[d];
    std::memcpy(out + static_cast<std::size_t>(i) * size, data + static_cast<std::size_t>(at) * size, size);
    for (int d = rank() - 1; d >= 0 && ++index[d] == shape_[d]; --d) index[d] = 0;
  }
}

void Tensor::copy_from_host(const void* source) const {
  begin_as(source);
  mark_written();
}

void Tensor::begin_as(const void* source) const {
  KEEL_CHECK(is_contiguous(), "only a dense tensor can be filled from the host, got ", *this, " with strides ",
             strides_);
  if (numel_ == 0) return;
  context().api().copy(raw(), source, bytes(), context().stream().native());
}

double Tensor::item() const {
  KEEL_CHECK(defined() && numel_ == 1, "item() needs a tensor of one element, got ", *this);
  return visit_dtype(dtype_, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T value = to_vector<T>().front();
    if constexpr (std::is_arithmetic_v<T>) return static_cast<double>(value);
    else return static_cast<double>(static_cast<float>(value));
  });
}

void Tensor::throw_dtype(DType asked) const { throw Error(concat("data of ", *this, " was asked for as ", asked)); }

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "an empty tensor handle";
  return out << tensor.dtype() << ' ' << tensor.shape() << " on " << tensor.device();
}

Tensor empty(const Context& context, const Dims& shape, DType dtype, Purpose purpose) {
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  bool fits = true;
  for (const std::int64_t extent : shape) {
    KEEL_CHECK(extent >= 0, "shape ", shape, " has a negative extent");
    fits = !__builtin_mul_overflow(bytes, extent, &bytes) && fits;
  }
  KEEL_CHECK(fits, "shape ", shape, " in ", dtype, " has more bytes than can be counted");
  return Tensor(std::make_shared<Storage>(context, static_cast<std::size_t>(bytes), purpose), shape,
                dense_strides(shape), 0, dtype);
}

Tensor zeros(const Context& context, const Dims& shape, DType dtype, Purpose purpose) {
  Tensor tensor = empty(context, shape, dtype, purpose);
  if (tensor.numel() != 0) context.api().set_bytes(tensor.raw(), 0, tensor.bytes(), context.stream().native());
  return tensor;
}

namespace {

// Queues the copy of a dense tensor into another of the same size, in another context.
void copy_between(const Tensor& from, const Tensor& to) {
  const Stream source = from.context().stream(), target = to.context().stream();
  const Stream& busy = target.is_asynchronous() ? target : source;  // does the copy
  DeviceApi& api = target.is_asynchronous() ? to.context().api() : from.context().api();
  if (source.is_asynchronous() && target.is_asynchronous()) target.wait(source.record());
  api.copy(to.raw(), from.raw(), from.bytes(), busy.native());
  from.storage()->used_by(busy);
  to.storage()->used_by(busy);
}

}  // namespace

Tensor transfer(const Tensor& x, const Context& target, Purpose purpose) {
  KEEL_CHECK(x.defined(), "an empty tensor handle cannot be transferred");
  Tensor copy = empty(target, x.shape(), x.dtype(), purpose);
  transfer(x, copy);
  return copy;
}

void transfer(const Tensor& x, const Tensor& target) {
  KEEL_CHECK(x.is_contiguous(), "only a dense tensor can be transferred, got ", x, " with strides ", x.strides());
  KEEL_CHECK(target.is_contiguous() && target.bytes() == x.bytes(), x, " cannot be transferred to ", target,
             ": that is not as many bytes");
  if (x.numel() != 0) copy_between(x, target);
  if (!target.context().stream().is_asynchronous()) x.context().synchronize();
}

HostCopy::HostCopy(const Tensor& x)
    : HostCopy(x, empty(x.context().host(), x.shape(), x.dtype(), Purpose::workspace)) {}

HostCopy::HostCopy(const Tensor& x, const Tensor& target) : copy_(target) {
  KEEL_CHECK(x.is_contiguous(), "only a dense tensor can be copied to the host, got ", x);
  KEEL_CHECK(target.context() == x.context().host() && target.is_contiguous() && target.bytes() == x.bytes(), x,
             " cannot be copied to ", target, ": that is not as many bytes of its host");
  if (x.numel() != 0) copy_between(x, copy_);
  arrived_ = x.context().stream().record();
}

const Tensor& HostCopy::get() const {
  arrived_.synchronize();
  return copy_;
}

void read_once(const Tensor& x, const Elsewhere::Reader& reader) {
  KEEL_CHECK(x.is_contiguous(), "only a dense tensor can be read, got ", x);
  if (Elsewhere* const elsewhere = x.storage()->elsewhere())
    return elsewhere->read(x.offset() * static_cast<std::int64_t>(size_of(x.dtype())),
                           static_cast<std::int64_t>(x.bytes()), reader);
  if (x.device().type == DeviceType::cpu) return reader({x.raw(), x.bytes()});
  const HostCopy copy(x);
  reader({copy.get().raw(), x.bytes()});
}

Tensor from_external(const Context& context, void* memory, const Dims& shape, const Dims& strides, DType dtype,
                     Storage::Deleter deleter) {
  const std::size_t bytes = static_cast<std::size_t>(extent_of(shape, strides)) * size_of(dtype);
  auto storage = std::make_shared<Storage>(context, memory, bytes, Purpose::activation, std::move(deleter));
  return Tensor(std::move(storage), shape, strides, 0, dtype);
}

}  // namespace keel
