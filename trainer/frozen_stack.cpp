#include "keel/trainer/frozen_stack.h"

#include <algorithm>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/strategies/surviving_groups.h"
#include "keel/optim/optimizer.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/config.h"
#include "keel/trainer/weights_source.h"

namespace keel {
namespace {

Module& frozen(Module& model) {
  for_each_parameter(model, [](const std::string&, Parameter& parameter) { parameter.set_trainable(false); });
  return model;
}

// Null where groups end together.
std::unique_ptr<Communicator> group_of(const StackSite& site) {
  if (site.survivors == nullptr) return nullptr;
  const int ranks = site.survivors->ranks_of_group();
  return site.ranks.split_apart(site.ranks.rank() / ranks, site.ranks.rank() % ranks);
}

ShardedOptions with_subjects(ShardedOptions options, int first) {
  options.first_subject = first;
  return options;
}

}  // namespace

ShardedOptions answering_options(const Config& config, Module& model, int ranks) {
  Config measured = config;
  measured.steps = std::max<std::int64_t>(measured.steps, 1);  // a length in epochs has none before the data is known
  measured.scheduler = {.settings = default_schedule("constant")};  // and a schedule need not fit into what it has
  measured.optimizer.groups.clear();                                // they name parameters of the model that is trained
  const ShardedOptions trained = engine_options(measured, 1, model);
  ShardedOptions options;
  options.policy = PrecisionPolicy::of(trained.policy.parameter);
  options.seed = trained.seed;
  options.sharding = trained.sharding;
  options.sharding.offload_optimizer = options.sharding.offload_gradients = Residence::device;
  options.sharding.virtual_ranks = 0;  // nothing is added over ranks
  ShardingOptions& sharding = options.sharding;
  if (sharding.group > 0 && ranks % sharding.group != 0) sharding.group = 0;
  if (sharding.subgroup > 0 && (sharding.group > 0 ? sharding.group : ranks) % sharding.subgroup != 0) {
    sharding.subgroup = 0;
    sharding.secondary = false;
  }
  return options;
}

FrozenStack::FrozenStack(const StackSite& site, Module& model, int first_subject)
    : group_(group_of(site)),
      engine_(frozen(model), site.context, group_ ? *group_ : site.ranks, make_sgd(),
              with_subjects(answering_options(site.config, model, group_ ? group_->size() : site.ranks.size()),
                            first_subject)) {}

std::string load_frozen(const StackModel& model, FrozenStack& stack, Communicator& ranks) {
  try {
    return load_named_weights(model, stack.engine(), stack.group() != nullptr ? *stack.group() : ranks, true);
  } catch (const AgreedError& error) { throw AgreedError(concat("the frozen model '", model.name, "': "), error); }
}

}  // namespace keel
