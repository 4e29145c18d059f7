// Gradients as bytes that a codec makes of each rank's: int8, topk.

#include "keel/dist/parallel/gradient_compressor.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

// Each rank's payload of shard i goes to rank i, or to all.
class PayloadCompressor : public GradientCompressor {
 public:
  PayloadCompressor(const FlatBuffer& layout, const Context& context, Communicator& ranks, const Options& options)
      : GradientCompressor(layout, context, ranks, options),
        codec_(codec_of(options.compression)),
        plan_(plan_compression(layout, options.compression, ranks.size(), options.whole, options.wire)),
        part_(layout.padded / ranks.size()) {}

 private:
  std::int64_t bytes() const { return codec_.bytes(part_); }
  Tensor rows_of(const Tensor& flat, std::int64_t first, std::int64_t count) const {
    const std::int64_t length = flat.dtype() == DType::u8 ? bytes() : part_;
    return flat.slice(0, first * length, (first + count) * length).view({count, length});
  }

  void send(const Tensor& numbers) override {
    const std::int64_t n = ranks_.size();
    sent_ = empty(context_, {n * bytes()}, DType::u8, Purpose::bucket);
    kernels::encode({rows_of(numbers, 0, n), rows_of(sent_, 0, n), codec_});
    const bool gathers = plan_.gathered > 0;
    received_ = empty(context_, {gathers ? plan_.gathered : plan_.exchanged}, DType::u8, Purpose::bucket);
    ask([&] {
      return gathers ? ranks_.all_gather(sent_, received_, options_.subject) : ranks_.all_to_all(sent_, received_);
    });
  }
  void send_more(const Tensor&) override {
    if (plan_.gathered_sums == 0) return;
    wait();
    sums_ = empty(context_, {padded_}, options_.wire, Purpose::bucket);
    const Tensor mine = rows_of(sums_, ranks_.rank(), 1).flatten();
    kernels::copy_into(mine, sum_of_payloads(1));
    ask([&] { return ranks_.all_gather(mine, sums_, options_.subject); });
  }
  Tensor add_up() override {
    const Tensor sum = sums_.defined()  ? kernels::cast(sums_, DType::f32)
                       : options_.whole ? sum_of_payloads(ranks_.size())
                                        : sum_of_payloads(1);
    sent_ = received_ = sums_ = {};
    return sum;
  }
  // The sum over ranks of what was received: payloads of so many shards of each rank, rank by rank.
  Tensor sum_of_payloads(std::int64_t shards) const {
    const Tensor sum = zeros(context_, {shards * part_}, DType::f32, Purpose::workspace);
    for (std::int64_t r = 0; r < ranks_.size(); ++r)
      kernels::decode_add({rows_of(sum, 0, shards), rows_of(received_, r * shards, shards), codec_});
    return sum;
  }

  Codec codec_;
  CompressionPlan plan_;
  std::int64_t part_;  // numbers of a shard
  Tensor sent_, received_, sums_;
};

}  // namespace

std::unique_ptr<GradientCompressor> make_payload_compressor(const FlatBuffer& layout, const Context& context,
                                                            Communicator& ranks,
                                                            const GradientCompressor::Options& options) {
  return std::make_unique<PayloadCompressor>(layout, context, ranks, options);
}

}  // namespace keel
