#include "keel/dist/parallel/rank_sums.h"

#include "keel/kernels/elementwise.h"
#include "keel/runtime/stopwatch.h"

namespace keel {

RankSums::RankSums(std::int64_t count, const RanksSite& site, int sharers, int virtual_ranks)
    : site_(site),
      sharers_(sharers),
      virtual_ranks_(virtual_ranks),
      gathered_(zeros(site.collectives, {site.ranks.size(), virtual_ranks, count}, DType::f64, Purpose::workspace)),
      mine_(site.context == site.collectives
                ? gathered_.select(0, site.ranks.rank())
                : zeros(site.context, {virtual_ranks, count}, DType::f64, Purpose::workspace)),
      all_(sharers * virtual_ranks > 1 ? zeros(site.context, {count}, DType::f64, Purpose::workspace) : mine(0)) {}

// What all ranks have put in, where the optimizer works.
Tensor RankSums::gather() {
  const Stopwatch watch(site_.waited_ms);
  const bool apart = site_.context != site_.collectives;
  const Tensor own = gathered_.select(0, site_.ranks.rank());
  if (apart) kernels::copy_across(own, mine_);
  if (site_.ranks.size() > 1) site_.ranks.all_gather(own.flatten(), gathered_.flatten()).wait();
  return apart ? transfer(gathered_, site_.context, Purpose::workspace) : gathered_;
}

void RankSums::add(CombineOp op) {
  if (sharers_ * virtual_ranks_ == 1 || mine_.numel() == 0) return;
  const Tensor all = gather();
  std::vector<Tensor> terms;
  for (int rank = 0; rank < sharers_; ++rank)
    for (int number = 0; number < virtual_ranks_; ++number) terms.push_back(all.select(0, rank).select(0, number));
  kernels::combine({.terms = terms, .out = all_, .op = op});
}

TensorSums::TensorSums(const Optimizer& optimizer, std::span<const Dims> shapes, const RanksSite& site, int sharers,
                       int virtual_ranks)
    : optimizer_(optimizer) {
  for (int pass = 0; pass < optimizer.requirements().passes; ++pass) {
    std::int64_t count = 0;
    places_.emplace_back();
    for (const Dims& shape : shapes) {
      const std::int64_t begin = count;
      count += optimizer.sum_count(pass, shape);
      places_.back().push_back({begin, count});
    }
    sums_.emplace_back(count, site, sharers, virtual_ranks);
  }
}

void TensorSums::measure(std::span<const ParameterRange> parts, std::span<const ParameterRange> ranges,
                         const StepInput& input) {
  for (std::size_t pass = 0; pass < sums_.size(); ++pass) {
    optimizer_.measure(static_cast<int>(pass), parts, input);
    sums_[pass].add();
    optimizer_.settle(static_cast<int>(pass), ranges, input);
  }
}

}  // namespace keel
