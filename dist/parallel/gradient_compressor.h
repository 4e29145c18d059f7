#pragma once
// Compresses the gradient of one unit, sends it, and keeps the residual for the next step.
//
// Every rank sends payloads of its own gradient. The sum over ranks is taken in fp32 in the order of ranks, so all
// stages and all ranks have the same bits.
//
// Units are sent before the last gradients are known, and a gradient that is not finite undoes the whole step. The
// residual from before the step cannot be computed back from the one after it: sums are rounded, and gradients of other
// ranks' shards are gone as soon as they are sent. So the old residual is kept as well, from a unit's first message to
// the end of the step.

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
    DType wire;              // the dtype in which sums travel
    std::uint64_t seed = 1;  // of the first factors
    bool whole = false;      // finish() gives the sum of the whole unit, not of this rank's shard
    int subject = 0;
  };
  virtual ~GradientCompressor() = default;
  GradientCompressor(const GradientCompressor&) = delete;
  GradientCompressor& operator=(const GradientCompressor&) = delete;

  // Begins to send the whole gradient, (padded), which is the true one times `scale`. May be called several times in a
  // step.
  void begin(const Tensor& gradient, double scale);
  // Goes on to the second collective, if there is one; blocks until the first has ended.
  void proceed();
  // The sum over ranks, times `scale`: f32 of the unit or of this rank's shard. Blocks.
  Tensor finish();
  // Keeps the step's residual, or the one from before the step where that was not taken.
  void end_step(bool taken);

  // f32 (padded): between steps, the residual of the true gradient.
  const Tensor& residual() const { return left_out_; }
  // f32 (rank, columns) of each of low_rank_parts(), one behind the other; undefined but for PowerSGD. The same on
  // every rank.
  const Tensor& factors() const { return factors_; }

  double waited_ms() const { return waited_ms_; }
  double codec_ms() const { return timer_.milliseconds(); }

 protected:
  GradientCompressor(const FlatBuffer& layout, const Context& context, Communicator& ranks, const Options& options);

  // Sends `numbers` and leaves their residual in place; send_more() does so for the second collective.
  virtual void send(const Tensor& numbers) = 0;
  virtual void send_more(const Tensor& numbers) = 0;
  // The sum of all ranks' payloads.
  virtual Tensor add_up() = 0;
  // Begins the next collective, outside of the codec's time.
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
  const FlatBuffer& layout_;
  std::int64_t padded_;
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

// For kinds with feedback. The layout and the communicator must outlive it.
std::unique_ptr<GradientCompressor> make_gradient_compressor(const FlatBuffer& layout, const Context& context,
                                                             Communicator& ranks,
                                                             const GradientCompressor::Options& options);

// The two kinds that it makes: for int8 and topk, and for powersgd.
std::unique_ptr<GradientCompressor> make_payload_compressor(const FlatBuffer& layout, const Context& context,
                                                            Communicator& ranks,
                                                            const GradientCompressor::Options& options);
std::unique_ptr<GradientCompressor> make_power_sgd_compressor(const FlatBuffer& layout, const Context& context,
                                                              Communicator& ranks,
                                                              const GradientCompressor::Options& options);

}  // namespace keel
