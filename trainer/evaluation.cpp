#include "keel/trainer/evaluation.h"

#include <algorithm>
#include <string>

#include "keel/autograd/variable.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"

namespace keel {

void evaluate(const BatchSource& source, std::int64_t batches, const Context& device, DType dtype,
              const ValidationFunction& validate, Metrics& metrics, Communicator& ranks) {
  const NoGrad no_grad;
  for (std::int64_t first = 0; first < batches; first += ranks.size()) {
    // Ranks may gather weights from each other in a forward pass, so those without a batch repeat the last one.
    const std::int64_t mine = std::min(first + ranks.rank(), batches - 1);
    Batch loaded;
    together(ranks, [&] { loaded = source.load_all(mine); });
    const Batch batch = transfer(loaded, device);
    Forward pass{.training = false, .random = {}, .sample_ids = batch.sample_ids(), .dtype = dtype};
    validate(batch, pass, metrics);
    const std::vector<std::string> added = gather_texts(ranks, take_added(metrics));
    for (std::int64_t i = 0; i < ranks.size() && first + i < batches; ++i)
      join_added(metrics, added[static_cast<std::size_t>(i)]);
  }
}

}  // namespace keel
