// Gradients as products of narrow matrices that all ranks make together: powersgd.

#include <vector>

#include "keel/dist/parallel/gradient_compressor.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/matmul.h"

namespace keel {
namespace {

// Vogels et al. 2019 (PowerSGD), algorithm 1. With M the gradient and Q the last step's right factor: P = M Q', summed
// over ranks and orthonormalised; Q = P' M, likewise summed; M is delivered as P Q.
class PowerSgdCompressor : public GradientCompressor {
 public:
  PowerSgdCompressor(const FlatBuffer& layout, const Context& context, Communicator& ranks, const Options& options)
      : GradientCompressor(layout, context, ranks, options),
        parts_(low_rank_parts(layout, options.compression.rank)),
        plan_(plan_compression(layout, options.compression, ranks.size(), options.whole, options.wire)) {
    std::int64_t end = 0;
    for (const LowRank& part : parts_) {
      const Segment& segment = layout.segments[part.segment];
      if (end < segment.offset) plain_.push_back({end, segment.offset});
      end = segment.offset + segment.numel;
      offsets_.push_back(segment.offset);
      names_.push_back(segment.name);
    }
    if (end < layout.numel) plain_.push_back({end, layout.numel});
    factors_ = zeros(context, {plan_.reduced_later}, DType::f32, Purpose::gradient);
  }

 private:
  // Calls f(part's number, its P, its Q), views of flat memory.
  template <class F>
  void for_each_part(const Tensor& left, const Tensor& right, const F& f) const {
    std::int64_t at_left = 0, at_right = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto [segment, rows, columns, rank] = parts_[i];
      f(i, left.slice(0, at_left, at_left + rows * rank).view({rows, rank}),
        right.slice(0, at_right, at_right + rank * columns).view({rank, columns}));
      at_left += rows * rank;
      at_right += rank * columns;
    }
  }
  Tensor matrix(const Tensor& flat, std::size_t i) const {
    const LowRank& part = parts_[i];
    return flat.slice(0, offsets_[i], offsets_[i] + part.rows * part.columns).view({part.rows, part.columns});
  }
  // Numbers that are no matrix's, in the unit and behind the left factors.
  template <class F>
  void for_each_plain(const Tensor& flat, const F& f) const {
    std::int64_t at = 0;
    for (const LowRank& part : parts_) at += part.rows * part.rank;
    for (const Span span : plain_) {
      f(flat.slice(0, span.begin, span.end), left_.slice(0, at, at + span.count()));
      at += span.count();
    }
  }

  void send(const Tensor& numbers) override {
    left_ = empty(context_, {plan_.reduced}, DType::f32, Purpose::bucket);
    for_each_part(left_, factors_, [&](std::size_t i, const Tensor& left, const Tensor& right) {
      // A row of zeros would stay one: at first, and where a gradient had fewer independent columns.
      kernels::fill_empty_rows(right, options_.seed, concat("powersgd.", names_[i]));
      kernels::matmul(matrix(numbers, i), right.transpose(0, 1), {.into = left});
    });
    for_each_plain(numbers, [](const Tensor& from, const Tensor& to) {
      kernels::copy_into(to, from);
      kernels::fill(from, 0);
    });
    ask([&] { return ranks_.all_reduce(left_, CombineOp::sum, options_.subject); });
  }
  void send_more(const Tensor& numbers) override {
    wait();
    right_ = empty(context_, {plan_.reduced_later}, DType::f32, Purpose::bucket);
    for_each_part(left_, right_, [&](std::size_t i, const Tensor& left, const Tensor& right) {
      kernels::orthonormalise(left);
      const Tensor whole = matrix(numbers, i);
      kernels::matmul(left.transpose(0, 1), whole, {.into = right});
      const Tensor negative = kernels::clone(right);
      kernels::scale(negative, -1);
      kernels::matmul(left, negative, {.into = whole, .accumulate = true});
    });
    if (right_.numel() > 0) ask([&] { return ranks_.all_reduce(right_, CombineOp::sum, options_.subject); });
  }
  Tensor add_up() override {
    kernels::copy_into(factors_, right_);
    const Tensor sum = zeros(context_, {padded_}, DType::f32, Purpose::workspace);
    for_each_part(left_, right_, [&](std::size_t i, const Tensor& left, const Tensor& right) {
      kernels::matmul(left, right, {.into = matrix(sum, i), .same_bits = true});  // on every rank
    });
    for_each_plain(sum, [](const Tensor& to, const Tensor& from) { kernels::copy_into(to, from); });
    left_ = right_ = {};
    return sum.slice(0, owned_.begin, owned_.end);
  }

  std::vector<LowRank> parts_;
  std::vector<std::int64_t> offsets_;  // of the parts in the unit
  std::vector<std::string> names_;
  std::vector<Span> plain_;
  CompressionPlan plan_;
  Tensor left_, right_;
};

}  // namespace

std::unique_ptr<GradientCompressor> make_power_sgd_compressor(const FlatBuffer& layout, const Context& context,
                                                              Communicator& ranks,
                                                              const GradientCompressor::Options& options) {
  return std::make_unique<PowerSgdCompressor>(layout, context, ranks, options);
}

}  // namespace keel
