#include "keel/runtime/emulation/communicator.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <set>

#include "keel/runtime/error.h"

namespace keel::emulation {
namespace {

// What all threads share.
struct Registry {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<ncclComm_t, int> comms;  // and how many threads are inside a call with each
  int id_count = 0;
  std::set<std::string> ids;                                   // given, and not used up
  std::map<std::string, std::shared_ptr<Gathering>> starting;  // by id
};
Registry& registry() {
  static Registry all;
  return all;
}

bool is_full(const Gathering& gathering) { return std::ranges::all_of(gathering.ranks, &Gathering::Rank::present); }

// The ranks of each color get a clique of their own.
void divide(Gathering& gathering) {
  std::map<int, std::vector<Gathering::Rank*>> colors;
  for (Gathering::Rank& rank : gathering.ranks)
    if (rank.color != NCCL_SPLIT_NOCOLOR) colors[rank.color].push_back(&rank);
  for (auto& [color, members] : colors) {
    std::ranges::stable_sort(members, {}, &Gathering::Rank::key);
    const auto clique = std::make_shared<Clique>(static_cast<int>(members.size()));
    for (std::size_t i = 0; i < members.size(); ++i) {
      members[i]->rank = static_cast<int>(i);
      members[i]->clique = clique;
    }
  }
  gathering.complete = true;
}

}  // namespace

ncclComm_t new_comm(std::shared_ptr<Clique> clique, int rank, int device, bool blocks) {
  auto* comm = new ncclComm{std::move(clique), rank, device, blocks};
  const std::lock_guard lock(registry().mutex);
  registry().comms[comm] = 0;
  return comm;
}

bool is_known(ncclComm_t comm) {
  const std::lock_guard lock(registry().mutex);
  return registry().comms.contains(comm);
}

bool forget(ncclComm_t comm) {
  {
    const std::lock_guard lock(registry().mutex);
    const auto known = registry().comms.find(comm);
    if (known->second > 0) return false;
    registry().comms.erase(known);
  }
  delete comm;
  return true;
}

Inside::Inside(ncclComm_t comm) : comm_(comm) {
  const std::lock_guard lock(registry().mutex);
  const auto known = registry().comms.find(comm);
  is_known_ = known != registry().comms.end();
  if (is_known_) ++known->second;
}

Inside::~Inside() {
  const std::lock_guard lock(registry().mutex);
  if (is_known_) --registry().comms.find(comm_)->second;
}

std::string new_id() {
  const std::lock_guard lock(registry().mutex);
  std::string id = concat("keel emulated communicator ", ++registry().id_count);
  registry().ids.insert(id);
  return id;
}

std::shared_ptr<Gathering> gather(const std::string& id, int ranks, int rank) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (!all.ids.contains(id)) return nullptr;
  std::shared_ptr<Gathering>& known = all.starting[id];
  if (known == nullptr) known = std::make_shared<Gathering>(ranks);
  const std::shared_ptr<Gathering> gathering = known;
  const auto size = static_cast<int>(gathering->ranks.size());
  if (!gathering->failure.empty()) return gathering;
  if (size != ranks) {
    gathering->failure = concat("rank ", rank, " wants a communicator of ", ranks, " ranks, others want ", size);
  } else if (std::exchange(gathering->ranks[static_cast<std::size_t>(rank)].present, true)) {
    gathering->failure = concat("two threads want to be rank ", rank, " of ", ranks);
  } else if (is_full(*gathering)) {
    divide(*gathering);
    all.starting.erase(id);
    all.ids.erase(id);
  }
  all.changed.notify_all();
  return gathering;
}

std::shared_ptr<Gathering> gather_to_split(const ncclComm& comm, int color, int key) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::shared_ptr<Gathering>& known = comm.clique->splitting;
  if (known == nullptr) known = std::make_shared<Gathering>(comm.clique->size());
  const std::shared_ptr<Gathering> gathering = known;
  if (!gathering->failure.empty()) return gathering;
  Gathering::Rank& own = gathering->ranks[static_cast<std::size_t>(comm.rank)];
  if (own.present) return nullptr;
  own = {true, color, key};
  if (is_full(*gathering)) {
    divide(*gathering);
    known.reset();
    all.changed.notify_all();
  }
  return gathering;
}

std::string wait_for_all(Gathering& gathering, const char* call) {
  Registry& all = registry();
  const auto patience = Machine::get().options().patience;
  std::unique_lock lock(all.mutex);
  const auto settled = [&] { return gathering.complete || !gathering.failure.empty(); };
  if (!all.changed.wait_for(lock, patience, settled)) {
    std::vector<int> missing;
    for (std::size_t i = 0; i < gathering.ranks.size(); ++i)
      if (!gathering.ranks[i].present) missing.push_back(static_cast<int>(i));
    gathering.failure = concat(name_of_ranks(missing), " of ", gathering.ranks.size(), " did not call ", call,
                               " within ", patience.count(), " ms");
    all.changed.notify_all();
  }
  return gathering.failure;
}

bool is_settled(const Gathering& gathering) {
  const std::lock_guard lock(registry().mutex);
  return gathering.complete || !gathering.failure.empty();
}

void fail(Gathering& gathering, const std::string& why) {
  {
    const std::lock_guard lock(registry().mutex);
    if (!gathering.complete && gathering.failure.empty()) gathering.failure = why;
  }
  registry().changed.notify_all();
}

}  // namespace keel::emulation
