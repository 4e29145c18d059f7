#pragma once
// Sends the gradient of one unit in fewer bytes than it has, and keeps what that leaves out for the next step.
//
// Every rank sends payloads of its own gradient; the sum over ranks is taken in fp32 in their order, so that all stages
// give the same bits, and all ranks the same.
//
// Units are sent before the last gradients are known, and one that is not finite takes the whole step back. What was
// left before cannot be computed from what is left then, since sums are rounded and gradients of other ranks' shards go
// as soon as they are sent. So it is held a second time, but from a unit's first message to the end of the step only.

#include <cstdint>
#include <memory>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/schedule.h"
#include "keel/dist/parallel/compression.h"
#include "keel/kernels/codec.h"
#include "keel/nn/flat_buffer.h"
#include "keel/runtime/work_timer.h"

namespace keel {

Codec codec_of(const Compression& compression);

class GradientCompressor {
 public:
  struct Options {
    Compression compression;
    DType wire;              // of sums on their way
    std::uint64_t seed = 1;  // of the first factors
    bool whole = false;      // the sum of the whole unit, not of this rank's shard
    int subject = 0;
  };
  virtual ~GradientCompressor() = default;
  GradientCompressor(const GradientCompressor&) = delete;
  GradientCompressor& operator=(const GradientCompressor&) = delete;

  // Sends the whole gradient, (padded), which is the true one times `scale`. May be called several times in a step.
  void begin(const Tensor& gradient, double scale);
  // Goes on to the second collective, if there is one; blocks until the first has ended.
  void proceed();
  // The sum over ranks, times `scale`: f32 of the unit or of this rank's shard. Blocks.
  Tensor finish();
  // What the step's messages left out is kept, or, where the step was not taken, forgotten with the step.
  void end_step(bool taken);

  // f32 (padded): what has not been delivered, of the true gradient, between steps.
  const Tensor& residual() const { return left_out_; }
  // f32 (rank, columns) of each of low_rank_parts(), one behind the other; undefined but for PowerSGD. The same on
  // every rank.
  const Tensor& factors() const { return factors_; }

  double waited_ms() const { return waited_ms_; }
  double codec_ms() const { return timer_.milliseconds(); }

 protected:
  GradientCompressor(const FlatBuffer& layout, const Context& context, Communicator& ranks, const Options& options);

  // With what is to be sent, of which it leaves what the payload leaves out.
  virtual void send(const Tensor& numbers) = 0;
  virtual void send_more(const Tensor& numbers) = 0;
  // The sum of what has come.
  virtual Tensor add_up() = 0;
  // Of the next collective; none of it is the codec's time.
  template <class F>
  void ask(const F& collective) {
    timer_.stop();
    work_ = collective();
    timer_.start();
  }
  void wait();

  Context context_;
  Communicator& ranks_;
  Options options_;
  std::int64_t padded_, numel_;
  Span owned_;  // whose sum finish() returns
  Tensor factors_;

 private:
  Work work_;
  WorkTimer timer_;
  Tensor left_out_;
  bool begun_ = false;                       // in this step
  Tensor left_out_before_, factors_before_;  // this step, while it has begun
  double scale_ = 1;
  bool more_is_due_ = false;
  double waited_ms_ = 0;
};

// For kinds with feedback. The communicator must outlive it.
std::unique_ptr<GradientCompressor> make_gradient_compressor(const FlatBuffer& layout, const Context& context,
                                                             Communicator& ranks,
                                                             const GradientCompressor::Options& options);

// What that makes: of int8 and topk, and of powersgd.
std::unique_ptr<GradientCompressor> make_payload_compressor(const FlatBuffer& layout, const Context& context,
                                                            Communicator& ranks,
                                                            const GradientCompressor::Options& options);
std::unique_ptr<GradientCompressor> make_power_sgd_compressor(const FlatBuffer& layout, const Context& context,
                                                              Communicator& ranks,
                                                              const GradientCompressor::Options& options);

}  // namespace keel
