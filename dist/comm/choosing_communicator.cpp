#include "keel/dist/comm/choosing_communicator.h"

#include <algorithm>
#include <utility>

#include "keel/dist/comm/algorithm_names.h"
#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/regroup.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

class ChoosingCommunicator : public Communicator {
 public:
  ChoosingCommunicator(std::vector<CommunicatorWay> ways, std::shared_ptr<std::size_t> in_use)
      : ways_(std::move(ways)), in_use_(std::move(in_use)) {
    for (const CommunicatorWay& way : ways_) names_.push_back(way.name);
  }

  int rank() const override { return first().rank(); }
  int size() const override { return first().size(); }
  const std::vector<int>& nodes() const override { return first().nodes(); }
  std::chrono::milliseconds timeout() const override { return first().timeout(); }
  Work begin(const Collective& collective) override { return ways_[*in_use_].ranks->begin(collective); }
  void poll() override {
    for (const CommunicatorWay& way : ways_) way.ranks->poll();
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    std::vector<CommunicatorWay> parts;
    for (const CommunicatorWay& way : ways_) parts.push_back({way.name, way.ranks->split(color, key)});
    return std::make_unique<ChoosingCommunicator>(std::move(parts), in_use_);
  }
  // Such groups choose apart, too.
  std::unique_ptr<Communicator> split_apart(int color, int key) override {
    std::vector<CommunicatorWay> parts;
    for (const CommunicatorWay& way : ways_) parts.push_back({way.name, way.ranks->split_apart(color, key)});
    return std::make_unique<ChoosingCommunicator>(std::move(parts), std::make_shared<std::size_t>(*in_use_));
  }
  std::unique_ptr<Communicator> regroup(const Regroup& wish) override { return first().regroup(wish); }
  Tensor allocate(const Context& context, std::int64_t count, DType dtype, Purpose purpose) override {
    return first().allocate(context, count, dtype, purpose);
  }
  Traffic traffic() const override {
    Traffic sum;
    for (const CommunicatorWay& way : ways_) {
      const Traffic more = way.ranks->traffic();
      sum.inside_node += more.inside_node;
      sum.between_nodes += more.between_nodes;
      sum.control += more.control;
      sum.collectives += more.collectives;
    }
    return sum;
  }
  void fail(const std::string& reason) noexcept override {
    for (const CommunicatorWay& way : ways_) way.ranks->fail(reason);
  }
  void set_activity(const std::string& activity) override {
    for (const CommunicatorWay& way : ways_) way.ranks->set_activity(activity);
  }
  bool allows_threads() const override { return first().allows_threads(); }
  void check_thread() const override { first().check_thread(); }
  std::shared_ptr<Alarm> alarm() override { return first().alarm(); }

  std::span<const std::string> ways() const override { return names_; }
  void use_way(std::size_t way) override {
    KEEL_CHECK(way < ways_.size(), "there are ", ways_.size(), " ways of collectives, and no number ", way);
    *in_use_ = way;
  }

 private:
  Communicator& first() const { return *ways_.front().ranks; }

  std::vector<CommunicatorWay> ways_;
  std::vector<std::string> names_;
  // With those that were split off, but not apart, and those that this one was split off from.
  std::shared_ptr<std::size_t> in_use_;
};

}  // namespace

std::unique_ptr<Communicator> make_choosing_communicator(std::vector<CommunicatorWay> ways) {
  KEEL_CHECK(!ways.empty(), "a communicator needs a way of collectives");
  return std::make_unique<ChoosingCommunicator>(std::move(ways), std::make_shared<std::size_t>(0));
}

std::unique_ptr<Communicator> make_choosing_communicator(Communicator& ranks, std::string_view first) {
  const AlgorithmName& begins = find_algorithm_name(first);
  std::vector<const AlgorithmName*> names = {&begins};
  for (const AlgorithmName& name : algorithm_names())
    if (&name != &begins && !name.algorithm.empty() && find_algorithm(name.algorithm).adds_at_once)
      names.push_back(&name);
  KEEL_CHECK(!begins.algorithm.empty() && find_algorithm(begins.algorithm).adds_at_once, "the sums of ", begins.name,
             " are not those of other algorithms");
  std::vector<CommunicatorWay> ways;
  for (const AlgorithmName* name : names)
    ways.push_back({std::string(name->name),
                    ranks.regroup({.algorithm = std::string(name->algorithm), .shared_memory = name->shared_memory})});
  return make_choosing_communicator(std::move(ways));
}

}  // namespace keel
