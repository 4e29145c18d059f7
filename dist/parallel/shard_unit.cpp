#include "keel/dist/parallel/shard_unit.h"

#include <algorithm>
#include <utility>

namespace keel {

ShardUnit::ShardUnit(FlatBuffer layout, const EngineSite& site, std::size_t number)
    : buffer_(std::move(layout)),
      split_(split_unit(buffer_, site.options, site.place)),
      site_(site, number, buffer_, split_),
      parameters_(site_) {
  if (split_.trainable) gradient_ = buffer_.sparse ? make_rows_gradient(site_) : make_dense_gradient(site_);
  attach_parameters(buffer_);
}

Tensor ShardUnit::shard_gradient(int number) const {
  if (!buffer_.sparse) return counted(gradient_->own(), virtual_shard(number));
  const Span rows = rows_of(buffer_, split_.shard);
  return gradient_->own_rows().between(rows.begin, rows.end).values().flatten();
}

void ShardUnit::add_squares(const Tensor& state, std::int64_t before, int number) const {
  if (const Tensor noted = gradient_->noted(); noted.defined()) return kernels::add_noted(noted, state, before);
  kernels::add_squares(shard_gradient(number), state, before + virtual_shard(number).begin);
}

TensorPart ShardUnit::part(const Segment& segment, std::string name, const Tensor& owned) const {
  return part(segment, std::move(name), owned, split_.owned);
}

TensorPart ShardUnit::part(const Segment& segment, std::string name, const Tensor& values, Span span) {
  const std::int64_t begin = std::clamp(segment.offset, span.begin, span.end);
  const std::int64_t end = std::clamp(segment.offset + segment.numel, span.begin, span.end);
  if (segment.numel == 0) return {std::move(name), segment.shape, 0, values.slice(0, 0, 0)};
  if (begin >= end) return {std::move(name), segment.shape};
  return {std::move(name), segment.shape, begin - segment.offset,
          values.slice(0, begin - span.begin, end - span.begin)};
}

Tensor ShardUnit::counted(const Tensor& owned, Span among) const {
  const std::int64_t end = std::clamp(buffer_.numel, among.begin, among.end);
  return owned.slice(0, among.begin - split_.owned.begin, end - split_.owned.begin);
}

void ShardUnit::count_rows(bool counts) const {
  if (buffer_.sparse) buffer_.segments.front().parameter->variable.leaf()->takes_rows = counts;
}

}  // namespace keel
