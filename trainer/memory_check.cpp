#include "keel/trainer/memory_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "keel/dist/checkpoint/memory_copies.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/optim/catalog.h"
#include "keel/trainer/run_plan.h"
#include "keel/trainer/stack_config.h"

namespace keel {
namespace {

std::string size(std::int64_t bytes) { return binary_size(static_cast<double>(bytes)); }

constexpr const char* kRemedy =
    "; a smaller model, more machines or a strategy that shards more need less, and check_memory=false goes on "
    "regardless";

// What so many ranks need of something that they share; `together`: once, beside what each needs.
struct Need {
  std::int64_t each = 0, ranks = 1;
  std::string parts;
  std::int64_t together = 0;

  bool exceeds(std::int64_t bytes) const { return together > bytes || each > (bytes - together) / ranks; }
  std::string text(const std::string& where) const {
    return concat("training needs ", ranks == 1 ? "" : concat(ranks, " times "), size(each),
                  together == 0 ? "" : concat(" and ", size(together)), where, " (", parts, copied(),
                  "; activations come on top), but ");
  }

 private:
  std::string copied() const {
    return together == 0 ? "" : concat(", and ", size(together), " of copies in memory for checkpoint.memory_every");
  }
};

std::string copied(const MemoryPlan& plan) {
  return plan.checkpoint == 0 ? "" : concat(", ", size(plan.checkpoint), " of a copy for checkpoint.async");
}

std::string parts_of(const MemoryPlan& plan) {
  return concat(size(plan.parameter), " of weights, ", size(plan.gradient), " of gradients, ", size(plan.optimizer),
                " of optimizer state, ", size(plan.buckets), " whole for a while");
}

void check_machine(const Need& need, const MemoryLimit& limit) {
  if (limit.bytes == 0 || !need.exceeds(limit.bytes)) return;
  throw Error(concat(need.text(""), limit.is_of_group ? "this group of processes (cgroup)" : "this machine", " has ",
                     size(limit.bytes), kRemedy));
}

void check_device(const Need& need, const DeviceMemory& memory, Device device) {
  if (memory.total == 0 || !need.exceeds(memory.free)) return;
  throw Error(concat(need.text(concat(" on ", device)), size(memory.free), " of its ", size(memory.total), " are free",
                     kRemedy));
}

// Beyond so many numbers nobody has the memory, and their bytes would be more than a plan counts.
void check_that_it_can_be_planned(const StackModels& models) {
  constexpr double kMost = std::int64_t{1} << 52;
  double numbers = 0;
  for (const StackModel& model : models.all()) {
    for_each_parameter(*model.module, [&](const std::string&, Parameter& parameter) {
      numbers += static_cast<double>(product(parameter.shape()));
    });
    for_each_buffer(*model.module, [&](const std::string&, Buffer& buffer) {
      numbers += static_cast<double>(product(buffer.shape()));
    });
  }
  if (numbers > kMost)
    throw Error(concat("training needs more than ", binary_size(4 * numbers), " of weights", kRemedy));
}

// The ranks of this one's machine, and those among them that have its device.
struct Neighbours {
  std::int64_t machine = 0, device = 0;
};

Neighbours neighbours_of(Communicator& ranks, const Context& context) {
  const std::vector<std::string> devices = gather_texts(ranks, context.api().identity());
  const auto own = static_cast<std::size_t>(ranks.rank());
  Neighbours found;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    if (ranks.nodes()[rank] != ranks.nodes()[own]) continue;
    ++found.machine;
    if (devices[rank] == devices[own]) ++found.device;
  }
  return found;
}

// What copies take of this one's machine, where each rank's files have so many bytes.
std::int64_t copies_here(std::int64_t mine, Communicator& ranks) {
  const MemoryHosts hosts = meet_in_memory(ranks, MemoryFolder::root_of_host());
  const std::vector<std::int64_t> bytes = gather_values(ranks, mine);
  const auto node_of = [&](int rank) { return ranks.nodes()[static_cast<std::size_t>(rank)]; };
  std::int64_t sum = 0;
  for (int r = 0; r < ranks.size(); ++r)
    for (const int keeper : {r, hosts.partner[static_cast<std::size_t>(r)]})
      if (keeper >= 0 && node_of(keeper) == node_of(ranks.rank())) sum += bytes[static_cast<std::size_t>(r)];
  return MemoryCopies::kAtOnce * sum;
}

}  // namespace

MemorySupply memory_supply(const Context& context) { return {memory_limit(), context.memory_left()}; }

void check_memory(const Config& config, const StackModels& models, Communicator& ranks, const Context& context,
                  const MemorySupply& supply) {
  const Neighbours here = neighbours_of(ranks, context);
  const auto keeps_rows = [&](const StackModel& model) {
    return find_optimizer(stack_config(config, model.name).optimizer.type).requirements.rows;
  };
  if (!config.check_memory || std::ranges::any_of(models.trained(), keeps_rows)) return;
  const bool copies_state = !config.checkpoint.memory_every.is_none();
  std::int64_t copies = 0;
  together(ranks, [&] {
    check_that_it_can_be_planned(models);
    if (copies_state) copies = planned_files(config, models, ranks.size(), ranks.rank());
  });
  if (copies_state) copies = copies_here(copies, ranks);
  together(ranks, [&] {
    const bool on_processor = context.device().type == DeviceType::cpu;
    const MemoryPlan plan = plan_run(config, models, ranks.size(), on_processor).memory;
    const std::int64_t there = plan.kept() + plan.buckets;
    if (on_processor)
      return check_machine({there + plan.checkpoint, here.machine, parts_of(plan) + copied(plan), copies},
                           supply.machine);
    check_device({there, here.device, parts_of(plan)}, supply.device, context.device());
    const std::int64_t left = plan.host + plan.host_buckets;
    check_machine({left + plan.checkpoint, here.machine,
                   concat(size(left), " of what GPUs leave to the processor", copied(plan)), copies},
                  supply.machine);
  });
}

}  // namespace keel
