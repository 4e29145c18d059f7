#include "keel/trainer/evaluate_run.h"

#include <algorithm>
#include <utility>

#include "keel/dist/comm/agreement.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/data_fingerprint.h"
#include "keel/trainer/evaluation.h"
#include "keel/trainer/resume.h"

namespace keel {
namespace {

std::string_view name_of(const ValidationSet& set) { return set.name.empty() ? kOnlySet : std::string_view(set.name); }

// Those that are asked for, of data that is that of the run.
std::vector<ValidationSet> find_sets(TrainedModel& trained, std::string_view on) {
  const Data data = trained.task().data();
  if (!trained.run().empty()) check_same_files(RunFolder(trained.run()), data);
  KEEL_CHECK(!data.validation.empty(), "the task ", trained.config().task,
             " has no validation set by this configuration");
  if (on.empty()) return data.validation;
  std::string names;
  for (const ValidationSet& set : data.validation) {
    if (name_of(set) == on) return {set};
    names += concat(names.empty() ? "" : ", ", name_of(set));
  }
  throw Error(concat("there is no validation set '", printable(on, 64), "'; there are ", names));
}

}  // namespace

Json EvaluatedRun::json() const {
  Json all = Json::array();
  for (const EvaluatedSet& set : sets) {
    Json values = Json::object();
    for (const NamedNumber& each : set.values) values[each.name] = each.value;
    all.push_back({{"set", set.name}, {"batches", set.batches}, {"values", values}});
  }
  return {{"checkpoint", checkpoint}, {"task", task}, {"step", step}, {"sets", all}};
}

EvaluatedRun evaluate_run(TrainedModel& trained, std::string_view on) {
  std::vector<ValidationSet> sets;
  together(trained.ranks(), [&] { sets = find_sets(trained, on); });
  check_same_data(trained.config(), {.validation = sets}, trained.ranks(), [](const std::string&) {});
  trained.load(true);
  EvaluatedRun run{.checkpoint = trained.checkpoint(),
                   .task = trained.config().task,
                   .strategy = to_string(trained.config().strategy),
                   .step = trained.step(),
                   .ranks = trained.ranks().size()};
  for (const ValidationSet& set : sets) {
    const std::int64_t batches = batches_of(set, trained.config().eval.batches);
    run.sets.push_back(
        {std::string(name_of(set)), batches,
         evaluate_set(trained.task(), set, batches, trained.context(), trained.dtype(), trained.ranks())});
  }
  return run;
}

}  // namespace keel
