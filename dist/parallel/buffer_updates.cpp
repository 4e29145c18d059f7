#include "keel/dist/parallel/buffer_updates.h"

#include "keel/kernels/combine.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/step_state.h"
#include "keel/runtime/stopwatch.h"

namespace keel {

BufferUpdates::BufferUpdates(Module& model, Communicator& ranks, const EngineSite& site)
    : buffers_(attach_buffers(model, site.context)),
      ranks_(ranks),
      times_(site.times),
      virtual_ranks_(site.place.virtual_ranks) {
  std::int64_t count = 0;
  for (const auto& buffer : buffers_) {
    if (buffer->momentum == 0) continue;
    changing_.push_back({buffer.get(), {count, count + buffer->value.numel()}});
    count += buffer->value.numel() + 1;
  }
  moving_ = zeros(site.context, {count}, DType::f32, Purpose::workspace);
  if (!changes()) return;
  gathered_ = zeros(site.context, {ranks.size() * virtual_ranks_, count}, DType::f32, Purpose::workspace);
  one_ = kernels::full(site.context, {1}, 1);
}

std::string BufferUpdates::describe(Module& model) {
  std::string lines;
  for_each_buffer(model, [&](const std::string& path, Buffer& buffer) {
    const Buffer::State& state = *buffer.state();
    lines +=
        concat("buffer ", path, ' ', state.shape, ", initially ", state.initial, ", momentum ", state.momentum, '\n');
  });
  return lines;
}

void BufferUpdates::close() const {
  for (const auto& buffer : buffers_) buffer->closed = true;
}

void BufferUpdates::forget() const {
  for (const auto& buffer : buffers_) {
    buffer->observed = Tensor();
    buffer->count = 0;
    buffer->closed = false;
  }
}

void BufferUpdates::collect(int number) {
  if (!changes()) return;
  const Tensor mine = gathered_.select(0, ranks_.rank() * virtual_ranks_ + number);
  for (const auto& [buffer, place] : changing_) {
    const Tensor numbers = mine.slice(0, place.begin, place.end);
    if (buffer->observed.defined()) kernels::copy_into(numbers, buffer->observed.flatten());
    else kernels::fill(numbers, 0);
    kernels::fill(mine.slice(0, place.end, place.end + 1), static_cast<double>(buffer->count));
  }
  if (virtual_ranks_ > 1) forget();
}

void BufferUpdates::apply(const Tensor& state) {
  if (!changes()) return;
  if (ranks_.size() > 1) {
    const Stopwatch watch(times_.waited_ms);
    const std::int64_t first = std::int64_t{ranks_.rank()} * virtual_ranks_;
    ranks_.all_gather(gathered_.slice(0, first, first + virtual_ranks_).flatten(), gathered_.flatten()).wait();
  }
  std::vector<Tensor> terms;
  for (std::int64_t each = 0; each < gathered_.dim(0); ++each) terms.push_back(gathered_.select(0, each));
  kernels::combine({.terms = terms, .out = moving_});

  const Tensor taken = kernels::taken_of(state), zero = kernels::full(moving_.context(), {1}, 0);
  for (const auto& [buffer, place] : changing_) {
    const Tensor mean = moving_.slice(0, place.begin, place.end), count = moving_.slice(0, place.end, place.end + 1);
    kernels::scale_by(mean, one_, kernels::cast(count, DType::i64));
    const Tensor change = kernels::binary<Sub>(mean.view(buffer->shape), buffer->value);
    kernels::scale(change, buffer->momentum);
    // Both are 1, which changes nothing, or 0, which gives zeros also of what is not finite.
    kernels::scale_by(change, one_, kernels::cast(kernels::binary<Greater>(count, zero), DType::i64));
    kernels::scale_by(change, one_, taken);
    kernels::accumulate(buffer->value, change);
  }
}

TensorParts BufferUpdates::parts() const {
  TensorParts parts;
  for (const auto& buffer : buffers_) {
    parts.push_back({buffer->name, buffer->shape});
    if (ranks_.rank() == 0) parts.back().values = buffer->value.view({buffer->value.numel()});
  }
  return parts;
}

void BufferUpdates::share() {
  if (ranks_.size() == 1) return;
  const Stopwatch watch(times_.waited_ms);
  for (const auto& buffer : buffers_) ranks_.broadcast(buffer->value, 0).wait();
}

}  // namespace keel
