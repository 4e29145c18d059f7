#include "keel/trainer/own_loop.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "keel/data/divide_rows.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/kernels/elementwise.h"
#include "keel/optim/schedule.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/learning_rate.h"
#include "keel/trainer/step_loader.h"
#include "keel/trainer/step_loss.h"
#include "keel/trainer/step_note.h"

namespace keel {

std::int64_t micro_batches_of(std::int64_t rows, std::int64_t micro, const Communicator& ranks, int virtual_ranks) {
  return std::ssize(divide_rows(rows, micro, 0, virtual_ranks > 0 ? virtual_ranks : ranks.size()));
}

StepCurves make_curves(const ScheduleSettings& schedule, double rate, std::int64_t steps, const Context& context) {
  return tabulated(LearningRate(RateSchedule(schedule, rate, steps), rate), steps, context);
}

// The step at hand, and what it is made of.
struct MicroBatch::Step {
  Step(std::shared_ptr<const BatchSource> its_source, Sharded& its_engine, Communicator& all,
       const StepBatchesOptions& given)
      : source(std::move(its_source)), engine(its_engine), ranks(all.split(0, all.rank())), options(given) {
    KEEL_CHECK(options.micro >= 1 && options.first_step >= 0, "batches of ", options.micro, " rows after ",
               options.first_step, " steps; rows are at least 1, steps at least 0");
    check_agreement(*ranks, concat(source->fingerprint(), '\n', source->steps(), " steps"),
                    "ranks have different data");
    loader.emplace(StepLoader::Site{.source = source,
                                    .rank = ranks->rank(),
                                    .ranks = ranks->size(),
                                    .context = engine.context(),
                                    .micro = options.micro,
                                    .micro_batches = most(),
                                    .workers = options.workers,
                                    .virtual_ranks = engine.virtual_ranks()},
                   options.first_step);
  }

  std::int64_t most() const { return engine.options().micro_batches * engine.virtual_ranks(); }
  std::vector<Batch> take() {
    const std::int64_t count = loader->count(done);
    KEEL_CHECK(count <= most(), "step ", done + 1, " has ", source->rows(done), " rows, in ", count,
               " micro-batches on each rank, but the engine was made for ", most(),
               "; micro_batches_of() says how many to make it for");
    return loader->take();
  }

  // Of so many of a step.
  std::size_t of_virtual_rank(std::size_t all) const { return all / static_cast<std::size_t>(engine.virtual_ranks()); }
  void begin() {
    micro_batches.clear();
    losses.clear();
    totals = {};
    if (done >= source->steps()) return;
    std::vector<Batch> batches;
    together(*ranks, [&] { batches = take(); });
    const RandomStream random = {options.seed, static_cast<std::uint64_t>(done), 0};
    if (done == options.first_step)
      check_agreement(*ranks, batches.front().signature(), "ranks have different batches");
    for (Batch& batch : batches) {
      Forward pass{.training = true,
                   .random = random,
                   .sample_ids = batch.sample_ids(),
                   .dtype = engine.options().policy.parameter,
                   .observes = !batch.is_stand_in()};
      const bool last = (micro_batches.size() + 1) % of_virtual_rank(batches.size()) == 0;
      micro_batches.push_back(MicroBatch(std::move(batch), std::move(pass), last, *this));
    }
    ++done;
  }

  // What the weights of the step's terms come to, where there are several.
  void add_up(const std::vector<std::string>& weights) {
    std::vector<double> mine;
    std::vector<Batch> batches;
    for (const MicroBatch& micro : micro_batches) {
      batches.push_back(micro.batch);
      if (micro.last_) std::ranges::copy(sum_weights(weights, std::exchange(batches, {})), std::back_inserter(mine));
    }
    totals = WeightTotals(weights, GatheringOfSums(*ranks, mine, engine.virtual_ranks()).wait());
  }

  void backward(const MicroBatch& micro, const Loss& loss) {
    const std::vector<std::string> weights = weights_of(loss);
    if (losses.empty()) {
      if (done == options.first_step + 1)
        check_agreement(*ranks, loss.description(), concat("step ", done, ": ranks have different losses"));
      if (weights.size() > 1) add_up(weights);
      if (done == options.first_step + 1) check_counts(loss, micro.batch);
    } else if (loss.signature() != losses.front().signature()) {
      throw Error(MessageLines{concat("step ", done,
                                      ": all micro-batches of a step have the same terms and factors, and one has\n",
                                      loss.description())});
    }
    losses.emplace_back(loss, micro.batch);
    keel::backward(engine, loss, micro.batch, totals, micro.last_);
  }

  double mean_loss() const {
    KEEL_CHECK(!losses.empty(), "no micro-batch of this step has had its backward()");
    const std::size_t count = StepLoss::kSums * losses.front().kinds().size();
    std::vector<double> sums(count * static_cast<std::size_t>(engine.virtual_ranks()));
    for (std::size_t i = 0; i < losses.size(); ++i)
      losses[i].add_to(std::span(sums).subspan(i / of_virtual_rank(micro_batches.size()) * count, count));
    return loss_of(losses.front().kinds(), GatheringOfSums(*ranks, sums, engine.virtual_ranks()).wait());
  }

  std::shared_ptr<const BatchSource> source;
  Sharded& engine;
  std::unique_ptr<Communicator> ranks;
  StepBatchesOptions options;
  std::int64_t done = options.first_step;  // steps that were begun
  std::vector<MicroBatch> micro_batches;
  std::vector<StepLoss> losses;  // of the micro-batches so far
  WeightTotals totals;
  std::optional<StepLoader> loader;  // last: its threads use the others
};

MicroBatch::MicroBatch(Batch its_batch, Forward its_pass, bool last, Step& step)
    : batch(std::move(its_batch)), pass(std::move(its_pass)), last_(last), step_(&step) {}

void MicroBatch::backward(const Loss& loss) const { step_->backward(*this, loss); }

StepBatches::StepBatches(std::shared_ptr<const BatchSource> source, Sharded& engine, Communicator& ranks,
                         const StepBatchesOptions& options)
    : step_(std::make_unique<MicroBatch::Step>(std::move(source), engine, ranks, options)) {}

StepBatches::~StepBatches() = default;

std::span<MicroBatch> StepBatches::next() {
  step_->begin();
  return step_->micro_batches;
}

double StepBatches::mean_loss() const { return step_->mean_loss(); }

Tensor gather_for_metrics(const Tensor& x, const Batch& batch, Communicator& ranks) {
  KEEL_CHECK(x.rank() >= 1 && x.dim(0) == batch.rows(), "values of shape ", x.shape(), " for a batch of ", batch.rows(),
             " rows; the first extent counts rows");
  Dims extents = x.shape();
  extents[0] = 1;
  check_agreement(ranks, concat("rows of ", x.dtype(), ' ', extents), "ranks gather different values");
  const Tensor mine = HostCopy(kernels::contiguous(x)).get();
  const std::size_t bytes = batch.is_stand_in() ? 0 : mine.bytes();
  std::string all;
  for (const std::string& theirs : gather_texts(ranks, std::string(reinterpret_cast<const char*>(mine.raw()), bytes)))
    all += theirs;
  const std::size_t row = size_of(x.dtype()) * static_cast<std::size_t>(product(extents));
  extents[0] = row == 0 ? 0 : static_cast<std::int64_t>(all.size() / row);
  const Tensor gathered = empty(mine.context(), extents, x.dtype());
  if (!all.empty()) gathered.begin_as(all.data());
  return gathered;
}

}  // namespace keel
