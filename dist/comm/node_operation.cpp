#include "keel/dist/comm/node_operation.h"

#include <algorithm>
#include <cstring>

#include "keel/dist/comm/node_memory.h"
#include "keel/kernels/combine_spans.h"
#include "keel/runtime/error.h"
#include "keel/runtime/parallel.h"

namespace keel {
namespace {

using Counter = NodeMemory::Counter;

// Elements that one thread copies or adds at a time.
constexpr std::int64_t kGrain = std::int64_t{64} << 10;
// A rank that waits checks for failures at every kLooksPerCheck-th look at first, and later at each.
constexpr unsigned kLooksPerCheck = 16, kLooksBeforeChecks = 64;

// Small tensors travel with their signatures, and every rank adds them all. Larger tensors that all ranks see, in one
// address space or in windows, are read directly. Others are shown piece by piece, in two buffers of each rank, so that
// what one rank writes is still in the cache when another reads it. The collectives of a group are done one by one.
class NodeOperation : public GroupOperation {
 public:
  NodeOperation(std::shared_ptr<Group> group, const Collective& collective)
      : GroupOperation(std::move(group), collective),
        memory_(*group_->memory),
        dtype_(collective.dtype()),
        element_(size_of(dtype_)),
        whole_{0, collective.count()},
        input_(collective_.input.defined() ? collective_.input.raw() : nullptr),
        output_(collective_.output.defined() ? collective_.output.raw() : nullptr),
        index_(memory_.collectives++) {
    number_ = group_->sequence++;
    group_->traffic.control += static_cast<std::int64_t>(sizeof(Signature)) * (n() - 1);
  }

 private:
  int n() const { return memory_.size(); }
  int rank() const { return memory_.rank(); }
  Span shard(int r) const { return part(whole_, n(), r); }
  Span own_shard() const { return shard(rank()); }
  std::size_t bytes(std::int64_t count) const { return static_cast<std::size_t>(count) * element_; }
  bool is_small() const { return bytes(whole_.count()) <= NodeArea::kSmall; }
  NodeArea::Slot& slot(int r) const { return memory_.area(r).slots[index_ % NodeArea::kSlots]; }
  const Context& context() const { return collective_.output.context(); }

  bool proceed() override {
    if (phase_ == Phase::asking && !ask()) return false;
    if (phase_ == Phase::agreeing && !agree()) return false;
    // Buffers and counters belong to one collective at a time.
    if (memory_.finished != index_) return false;
    if (phase_ == Phase::waiting) plan();
    phase_ = Phase::working;
    const bool is_through = is_small() ? work_small() : sees_all_ ? work_directly() : work_in_rounds();
    if (!is_through) return false;
    ++memory_.finished;
    return true;
  }

  bool all_have(Counter counter, std::uint64_t value) {
    waits_for_ = {counter, value};
    if (memory_.all_have(counter, value)) return true;
    if (++looks_ > kLooksBeforeChecks || looks_ % kLooksPerCheck == 0) group_->transport->check();
    return false;
  }
  // A rank has given up. Its reason may still be on its way.
  bool hear_why() {
    group_->transport->check();
    return all_have(&NodeArea::done, ~std::uint64_t{0});  // which none has; throws once a rank has left
  }
  // Others wait until all have come so far, each of them itself: only the last of all has news for them. The counter is
  // stored before the others' are read, in one order for all ranks, so that of two that come at once one sees both.
  void publish(Counter counter, std::uint64_t value) {
    (memory_.own().*counter).store(value, std::memory_order_seq_cst);
    group_->transport->announce(memory_.is_last(counter, value));
  }

  // Writes down what this rank wants, once nobody needs the collective that had this slot before.
  bool ask() {
    if (memory_.own().asked.load(std::memory_order_relaxed) != index_) return false;
    if (index_ >= NodeArea::kSlots) {
      const std::uint64_t before = index_ + 1 - NodeArea::kSlots;
      if (memory_.finished < before || !all_have(&NodeArea::done, before)) return false;
    }
    NodeArea::Slot& mine = slot(rank());
    mine.signature = Signature(number_, collective_, group_->algorithm_number);
    if (!is_small()) {
      mine.input = memory_.place_of(input_);
      mine.output = memory_.place_of(output_);
    }
    if (is_small()) show_small(mine.data);
    publish(&NodeArea::asked, index_ + 1);
    phase_ = Phase::agreeing;
    return true;
  }
  void show_small(std::byte* to) const {
    if (collective_.kind == CollectiveKind::barrier) return;
    if (collective_.kind == CollectiveKind::broadcast && collective_.peer != rank()) return;
    const bool is_root = collective_.kind == CollectiveKind::broadcast;
    const std::size_t size = (is_root ? collective_.output : collective_.input).bytes();
    if (size != 0) std::memcpy(to, is_root ? output_ : input_, size);
  }

  bool agree() {
    if (!all_have(&NodeArea::asked, index_ + 1)) return false;
    if (memory_.any_has_closed()) return hear_why();
    const Signature& mine = slot(rank()).signature;
    for (int r = 0; r < n(); ++r)
      if (!(slot(r).signature == mine)) disagree();
    count_traffic();
    sees_all_ = !is_small() && sees_all();
    phase_ = Phase::waiting;
    return true;
  }
  [[noreturn]] void disagree() const {
    std::vector<Signature> asked;
    for (int r = 0; r < n(); ++r) asked.push_back(slot(r).signature);
    throw Error(difference(asked), ErrorKind::peer);
  }

  // What the algorithm of messages would send.
  void count_traffic() const {
    const std::int64_t others = n() - 1, own = own_shard().count(), rest = whole_.count() - own;
    const auto elements = [&]() -> std::int64_t {
      switch (collective_.kind) {
        case CollectiveKind::all_reduce: return rest + own * others;
        case CollectiveKind::reduce_scatter:
        case CollectiveKind::all_to_all: return rest;
        case CollectiveKind::all_gather: return own * others;
        case CollectiveKind::broadcast: return group_->schedules.find(*group_, collective_)->elements_sent();
        default: return 0;
      }
    };
    group_->traffic.inside_node += elements() * static_cast<std::int64_t>(element_);
  }

  // Where the numbers lie that a rank brings: all, or its shard alone.
  bool work_small() {
    const auto copy = [&](int r, std::int64_t from, Span to) {
      std::memcpy(output_ + bytes(to.begin), slot(r).data + bytes(from), bytes(to.count()));
    };
    const auto add = [&](Span span) {
      memory_.terms.clear();
      for (int r = 0; r < n(); ++r) memory_.terms.push_back(slot(r).data + bytes(span.begin));
      combine_spans({dtype_, dtype_, collective_.op}, memory_.terms, {&output_, 1}, 0, span.count());
    };
    const auto each = [&](auto&& f) {
      for (int r = 0; r < n(); ++r) f(r);
    };
    if (whole_.count() != 0) {
      switch (collective_.kind) {
        case CollectiveKind::all_reduce: add(whole_); break;
        case CollectiveKind::reduce_scatter: add(own_shard()); break;
        case CollectiveKind::all_gather: each([&](int r) { copy(r, 0, shard(r)); }); break;
        case CollectiveKind::all_to_all: each([&](int r) { copy(r, own_shard().begin, shard(r)); }); break;
        case CollectiveKind::broadcast:
          if (collective_.peer != rank()) copy(collective_.peer, 0, whole_);
          break;
        default: break;
      }
    }
    publish(&NodeArea::done, index_ + 1);
    return true;
  }

  // A window that all name is one that all have: a rank's part of another may have gone.
  bool sees_all() const {
    const auto is_common = [&](NodeArea::Place NodeArea::Slot::*place) {
      const std::uint32_t window = (slot(rank()).*place).window;
      if (window == NodeArea::Place::kPrivate) return false;
      for (int r = 0; r < n(); ++r)
        if ((slot(r).*place).window != window) return false;
      return true;
    };
    const bool reads = collective_.kind != CollectiveKind::broadcast,
               writes = collective_.kind == CollectiveKind::all_reduce;
    return (!reads || is_common(&NodeArea::Slot::input)) && ((reads && !writes) || is_common(&NodeArea::Slot::output));
  }
  std::byte* input_of(int r) const { return memory_.find(r, slot(r).input); }
  std::byte* output_of(int r) const { return memory_.find(r, slot(r).output); }

  // A rank adds its shard of all ranks' tensors, and writes it to all of them.
  bool work_directly() {
    if (!worked_) {
      if (!memory_.visit()) return hear_why();
      visit_all();
      memory_.end_visit();
      worked_ = true;
      publish(&NodeArea::done, index_ + 1);
    }
    return all_have(&NodeArea::done, index_ + 1);
  }
  void visit_all() {
    switch (collective_.kind) {
      case CollectiveKind::all_reduce:
        memory_.results.clear();
        for (int r = 0; r < n(); ++r) memory_.results.push_back(output_of(r) + bytes(own_shard().begin));
        return add_inputs();
      case CollectiveKind::reduce_scatter: memory_.results.assign(1, output_); return add_inputs();
      case CollectiveKind::all_gather:
        for (int i = 0; i < n(); ++i) {
          const int r = (rank() + i) % n();
          copy(input_of(r), output_ + bytes(shard(r).begin), shard(r).count());
        }
        return;
      case CollectiveKind::all_to_all:
        for (int i = 0; i < n(); ++i) {
          const int r = (rank() + i) % n();
          copy(input_of(r) + bytes(own_shard().begin), output_ + bytes(shard(r).begin), shard(r).count());
        }
        return;
      case CollectiveKind::broadcast: return copy(output_of(collective_.peer), output_, whole_.count());
      default: return;
    }
  }
  void add_inputs() const {
    memory_.terms.clear();
    for (int r = 0; r < n(); ++r) memory_.terms.push_back(input_of(r) + bytes(own_shard().begin));
    add(own_shard().count());
  }

  // A round shows the next piece of each shard. Everything that can be done is done, so that no rank waits for another
  // one while there is a round to show or to add.
  void plan() {
    if (is_small() || sees_all_) return;
    const bool has_parts =
        collective_.kind != CollectiveKind::all_gather && collective_.kind != CollectiveKind::broadcast;
    const std::int64_t room = static_cast<std::int64_t>(NodeArea::kBuffer / element_),
                       line = 64 / static_cast<std::int64_t>(element_);
    piece_ = has_parts ? std::max<std::int64_t>(room / n() / line * line, 1) : room;
    const std::int64_t longest = collective_.kind == CollectiveKind::broadcast ? whole_.count() : shard(0).count();
    rounds_ = static_cast<std::uint64_t>((longest + piece_ - 1) / piece_);
    first_ = memory_.rounds;
    memory_.rounds += rounds_;
  }
  bool work_in_rounds() {
    for (bool moves = true; moves && to_take_ < rounds_;) {
      moves = false;
      if (to_show_ < rounds_ && to_show_ <= to_take_ + 1 &&
          (first_ + to_show_ < 2 || all_have(&NodeArea::taken, first_ + to_show_ - 1))) {
        show(to_show_);
        publish(&NodeArea::shown, first_ + ++to_show_);
        moves = true;
      }
      if (to_add_ < to_show_ && all_have(&NodeArea::shown, first_ + to_add_ + 1)) {
        add_round(to_add_);
        publish(&NodeArea::added, first_ + ++to_add_);
        moves = true;
      }
      if (to_take_ < to_add_ &&
          (collective_.kind != CollectiveKind::all_reduce || all_have(&NodeArea::added, first_ + to_take_ + 1))) {
        take(to_take_);
        publish(&NodeArea::taken, first_ + ++to_take_);
        moves = true;
      }
    }
    if (to_take_ < rounds_) return false;
    publish(&NodeArea::done, index_ + 1);
    return true;
  }
  std::byte* buffer(int r, std::uint64_t round) const { return memory_.area(r).buffers[(first_ + round) % 2]; }
  // The piece of a shard that a round shows.
  Span piece(Span shard, std::uint64_t round) const {
    const std::int64_t begin = std::min(shard.begin + static_cast<std::int64_t>(round) * piece_, shard.end);
    return {begin, std::min(begin + piece_, shard.end)};
  }
  std::byte* place(int r, std::uint64_t round, int owner) const { return buffer(r, round) + bytes(owner * piece_); }

  void show(std::uint64_t round) const {
    switch (collective_.kind) {
      case CollectiveKind::all_reduce:
      case CollectiveKind::reduce_scatter:
      case CollectiveKind::all_to_all:
        for (int i = 1; i < n(); ++i) {
          const int r = (rank() + i) % n();
          const Span span = piece(shard(r), round);
          copy(input_ + bytes(span.begin), place(rank(), round, r), span.count());
        }
        return;
      case CollectiveKind::all_gather: {
        const Span span = piece({0, own_shard().count()}, round);
        return copy(input_ + bytes(span.begin), buffer(rank(), round), span.count());
      }
      case CollectiveKind::broadcast: {
        const Span span = piece(whole_, round);
        if (collective_.peer == rank()) copy(output_ + bytes(span.begin), buffer(rank(), round), span.count());
        return;
      }
      default: return;
    }
  }
  void add_round(std::uint64_t round) const {
    const bool scatters = collective_.kind == CollectiveKind::reduce_scatter;
    if (!scatters && collective_.kind != CollectiveKind::all_reduce) return;
    const Span span = piece(own_shard(), round);
    memory_.terms.clear();
    for (int r = 0; r < n(); ++r)
      memory_.terms.push_back(r == rank() ? input_ + bytes(span.begin) : place(r, round, rank()));
    memory_.results.assign(1, output_ + bytes(scatters ? span.begin - own_shard().begin : span.begin));
    if (!scatters) memory_.results.push_back(place(rank(), round, rank()));
    add(span.count());
  }
  void take(std::uint64_t round) const {
    const auto take_from = [&](Span span, const std::byte* from) {
      copy(from, output_ + bytes(span.begin), span.count());
    };
    switch (collective_.kind) {
      case CollectiveKind::all_reduce:
        for (int i = 1; i < n(); ++i) {
          const int r = (rank() + i) % n();
          take_from(piece(shard(r), round), place(r, round, r));
        }
        return;
      case CollectiveKind::all_gather:
        for (int i = 0; i < n(); ++i) {
          const int r = (rank() + i) % n();
          take_from(piece(shard(r), round),
                    r == rank() ? input_ + bytes(piece({0, own_shard().count()}, round).begin) : buffer(r, round));
        }
        return;
      case CollectiveKind::all_to_all:
        for (int i = 0; i < n(); ++i) {
          const int r = (rank() + i) % n();
          take_from(piece(shard(r), round),
                    r == rank() ? input_ + bytes(piece(shard(r), round).begin) : place(r, round, rank()));
        }
        return;
      case CollectiveKind::broadcast:
        if (collective_.peer != rank()) take_from(piece(whole_, round), buffer(collective_.peer, round));
        return;
      default: return;
    }
  }

  void copy(const std::byte* from, std::byte* to, std::int64_t count) const {
    if (from == to || count == 0) return;
    parallel_for(context(), count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to + bytes(begin), from + bytes(begin), bytes(end - begin));
    });
  }
  // The terms of the node's memory into its results.
  void add(std::int64_t count) const {
    parallel_for(context(), count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      combine_spans({dtype_, dtype_, collective_.op}, memory_.terms, memory_.results, begin, end);
    });
  }

  std::vector<int> awaited() const override {
    if (phase_ != Phase::waiting) return memory_.those_behind(waits_for_.first, waits_for_.second);
    std::vector<int> ranks = memory_.those_behind(&NodeArea::asked, memory_.finished + 1);
    return ranks.empty() ? memory_.those_behind(&NodeArea::done, memory_.finished + 1) : ranks;
  }
  void release() override {
    if (memory_.finished <= index_) memory_.close();
  }

  enum class Phase : unsigned char { asking, agreeing, waiting, working };

  NodeMemory& memory_;
  DType dtype_;
  std::size_t element_;
  Span whole_;
  const std::byte* input_;
  std::byte* output_;
  std::uint64_t index_;  // among the group's collectives
  Phase phase_ = Phase::asking;
  bool sees_all_ = false, worked_ = false;
  unsigned looks_ = 0;
  std::pair<Counter, std::uint64_t> waits_for_ = {&NodeArea::asked, 0};
  std::int64_t piece_ = 0;  // elements
  std::uint64_t rounds_ = 0, first_ = 0, to_show_ = 0, to_add_ = 0, to_take_ = 0;
};

}  // namespace

std::shared_ptr<GroupOperation> make_node_operation(std::shared_ptr<Group> group, const Collective& collective) {
  return std::make_shared<NodeOperation>(std::move(group), collective);
}

}  // namespace keel
