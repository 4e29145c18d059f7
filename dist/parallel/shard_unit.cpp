#include "keel/dist/parallel/shard_unit.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "keel/kernels/elementwise.h"
#include "keel/runtime/stopwatch.h"

namespace keel {
namespace {

// The same memory for a collective: what it reads and writes is no touch, and the numbers that it brings back are no
// change.
Tensor alias_of(const Tensor& flat) {
  return from_external(flat.context(), flat.raw(), flat.shape(), flat.strides(), flat.dtype());
}

}  // namespace

ShardUnit::ShardUnit(FlatBuffer layout, const Context& context, Communicator& communicator, Communicator* replicas,
                     const ShardingOptions& options, const Memory& memory)
    : buffer_(std::move(layout)),
      context_(context),
      update_context_(memory.offload ? context.host() : context),
      communicator_(communicator),
      replicas_(replicas),
      wire_(memory.wire),
      subject_(memory.subject),
      codec_(context) {
  const ShardingStage& stage = kShardingStages[options.stage];
  const bool several = communicator.size() > 1;
  parameters_sharded_ = several && stage.parameters && buffer_.padded >= options.persistence_threshold;
  gradients_sharded_ = several && stage.gradients;
  adds_sums_ = (several || replicas != nullptr) && memory.reduces_each;
  shard_ = part({0, buffer_.padded}, communicator.size(), communicator.rank());
  owned_ = several && stage.optimizer ? shard_ : Span{0, buffer_.padded};
  make_parameters(memory);
  if (trainable()) make_gradients(memory);
  attach_parameters(buffer_);
}

ShardUnit::~ShardUnit() {
  // The others still need what this rank sends.
  if (gathering_active_ && std::uncaught_exceptions() == 0) {
    try {
      wait_gathered();
    } catch (const std::exception& error) {
      context_.log(LogLevel::error, concat("a gather of ", buffer_.unit, " did not end: ", error.what()));
    }
  }
  if (buffer_.values.defined()) buffer_.values.storage()->set_touch_hook({});
}

void ShardUnit::make_parameters(const Memory& memory) {
  const DType dtype = memory.policy.parameter;
  const Span kept = parameters_sharded_ ? shard_ : Span{0, buffer_.padded};
  const Tensor values = communicator_.allocate(context_, kept.count(), dtype, Purpose::parameter);
  if (trainable() && memory.policy.master()) {
    own_master_ = empty(update_context_, {owned_.count()}, memory.policy.master_dtype(), Purpose::optimizer);
    initialise(buffer_, memory.seed, owned_.begin, own_master_);
  }
  initialise(buffer_, memory.seed, kept.begin, values);
  if (!parameters_sharded_) {
    buffer_.values = values;
    own_values_ = values.slice(0, owned_.begin, owned_.end);
  } else {
    own_values_ = values;
    buffer_.values = empty(context_, {buffer_.padded}, dtype, Purpose::bucket);
    release();
  }
  update_values_ = trainable() ? kernels::to(own_values_, update_context_, Purpose::optimizer) : own_values_;
}

void ShardUnit::adopt_weights() {
  if (own_master_.defined()) kernels::copy_into(update_values_, own_master_);
  send_values();
}

void ShardUnit::send_values() {
  if (update_values_.storage() == own_values_.storage()) return;
  kernels::copy_into(own_values_, transfer(update_values_, context_, Purpose::bucket));
}

void ShardUnit::make_gradients(const Memory& memory) {
  const DType dtype = memory.accumulates || buffer_.tied ? memory.policy.gradient : memory.policy.parameter;
  if (buffer_.sparse) {
    buffer_.row_dtype = dtype;
    return;
  }
  const Purpose purpose = gradients_sharded_ ? Purpose::bucket : Purpose::gradient;
  // Memory that comes and goes is this rank's alone.
  buffer_.gradient = gradients_sharded_ ? empty(context_, {buffer_.padded}, dtype, purpose)
                                        : communicator_.allocate(context_, buffer_.padded, dtype, purpose);
  buffer_.clear_gaps(0, buffer_.gradient);
  if (memory.compression.kind().feedback && communicator_.size() > 1)
    compressor_ = make_gradient_compressor(buffer_, context_, communicator_,
                                           {.compression = memory.compression,
                                            .wire = wire_,
                                            .seed = memory.seed,
                                            .whole = !adds_sums_ && owned_.count() == buffer_.padded,
                                            .subject = subject_});
  if (gradients_sharded_ || adds_sums_) own_sum_ = empty(context_, {shard_.count()}, dtype, Purpose::gradient);
  const bool is_gathered = adds_sums_ && owned_.count() > shard_.count();
  own_gradient_ = own_sum_.defined() && !is_gathered ? own_sum_ : buffer_.gradient.slice(0, owned_.begin, owned_.end);
  if (!own_sum_.defined()) own_sum_ = own_gradient_;
  if (!gradients_sharded_) return;
  Storage& storage = *buffer_.gradient.storage();
  storage.drop();
  // The first contribution of a backward pass brings the memory; finish_reduce() gives it back.
  storage.set_touch_hook([this](Storage& gradient) {
    if (gradient.resident()) return;
    gradient.restore();
    buffer_.clear_gaps(0, buffer_.gradient);
  });
}

Span ShardUnit::rows_of(Span elements) const {
  const std::int64_t width = std::max<std::int64_t>(buffer_.segments.front().shape[1], 1);
  return {elements.begin / width, elements.end / width};
}

Tensor ShardUnit::shard_gradient() const {
  if (!buffer_.sparse) return counted(own_gradient_);
  const Span rows = rows_of(shard_);
  return own_rows_.between(rows.begin, rows.end).values().flatten();
}

Tensor ShardUnit::counted(const Tensor& owned) const {
  const std::int64_t end = std::clamp(buffer_.numel, shard_.begin, shard_.end);
  return owned.slice(0, shard_.begin - owned_.begin, end - owned_.begin);
}

void ShardUnit::wait(Work& work) {
  const Stopwatch watch(waited_ms_);
  std::exchange(work, {}).wait();
}

void ShardUnit::gather() {
  Storage& storage = *buffer_.values.storage();
  if (!parameters_sharded_ || storage.resident()) return;
  storage.set_touch_hook({});
  storage.restore();
  const Tensor whole = alias_of(buffer_.values);
  gathering_ = communicator_.all_gather(own_values_, whole, subject_);
  gathering_active_ = true;
  storage.set_touch_hook([this](Storage&) { touch(); });
}

void ShardUnit::wait_gathered() {
  if (!gathering_active_) return;
  gathering_active_ = false;
  Storage& storage = *buffer_.values.storage();
  storage.set_touch_hook({});
  wait(gathering_);
}

// Whoever reads the values gets them whole and up to date.
void ShardUnit::touch() {
  if (told_of_touch_) told_of_touch_();
  gather();
  wait_gathered();
}

void ShardUnit::release() {
  if (!parameters_sharded_) return;
  Storage& storage = *buffer_.values.storage();
  if (!storage.resident()) return;
  wait_gathered();
  storage.drop();
  storage.set_touch_hook([this](Storage&) { touch(); });
}

void ShardUnit::share_updates() {
  if (owned_.count() == buffer_.padded) return;
  if (parameters_sharded_) {
    release();
    buffer_.values.storage()->bump_version();
    return;
  }
  const Tensor whole = alias_of(buffer_.values);
  gathering_ = communicator_.all_gather(whole.slice(0, owned_.begin, owned_.end), whole, subject_);
  gathering_active_ = true;
  buffer_.values.storage()->bump_version();
  buffer_.values.storage()->set_touch_hook([this](Storage&) { wait_gathered(); });
}

void ShardUnit::begin_reduce(double scale) {
  buffer_.complete_gradient();
  const bool alone = communicator_.size() == 1 && replicas_ == nullptr;
  if (buffer_.sparse) {
    const RowGradient& rows = buffer_.segments.front().parameter->variable.leaf()->rows;
    if (alone) own_rows_ = rows;
    else row_sums_.emplace(rows, wire_, communicator_, subject_);
    return;
  }
  if (alone) return;
  if (compressor_) return compressor_->begin(buffer_.gradient, scale);
  crosses_groups_ = replicas_ != nullptr;
  const bool converts = buffer_.gradient.dtype() != wire_;
  if (converts) {
    const WorkTimer::Scope timing(codec_);
    sent_ = kernels::cast(buffer_.gradient, wire_);
  } else {
    sent_ = buffer_.gradient;
  }
  if (!adds_sums_ && owned_.count() == buffer_.padded) {
    received_ = sent_;
    reducing_ = communicator_.all_reduce(sent_, CombineOp::sum, subject_);
    return;
  }
  received_ = !converts && !gradient_begun_ ? own_sum_ : empty(context_, {shard_.count()}, wire_, Purpose::bucket);
  reducing_ = communicator_.reduce_scatter(sent_, received_, CombineOp::sum, subject_);
}

void ShardUnit::continue_reduce() {
  if (row_sums_) return row_sums_->proceed();
  if (compressor_) return compressor_->proceed();
  if (!std::exchange(crosses_groups_, false)) return;
  wait(reducing_);
  reducing_ = replicas_->all_reduce(received_, CombineOp::sum, subject_);
}

// The sum inside the group, and then across groups.
void ShardUnit::finish_rows() {
  const Span owned = rows_of(owned_);
  for (Communicator* across = replicas_;; across = nullptr) {
    const RowGradient sum = row_sums_->finish(owned);
    waited_ms_ += row_sums_->waited_ms();
    row_sums_.reset();
    if (across == nullptr) return keep_rows(sum);
    row_sums_.emplace(sum, wire_, *across, subject_);
  }
}

void ShardUnit::keep_rows(const RowGradient& sum) {
  const RowGradient rows = sum.cast(buffer_.row_dtype);
  if (gradient_begun_) own_rows_.add(rows.indices(), rows.values());
  else own_rows_ = rows;
  gradient_begun_ = true;
  buffer_.zero_grad();
}

void ShardUnit::count_rows(bool counts) const {
  if (buffer_.sparse) buffer_.segments.front().parameter->variable.leaf()->takes_rows = counts;
}

void ShardUnit::finish_reduce() {
  if (communicator_.size() == 1 && replicas_ == nullptr) return;
  if (row_sums_) return finish_rows();
  if (compressor_) {
    const Tensor sum = compressor_->finish();
    const WorkTimer::Scope timing(codec_);
    received_ = kernels::cast(sum, wire_);
  } else {
    continue_reduce();
    wait(reducing_);
  }
  if (received_.raw() != own_sum_.raw()) {
    const WorkTimer::Scope timing(codec_);
    if (gradient_begun_) kernels::accumulate(own_sum_, received_);
    else kernels::copy_into(own_sum_, received_);
  }
  gradient_begun_ = true;
  sent_ = received_ = {};
  if (gradients_sharded_ || adds_sums_) buffer_.zero_grad();
  if (gradients_sharded_) buffer_.gradient.storage()->drop();
}

void ShardUnit::gather_gradient() {
  if (gathers_sums()) reducing_ = communicator_.all_gather(own_sum_, own_gradient_, subject_);
}

void ShardUnit::wait_gradient() {
  if (gathers_sums()) wait(reducing_);
}

void ShardUnit::zero_grad() {
  if (!trainable()) return;
  buffer_.zero_grad();
  own_rows_ = {};
  gradient_begun_ = false;
  if (compressor_) compressor_->end_step(false);
}

}  // namespace keel
