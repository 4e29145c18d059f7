#include "keel/tasks/metrics/values.h"

#include "keel/data/token_batch.h"
#include "keel/kernels/elementwise.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

bool is_whole(const Tensor& tensor) { return tensor.dtype() == DType::i32 || tensor.dtype() == DType::i64; }

}  // namespace

std::vector<double> floating_numbers(const Tensor& tensor) {
  KEEL_CHECK(is_floating(tensor.dtype()), "a metric of numbers was fed with ", tensor.dtype(), ' ', tensor.shape());
  if (tensor.dtype() == DType::f64) return tensor.to_vector<double>();
  const std::vector<float> values = kernels::cast(tensor, DType::f32).to_vector<float>();
  return {values.begin(), values.end()};
}

std::vector<std::int64_t> whole_values(const Tensor& tensor) {
  KEEL_CHECK(is_whole(tensor), "a metric of whole numbers was fed with ", tensor.dtype(), ' ', tensor.shape());
  if (tensor.dtype() == DType::i64) return tensor.to_vector<std::int64_t>();
  const std::vector<std::int32_t> values = tensor.to_vector<std::int32_t>();
  return {values.begin(), values.end()};
}

std::vector<CountedTarget> counted_targets(const Tensor& guesses, const Tensor& targets) {
  KEEL_CHECK(is_whole(guesses) && is_whole(targets) && guesses.shape() == targets.shape(),
             "guesses and targets are whole numbers of one shape, not ", guesses.dtype(), ' ', guesses.shape(), " and ",
             targets.dtype(), ' ', targets.shape());
  const std::vector<std::int64_t> guessed = whole_values(guesses), wanted = whole_values(targets);
  std::vector<CountedTarget> counted;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i] != kIgnoreTarget) counted.push_back({guessed[i], wanted[i]});
  return counted;
}

double ratio_of(double sum, double count) { return count > 0 ? sum / count : kUndefined; }

}  // namespace keel
