#pragma once
// One unit of a model on one rank: its flat memory, whole or in part, and the collectives that move it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/schedule.h"
#include "keel/dist/parallel/gradient_compressor.h"
#include "keel/dist/parallel/row_sums.h"
#include "keel/dist/parallel/sharding.h"
#include "keel/nn/flat_buffer.h"
#include "keel/runtime/work_timer.h"

namespace keel {

// The layout is the same in every stage: rank r's shard is part r of n equal parts of the padded unit. Of what the
// stage shards, a rank keeps its own shard only.
//
//             parameters           gradients                        master and optimizer state
//   stage 0   whole                whole                            whole
//   stage 1   whole                whole                            shard
//   stage 2   whole                shard; whole while backward runs shard
//   stage 3   shard; whole in use  as stage 2                       shard
//
// Where gradients are reduced after each backward pass, their sums over ranks are added up in a shard of their own in
// stages 0 and 1, too; stage 0 gathers it in the end.
//
// A table whose gradient is kept as rows has no memory for gradients: own_rows() holds the rows that this rank owns.
class ShardUnit {
 public:
  struct Memory {
    PrecisionPolicy policy;
    DType wire;  // the dtype in which gradients travel
    Compression compression = {};
    std::uint64_t seed;         // of the initial numbers
    bool accumulates = false;   // several backward passes between two steps
    bool reduces_each = false;  // gradients are summed over the ranks after each of them
    bool offload = false;       // masters and optimizer state lie in the processor's memory, and it updates
    int subject = 0;            // the unit's number, as its collectives name it
  };
  // Shards are spread over the ranks of `communicator`; `replicas`, if any, are the ranks with the same shard.
  ShardUnit(FlatBuffer layout, const Context& context, Communicator& communicator, Communicator* replicas,
            const ShardingOptions& options, const Memory& memory);
  ~ShardUnit();
  ShardUnit(const ShardUnit&) = delete;
  ShardUnit& operator=(const ShardUnit&) = delete;

  const FlatBuffer& layout() const { return buffer_; }
  bool trainable() const { return buffer_.trainable; }
  Span shard() const { return shard_; }  // of this rank
  Span owned() const { return owned_; }  // what this rank updates: its shard, or everything (stage 0)

  // Values and gradient of the owned elements, dense, on the device.
  const Tensor& own_values() const { return own_values_; }
  const Tensor& own_gradient() const { return own_gradient_; }
  // The owned gradient where that is kept as rows, once it was reduced. Rows are numbered in the whole table.
  bool sparse() const { return buffer_.sparse; }
  const RowGradient& own_rows() const { return own_rows_; }
  Span rows_of(Span elements) const;
  // The weights as the optimizer sees them, in fp32 where there are masters: on the processor if it is offloaded.
  const Tensor& own_weights() const { return own_master_.defined() ? own_master_ : update_values_; }
  // What the optimizer reads and writes, in the memory where it works: own_values() and own_gradient(), or copies.
  const Context& update_context() const { return update_context_; }
  const Tensor& update_values() const { return update_values_; }
  const Tensor& own_master() const { return own_master_; }  // undefined without masters
  // The part of a tensor of the owned elements that this rank counts in norms and sums: its shard, without padding.
  Tensor counted(const Tensor& owned) const;
  // The gradient of this rank's shard, without padding, as the norm counts it; the values of own_rows() where it is
  // kept as rows.
  Tensor shard_gradient() const;

  // adopt_weights() copies own_weights() to the values, on the device, too; send_values() copies update_values() to the
  // device. share_updates() sends them to the other ranks.
  void adopt_weights();
  void send_values();

  // Parameters. gather() begins to gather the whole ones (it does nothing where they are there), wait_gathered() blocks
  // until they are there, and release() gives their memory back (stage 3). share_updates() sends what this rank has
  // updated to the others. Of an engine's units its schedule alone gathers and releases: whoever reads weights touches
  // them, and calls Sharded::release_weights() in the end.
  bool parameters_sharded() const { return parameters_sharded_; }
  void gather();
  void wait_gathered();
  void release();
  void share_updates();
  // Called where somebody reads the whole parameters, before they are gathered for it.
  void when_touched(std::function<void()> told) { told_of_touch_ = std::move(told); }

  // Gradients. begin_reduce() sends the whole ones. finish_reduce() waits, and adds the sum over ranks to those of
  // earlier passes of this step. Between the two, continue_reduce() begins the next collective: the sum across groups
  // after that inside a group, or the second one of compressed gradients. After the last pass, gather_gradient() begins
  // to gather the sums where this rank owns more than its shard of them, and wait_gradient() blocks until they are in
  // own_gradient(); elsewhere both do nothing.
  std::int64_t gradient_bytes() const {  // 0 where the gradient is kept as rows
    return buffer_.gradient.defined() ? static_cast<std::int64_t>(buffer_.gradient.bytes()) : 0;
  }
  // `scale` is the factor by which gradients are larger than the true ones.
  void begin_reduce(double scale = 1);
  void continue_reduce();
  void finish_reduce();
  bool gathers_sums() const { return own_gradient_.defined() && own_gradient_.numel() > own_sum_.numel(); }
  void gather_gradient();
  void wait_gradient();
  // Forgets what was added since the last step.
  void zero_grad();
  // Whether the rows that are looked up from now on count as used.
  void count_rows(bool counts) const;
  // Null where gradients are not compressed with error feedback.
  GradientCompressor* compressor() const { return compressor_.get(); }

  // Milliseconds in which this thread has waited for collectives of the unit, and in which gradients were encoded and
  // decoded.
  double waited_ms() const { return waited_ms_ + (compressor_ ? compressor_->waited_ms() : 0); }
  double codec_ms() const { return codec_.milliseconds() + (compressor_ ? compressor_->codec_ms() : 0); }

 private:
  void make_parameters(const Memory& memory);
  void make_gradients(const Memory& memory);
  void touch();
  void wait(Work& work);
  void finish_rows();
  void keep_rows(const RowGradient& sum);

  FlatBuffer buffer_;  // values and gradient may be without memory
  Context context_;
  Context update_context_;
  Communicator& communicator_;
  Communicator* replicas_;
  bool parameters_sharded_, gradients_sharded_;
  bool adds_sums_;  // of several passes, apart from this rank's own gradient
  DType wire_;
  int subject_;
  Span shard_, owned_;
  Tensor own_values_, own_master_, own_gradient_, update_values_;
  Tensor
      own_sum_;  // where finish_reduce() leaves the sum over ranks: own_gradient_, or the shard that is gathered to it
  RowGradient own_rows_;
  std::optional<RowSums> row_sums_;
  bool gradient_begun_ = false;  // own_sum_ or own_rows_ holds a sum of this step
  Tensor sent_, received_;       // gradients in the wire dtype, while they travel
  Work reducing_, gathering_;
  bool gathering_active_ = false, crosses_groups_ = false;
  std::unique_ptr<GradientCompressor> compressor_;
  std::function<void()> told_of_touch_;
  double waited_ms_ = 0;
  WorkTimer codec_;
};

}  // namespace keel
