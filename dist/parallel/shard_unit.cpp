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

void ShardUnit::add_squares(const Tensor& state, std::int64_t before, int number) const {
  if (const Tensor noted = gradient_->noted(); noted.defined()) return kernels::add_noted(noted, state, before);
  const Span shard = virtual_shard(number);
  before += shard.begin;
  if (!buffer_.sparse) return kernels::add_squares(counted(gradient_->own(), shard), state, before);
  const Span rows = rows_of(buffer_, split_.shard);
  kernels::add_squares(gradient_->own_rows().between(rows.begin, rows.end).values().flatten(), state, before);
}

void ShardUnit::add_parts(TensorParts& parts, std::string_view prefix, const Tensor& values, Span span) const {
  for (const Segment& segment : buffer_.segments) {
    TensorPart& part = parts.emplace_back(TensorPart{concat(prefix, segment.name), segment.shape});
    const Span own = overlap(span_of(segment), span);
    if (own.count() > 0) part.begin = own.begin - segment.offset;
    if (own.count() > 0 || segment.numel == 0)
      part.values = values.slice(0, own.begin - span.begin, own.end - span.begin);
  }
}

Tensor ShardUnit::counted(const Tensor& owned, Span among) const {
  const std::int64_t end = std::clamp(buffer_.numel, among.begin, among.end);
  return owned.slice(0, among.begin - split_.owned.begin, end - split_.owned.begin);
}

void ShardUnit::count_rows(bool counts) const {
  if (buffer_.sparse) buffer_.segments.front().parameter->variable.leaf()->takes_rows = counts;
}

}  // namespace keel
