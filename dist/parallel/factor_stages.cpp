// Gradients as products of narrow matrices that all ranks make together: powersgd.

#include <memory>
#include <vector>

#include "keel/dist/parallel/reducer.h"
#include "keel/kernels/codec.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/matmul.h"

namespace keel {
namespace {

// Vogels et al. 2019 (PowerSGD), algorithm 1. With M the gradient and Q the last step's right factor: P = M Q', summed
// over ranks and orthonormalised; Q = P' M, likewise summed; M is delivered as P Q.
class FactorStages : public RunningStage {
 public:
  explicit FactorStages(const UnitSite& unit) : unit_(unit) {
    const FlatBuffer& layout = unit.buffer;
    std::int64_t end = 0, right = 0;
    for (const LowRank& part : low_rank_parts(layout, unit.options.compression.rank)) {
      const Segment& segment = layout.segments[part.segment];
      if (end < segment.offset) plain_.push_back({end, segment.offset});
      end = segment.offset + segment.numel;
      parts_.push_back(part);
      right += part.rank * part.columns;
      lefts_ += part.rows * part.rank;
    }
    if (end < layout.numel) plain_.push_back({end, layout.numel});
    for (const Span& span : plain_) plain_numbers_ += span.count();
    factors_ = zeros(unit.context, {right}, DType::f32, Purpose::gradient);
  }

  Work begin(const Tensor& numbers, const Tensor&) override {
    return numbers.defined() ? send_left(numbers) : send_right();  // the left ones leave none for the right ones
  }
  Tensor finish() override { return right_.defined() ? sum() : Tensor(); }
  Tensor factors() const override { return factors_; }

 private:
  Work send_left(const Tensor& numbers) {
    {
      const WorkTimer::Scope timing(unit_.times.codec);
      numbers_ = numbers;
      right_ = {};
      left_ = empty(unit_.context, {lefts_ + plain_numbers_}, DType::f32, Purpose::bucket);
      for_each_part(left_, factors_, [&](std::size_t i, const Tensor& left, const Tensor& right) {
        // A row of zeros would stay one: at first, and where a gradient had fewer independent columns.
        kernels::fill_empty_rows(right, unit_.options.seed, concat("powersgd.", segment_of(i).name));
        kernels::matmul(matrix(numbers, i), right.transpose(0, 1), {.into = left});
      });
      for_each_plain(numbers, [](const Tensor& from, const Tensor& to) {
        kernels::copy_into(to, from);
        kernels::fill(from, 0);
      });
    }
    return unit_.axes.shards.all_reduce(left_, CombineOp::sum, unit_.subject());
  }
  Work send_right() {
    {
      const WorkTimer::Scope timing(unit_.times.codec);
      right_ = empty(unit_.context, factors_.shape(), DType::f32, Purpose::bucket);
      for_each_part(left_, right_, [&](std::size_t i, const Tensor& left, const Tensor& right) {
        kernels::orthonormalise(left);
        const Tensor whole = matrix(numbers_, i);
        kernels::matmul(left.transpose(0, 1), whole, {.into = right});
        const Tensor negative = kernels::clone(right);
        kernels::scale(negative, -1);
        kernels::matmul(left, negative, {.into = whole, .accumulate = true});
      });
      numbers_ = {};
    }
    if (right_.numel() == 0) return {};
    return unit_.axes.shards.all_reduce(right_, CombineOp::sum, unit_.subject());
  }
  Tensor sum() {
    const WorkTimer::Scope timing(unit_.times.codec);
    kernels::copy_into(factors_, right_);
    const Tensor sum = zeros(unit_.context, {unit_.split.whole}, DType::f32, Purpose::workspace);
    for_each_part(left_, right_, [&](std::size_t i, const Tensor& left, const Tensor& right) {
      kernels::matmul(left, right, {.into = matrix(sum, i), .same_bits = true});  // on every rank
    });
    for_each_plain(sum, [](const Tensor& to, const Tensor& from) { kernels::copy_into(to, from); });
    left_ = right_ = {};
    if (unit_.split.sums_whole()) return sum;
    return sum.slice(0, unit_.split.shard.begin, unit_.split.shard.end);
  }

  const Segment& segment_of(std::size_t i) const { return unit_.buffer.segments[parts_[i].segment]; }
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
    const std::int64_t begin = segment_of(i).offset, rows = parts_[i].rows, columns = parts_[i].columns;
    return flat.slice(0, begin, begin + rows * columns).view({rows, columns});
  }
  // Numbers that are no matrix's, in the unit and behind the left factors.
  template <class F>
  void for_each_plain(const Tensor& flat, const F& f) const {
    std::int64_t at = lefts_;
    for (const Span span : plain_) {
      f(flat.slice(0, span.begin, span.end), left_.slice(0, at, at + span.count()));
      at += span.count();
    }
  }

  const UnitSite& unit_;
  std::vector<LowRank> parts_;
  std::vector<Span> plain_;
  std::int64_t lefts_ = 0, plain_numbers_ = 0;  // numbers of all P, and of what is no matrix's
  Tensor factors_, left_, right_, numbers_;
};

}  // namespace

std::shared_ptr<RunningStage> make_factor_stages(const UnitSite& unit) { return std::make_shared<FactorStages>(unit); }

}  // namespace keel
