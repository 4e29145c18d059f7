#include "keel/dist/parallel/tensor_sums.h"

#include <chrono>

#include "keel/kernels/combine.h"
#include "keel/kernels/elementwise.h"

namespace keel {

TensorSums::TensorSums(const Optimizer& optimizer, std::span<const Dims> shapes, const Context& context,
                       const Context& collectives, Communicator& ranks, int sharers)
    : optimizer_(optimizer), ranks_(ranks), context_(context), sharers_(sharers) {
  for (int pass = 0; pass < optimizer.passes(); ++pass) {
    std::int64_t count = 0;
    places_.emplace_back();
    for (const Dims& shape : shapes) {
      const std::int64_t begin = count;
      count += optimizer.sum_count(pass, shape);
      places_.back().push_back({begin, count});
    }
    gathered_.push_back(zeros(collectives, {ranks.size(), count}, DType::f64, Purpose::workspace));
    rows_.push_back(context == collectives ? gathered_.back().select(0, ranks.rank())
                                           : zeros(context, {count}, DType::f64, Purpose::workspace));
    sums_.push_back(sharers > 1 ? zeros(context, {count}, DType::f64, Purpose::workspace) : rows_.back());
  }
}

std::vector<Tensor> TensorSums::cut(std::size_t parameter, const std::vector<Tensor>& by_pass) const {
  std::vector<Tensor> sums;
  for (std::size_t pass = 0; pass < by_pass.size(); ++pass) {
    const Span place = places_[pass][parameter];
    sums.push_back(by_pass[pass].slice(0, place.begin, place.end));
  }
  return sums;
}

void TensorSums::measure(std::span<const ParameterRange> parts, std::span<const ParameterRange> ranges,
                         const StepInput& input) {
  for (std::size_t pass = 0; pass < rows_.size(); ++pass) {
    optimizer_.measure(static_cast<int>(pass), parts, input);
    if (sharers_ > 1 && rows_[pass].numel() > 0) add_ranks(pass);
    optimizer_.settle(static_cast<int>(pass), ranges, input);
  }
}

void TensorSums::add_ranks(std::size_t pass) {
  const auto begin = std::chrono::steady_clock::now();
  const bool apart = context_ != gathered_[pass].context();
  const Tensor own = gathered_[pass].select(0, ranks_.rank());
  if (apart) kernels::copy_into(own, transfer(rows_[pass], own.context(), Purpose::workspace));
  ranks_.all_gather(own, gathered_[pass].flatten()).wait();
  const Tensor all = apart ? transfer(gathered_[pass], context_, Purpose::workspace) : gathered_[pass];
  waited_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  std::vector<Tensor> terms;
  for (int rank = 0; rank < sharers_; ++rank) terms.push_back(all.select(0, rank));
  kernels::combine({.terms = terms, .out = sums_[pass]});
}

}  // namespace keel
