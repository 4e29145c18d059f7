#include "keel/trainer/batch_rounds.h"

#include <algorithm>
#include <vector>

#include "keel/autograd/variable.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/trainer/pass_group.h"

namespace keel {

void answer_in_rounds(const BatchSource& source, std::int64_t batches, const Context& device, DType dtype,
                      Communicator& ranks, const std::function<std::string(const Batch& batch, Forward& pass)>& answer,
                      const std::function<void(std::span<const std::string> answers)>& take) {
  const NoGrad no_grad;
  PassGroup group(ranks);
  for (std::int64_t first = 0; first < batches; first += ranks.size()) {
    const std::int64_t mine = std::min(first + ranks.rank(), batches - 1);
    Batch loaded;
    together(ranks, [&] { loaded = source.load_all(mine); });
    const Batch batch = transfer(loaded, device);
    Forward pass{.training = false, .random = {}, .sample_ids = batch.sample_ids(), .dtype = dtype, .group = &group};
    const std::vector<std::string> answers = gather_texts(ranks, answer(batch, pass));
    const std::int64_t count = std::min<std::int64_t>(ranks.size(), batches - first);
    take(std::span(answers).first(static_cast<std::size_t>(count)));
  }
}

}  // namespace keel
