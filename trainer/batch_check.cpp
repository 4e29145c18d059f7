#include "keel/trainer/batch_check.h"

#include <algorithm>
#include <string>

#include "keel/dist/comm/agreement.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr Rows kFirstRow = {0, 1};

// Of two steps: what ranks tell each other at a step's end begins with the one after.
std::string rows_of(const BatchSource& source, std::int64_t step, std::int64_t steps) {
  std::string lines;
  for (std::int64_t each = step; each < std::min(steps, step + 2); ++each)
    lines += concat("step ", each + 1, " of ", source.rows(each), " rows\n");
  return lines;
}

// The set's own fields may be more, and longer or shorter.
void check_fields(const Batch& batch, const Batch& trained, const std::string& name) {
  const std::string set = name.empty() ? "the validation set" : concat("the validation set '", name, "'");
  for (const auto& [field, values] : trained.fields()) {
    KEEL_CHECK(batch.has(field), set, " has no field '", field, "', which the training data has");
    const Tensor& own = batch[field];
    KEEL_CHECK(own.dtype() == values.dtype() && own.rank() == values.rank(), set, " has the field ", field, " as ",
               own.dtype(), ' ', own.shape(), ", and the training data as ", values.dtype(), ' ', values.shape());
  }
  for (const auto& [weight, value] : trained.weights())
    KEEL_CHECK(batch.has_weight(weight), set, " has no weight '", weight, "', which the training data has");
}

}  // namespace

void check_batches(const Data& data, std::int64_t step, std::int64_t steps, Communicator& ranks) {
  std::string lines;
  together(ranks, [&] {
    Batch trained;
    if (step < steps) {
      KEEL_CHECK(data.training->steps() >= steps, "the training data ends after ", data.training->steps(),
                 " steps, but the run has ", steps, "; set steps to no more");
      trained = data.training->load(step, kFirstRow);
      lines = rows_of(*data.training, step, steps) + trained.signature();
    }
    for (const ValidationSet& set : data.validation) {
      if (set.source->steps() == 0) continue;
      const Batch batch = set.source->load(0, kFirstRow);
      lines += concat("validation ", set.name, " of ", set.source->steps(), " batches\n", batch.signature());
      check_fields(batch, trained, set.name);
    }
  });
  check_agreement(ranks, lines, "ranks find other batches");
}

}  // namespace keel
