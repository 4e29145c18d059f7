#include "keel/kernels/cpu/blocks.h"

#include <algorithm>

namespace keel::cpu {
namespace {

template <class T, class C>
const C* load_block(const std::byte* data, const Layout& layout, std::int64_t begin, int n, C* buffer) {
  const T* base = reinterpret_cast<const T*>(data);
  RowCursor row(layout, begin);
  const std::int64_t stride = layout.strides.back();
  if constexpr (std::is_same_v<T, C>)
    if (stride == 1 && row.left() >= n) return base + row.offset();
  for (int done = 0; done < n;) {
    const int count = static_cast<int>(std::min<std::int64_t>(row.left(), n - done));
    const T* from = base + row.offset();
    C* to = buffer + done;
    if (stride == 1) {
      for (int i = 0; i < count; ++i) to[i] = widen<C>(from[i]);
    } else if (stride == 0) {
      std::fill_n(to, count, widen<C>(*from));
    } else {
      for (int i = 0; i < count; ++i) to[i] = widen<C>(from[i * stride]);
    }
    done += count;
    if (done < n) row.advance(count);
  }
  return buffer;
}

template <class T, class C>
void store_block(std::byte* data, const Layout& layout, std::int64_t begin, int n, const C* values) {
  T* base = reinterpret_cast<T*>(data);
  RowCursor row(layout, begin);
  const std::int64_t stride = layout.strides.back();
  for (int done = 0; done < n;) {
    const int count = static_cast<int>(std::min<std::int64_t>(row.left(), n - done));
    const C* from = values + done;
    T* to = base + row.offset();
    if (stride == 1) {
      for (int i = 0; i < count; ++i) to[i] = narrow<T>(from[i]);
    } else {
      for (int i = 0; i < count; ++i) to[i * stride] = narrow<T>(from[i]);
    }
    done += count;
    if (done < n) row.advance(count);
  }
}

}  // namespace

RowCursor::RowCursor(const Layout& layout, std::int64_t begin) : layout_(layout), index_(layout.shape.size(), 0) {
  const int last = layout.shape.size() - 1;
  if (last == 0) {
    column_ = begin;
  } else {
    column_ = begin % layout.shape[last];
    begin /= layout.shape[last];
    for (int d = last - 1; d >= 0; --d) {
      index_[d] = d > 0 ? begin % layout.shape[d] : begin;
      begin /= layout.shape[d];
      offset_ += index_[d] * layout.strides[d];
    }
  }
  offset_ += column_ * layout.strides[last];
}

void RowCursor::advance(std::int64_t count) {
  const int last = layout_.shape.size() - 1;
  column_ += count;
  offset_ += count * layout_.strides[last];
  if (column_ < layout_.shape[last]) return;
  offset_ -= column_ * layout_.strides[last];
  column_ = 0;
  for (int d = last - 1; d >= 0; --d) {
    offset_ += layout_.strides[d];
    if (++index_[d] < layout_.shape[d] || d == 0) return;
    offset_ -= layout_.shape[d] * layout_.strides[d];
    index_[d] = 0;
  }
}

template <class C>
Reader<C>::Reader(const Tensor& x)
    : data_(x.raw()),
      layout_(x),
      load_(visit_dtype(x.dtype(), [](auto tag) -> Load { return &load_block<typename decltype(tag)::type, C>; })) {}

template <class C>
Writer<C>::Writer(const Tensor& out)
    : data_(out.raw()),
      layout_(out),
      in_place_(layout_.dense() && out.dtype() == dtype_of<C>()),
      store_(
          visit_dtype(out.dtype(), [](auto tag) -> Store { return &store_block<typename decltype(tag)::type, C>; })) {}

template class Reader<float>;
template class Reader<double>;
template class Reader<std::int64_t>;
template class Writer<float>;
template class Writer<double>;
template class Writer<std::int64_t>;

}  // namespace keel::cpu
