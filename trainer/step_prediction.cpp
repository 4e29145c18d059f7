#include "keel/trainer/step_prediction.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>

#include "keel/config/schema.h"
#include "keel/data/divide_rows.h"
#include "keel/dist/lab/cost_model.h"
#include "keel/optim/catalog.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::size_t kFewestRecords = 3;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Two standard deviations, as a fraction of the median; 0 where that is 0.
double spread(const std::vector<double>& values) {
  const double middle = median(values);
  if (!(middle > 0)) return 0;
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return 2 * std::sqrt(squares / static_cast<double>(values.size() - 1)) / middle;
}

int nodes_of(int ranks, int ranks_per_node) {
  return ranks_per_node == 0 ? 1 : (ranks + ranks_per_node - 1) / ranks_per_node;
}

// The model of each collective, made once.
class Models {
 public:
  Models(std::span<const lab::Report> reports, std::string algorithm)
      : reports_(reports), algorithm_(std::move(algorithm)) {}

  lab::Prediction predict(CollectiveKind kind, DType dtype, int ranks, int ranks_per_node, double bytes) {
    const std::string collective(keel::name_of(kind));
    KEEL_CHECK(lab::cost_terms(collective, algorithm_, 2, 1).has_value(), "there is no formula for ", collective,
               " by ", algorithm_, ", so its time on more ranks is not predicted");
    const auto [place, is_new] = models_.try_emplace({collective, dtype});
    if (is_new) place->second = make(collective, dtype);
    return place->second->predict(ranks, nodes_of(ranks, ranks_per_node), bytes);
  }

 private:
  // The model of a collective, from measurements in that dtype, or else in fp32, whose bytes take as long.
  std::optional<lab::CostModel> make(const std::string& collective, DType dtype) const {
    for (const DType each : {dtype, DType::f32}) {
      const std::vector<lab::CostPoint> points =
          lab::cost_points(reports_, collective, algorithm_, keel::name_of(each));
      if (!points.empty()) return lab::CostModel(collective, algorithm_, points);
    }
    throw Error(concat("--from holds no ", collective, " by ", algorithm_, " in ", dtype,
                       " or f32 of two ranks or more; `keel comm ", collective, " -N 4 --algorithms ", algorithm_,
                       " --json FILE` measures it"));
  }

  std::span<const lab::Report> reports_;
  std::string algorithm_;
  std::map<std::pair<std::string, DType>, std::optional<lab::CostModel>> models_;
};

DType dtype_of_width(std::int64_t width) { return width == 2 ? DType::bf16 : DType::f32; }

// Sequences of the rank that has most.
double most_rows(const Config& config, int ranks) {
  std::int64_t rows = 0;
  for (const Rows range : divide_rows_in_turn(config.batch.global, config.batch.micro, 0,
                                              config.sharding.dealt_to(ranks), config.sharding.of_each(ranks)))
    rows += range.end - range.begin;
  return static_cast<double>(rows);
}

bool has_same_model(const Config& a, const Config& b) {
  const std::span<const SchemaRow> rows = a.schema().rows();
  return a.task == b.task && std::all_of(rows.begin(), rows.end(), [&](const SchemaRow& row) {
           return !is_inside(row.key, "model") || value_text(row, a) == value_text(row, b);
         });
}

void check_same(const Config& config, const MeasuredRun& run) {
  const auto require = [&](bool same, std::string_view what) {
    KEEL_CHECK(same, "the run in '", config.run, "' was trained with another ", what,
               ", so its times say nothing about this one; train it anew, or name its folder with run=FOLDER");
  };
  require(has_same_model(run.config, config), "model");
  require(run.config.strategy.precision == config.strategy.precision, "precision");
  require(run.config.batch.micro == config.batch.micro, "batch.micro");
}

}  // namespace

CommunicationTime predict_communication(const Config& config, std::span<const lab::Report> reports,
                                        const StackModels& models, int ranks, int ranks_per_node) {
  CommunicationTime time;
  if (ranks == 1) return time;
  KEEL_CHECK(config.sharding.group == 0, "sharding.group: the time of collectives of groups is not predicted");
  Models costs(reports, config.sharding.algorithm);
  const auto add = [&](CollectiveKind kind, DType dtype, std::int64_t bytes, std::int64_t times) {
    const lab::Prediction one = costs.predict(kind, dtype, ranks, ranks_per_node, static_cast<double>(bytes));
    const double each = 1e-3 * static_cast<double>(times);
    time.ms += each * one.us;
    time.low_ms += each * one.low_us;
    time.high_ms += each * one.high_us;
    time.is_extrapolated |= one.is_extrapolated;
  };
  for (const PlannedCollective& each : plan_run(config, models, ranks).collectives)
    add(each.kind, dtype_of_width(each.width), each.count * each.width, each.times);
  add(CollectiveKind::all_gather, DType::u8, control_bytes(ranks), 1);
  return time;
}

StepPrediction predict_step(const Config& config, const MeasuredRun& run, std::span<const lab::Report> reports,
                            const StackModels& models, int ranks, int ranks_per_node) {
  check_same(config, run);
  for (const Config* each : {&config, &run.config})
    KEEL_CHECK(!find_optimizer(each->optimizer.type).requirements.closure, "optimizer.type: how often a step of ",
               each->optimizer.type, " evaluates the loss is not predicted");
  KEEL_CHECK(run.times.size() >= kFewestRecords, "the run in '", config.run, "' has ", run.times.size(),
             " records of steps after the first, too few to tell how long one takes; a smaller log.every gives more");
  std::vector<double> computing, waiting;
  for (const StepTime& time : run.times) {
    computing.push_back(time.step_ms - time.exposed_ms);
    waiting.push_back(time.exposed_ms);
  }
  KEEL_CHECK(median(computing) > 0, "by the records of '", config.run, "' a step computes for ", median(computing),
             " ms: they have no step_ms, since an older keel has written them, and tokens_per_s is a mean over many "
             "steps; train some steps anew");
  const CommunicationTime there = predict_communication(run.config, reports, models, run.ranks, ranks_per_node);
  const CommunicationTime here = predict_communication(config, reports, models, ranks, ranks_per_node);

  StepPrediction prediction{.ranks = ranks, .communication_ms = here.ms, .is_extrapolated = here.is_extrapolated};
  prediction.compute_ms = median(computing) * most_rows(config, ranks) / most_rows(run.config, run.ranks);
  const double computing_spread = spread(computing);
  const double low = prediction.compute_ms * std::max(0.0, 1 - computing_spread);
  const double high = prediction.compute_ms * (1 + computing_spread);
  if (run.ranks == 1) {
    prediction.exposed_ms = here.ms;
    prediction.low_ms = std::max(low, here.low_ms);
    prediction.high_ms = high + here.high_ms;
  } else if (ranks == 1) {
    prediction.low_ms = low;
    prediction.high_ms = high;
  } else {
    const double share = median(waiting) / there.ms, waiting_spread = spread(waiting);
    prediction.exposed_ms = share * here.ms;
    prediction.low_ms = low + share * here.low_ms * std::max(0.0, 1 - waiting_spread);
    prediction.high_ms = high + share * here.high_ms * (1 + waiting_spread);
  }
  prediction.step_ms = prediction.compute_ms + prediction.exposed_ms;
  return prediction;
}

}  // namespace keel
