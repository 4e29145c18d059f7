#include "keel/data/token_batch.h"

#include <string>
#include <utility>

namespace keel {

Batch token_batch(Tensor input_ids, Tensor labels, Tensor sample_ids, std::int64_t tokens,
                  std::vector<std::int64_t> examples) {
  Batch batch(std::move(sample_ids), std::move(examples));
  batch.set(std::string(kInputIds), std::move(input_ids)).set(std::string(kLabels), std::move(labels));
  return batch.set_weight(std::string(kTokenWeight), static_cast<double>(tokens));
}

Batch token_batch(Tensor input_ids, Tensor labels, Tensor sample_ids, std::int64_t tokens) {
  std::vector<std::int64_t> none(static_cast<std::size_t>(sample_ids.numel()), -1);
  return token_batch(std::move(input_ids), std::move(labels), std::move(sample_ids), tokens, std::move(none));
}

}  // namespace keel
