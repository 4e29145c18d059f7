#include "keel/dist/comm/node_operation.h"

#include <algorithm>
#include <cstring>

#include "keel/dist/comm/node_memory.h"
#include "keel/dist/comm/parts.h"
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
        adds_(traits_of(collective.kind).adds),
        scatters_(adds_ && traits_of(collective.kind).gotten == Held::part),
        parts_(collective, group_->rank(), group_->size()),
        input_(collective_.input.defined() ? collective_.input.raw() : nullptr),
        output_(collective_.output.defined() ? collective_.output.raw() : nullptr),
        index_(memory_.collectives++),
        is_small_(bytes(parts_.whole().count()) <= NodeArea::kSmall) {
    number_ = group_->sequence++;
    group_->traffic.control += static_cast<std::int64_t>(sizeof(Signature)) * (n() - 1);
  }

 private:
  int n() const { return memory_.size(); }
  int rank() const { return memory_.rank(); }
  Span own_shard() const { return parts_.shard(rank()); }
  std::size_t bytes(std::int64_t count) const { return static_cast<std::size_t>(count) * element_; }
  NodeArea::Slot& slot(int r) const { return memory_.area(r).slots[index_ % NodeArea::kSlots]; }
  std::span<std::int64_t> table(int r) const { return memory_.table(r, index_ % NodeArea::kSlots); }
  const Context& context() const {
    return (collective_.output.defined() ? collective_.output : collective_.input).context();
  }

  bool proceed() override {
    if (phase_ == Phase::asking && !ask()) return false;
    if (phase_ == Phase::agreeing && !agree()) return false;
    // Buffers and counters belong to one collective at a time.
    if (memory_.finished != index_) return false;
    if (phase_ == Phase::waiting) plan();
    phase_ = Phase::working;
    const bool is_through = is_small_ ? work_small() : sees_all_ ? work_directly() : work_in_rounds();
    if (!is_through) return false;
    ++memory_.finished;
    return true;
  }

  bool all_have(Counter counter, std::uint64_t value) {
    waits_for_ = {counter, value};
    if (memory_.all_have(counter, value)) return true;
    if (++looks_ <= kLooksBeforeChecks && looks_ % kLooksPerCheck != 0) return false;
    group_->transport->check();
    return memory_.all_have(counter, value);  // a check may have let others have the core
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
    mine.signature = Signature(number_, collective_, group_->algorithm_number, rank());
    if (!is_small_ || parts_.are_by_pairs()) {
      mine.input = memory_.place_of(input_);
      mine.output = memory_.place_of(output_);
    }
    if (parts_.are_by_pairs()) tell_parts(table(rank()));
    if (is_small_ && parts_.gives(rank()) && collective_.input.bytes() != 0)
      std::memcpy(mine.data, input_, collective_.input.bytes());
    publish(&NodeArea::asked, index_ + 1);
    phase_ = Phase::agreeing;
    return true;
  }
  void tell_parts(std::span<std::int64_t> table) const {
    for (int r = 0; r < n(); ++r) table[static_cast<std::size_t>(r)] = parts_.shard(r).begin;
    table[static_cast<std::size_t>(n())] = parts_.whole().count();
    table[static_cast<std::size_t>(n()) + 1] = parts_.longest();
  }
  // The largest of an entry in the tables of all ranks.
  std::int64_t largest(int entry) const {
    std::int64_t largest = 0;
    for (int r = 0; r < n(); ++r) largest = std::max(largest, table(r)[static_cast<std::size_t>(entry)]);
    return largest;
  }

  bool agree() {
    if (!all_have(&NodeArea::asked, index_ + 1)) return false;
    if (memory_.any_has_closed()) return hear_why();
    if (!is_one_collective(n(), [&](int r) -> const Signature& { return slot(r).signature; })) disagree();
    count_traffic();
    if (parts_.are_by_pairs()) is_small_ = bytes(largest(n())) <= NodeArea::kSmall;
    sees_all_ = !is_small_ && sees_all();
    phase_ = Phase::waiting;
    return true;
  }
  [[noreturn]] void disagree() const {
    std::vector<Signature> asked;
    for (int r = 0; r < n(); ++r) asked.push_back(slot(r).signature);
    throw Error(difference(asked), ErrorKind::peer);
  }

  // What the algorithm of messages would send.
  void count_traffic() {
    const auto elements = [&]() -> std::int64_t {
      if (traits_of(collective_.kind).has_root) return group_->schedule_of(collective_)->elements_sent();
      std::int64_t sent = 0;
      for (int r = 0; r < n(); ++r)
        if (r != rank()) sent += parts_.given(rank(), r).count();
      return collective_.kind == CollectiveKind::all_reduce ? sent + own_shard().count() * (n() - 1) : sent;
    };
    sent_ = elements() * static_cast<std::int64_t>(element_);
    group_->traffic.inside_node += sent_;
  }

  // Every rank brings all that it gives; whoever gets a sum adds it alone.
  bool work_small() {
    if (adds_ && parts_.gets(rank())) {
      const Span span = scatters_ ? own_shard() : parts_.whole();
      memory_.terms.clear();
      for (int r = 0; r < n(); ++r) memory_.terms.push_back(slot(r).data + bytes(span.begin));
      if (span.count() != 0)
        combine_spans({dtype_, dtype_, collective_.op}, memory_.terms, {&output_, 1}, 0, span.count());
    }
    for (int r = 0; r < n() && !adds_; ++r) {
      const Span span = given_here(r);
      if (span.count() != 0)
        std::memcpy(output_ + bytes(parts_.gotten(r).begin), slot(r).data + bytes(span.begin), bytes(span.count()));
    }
    publish(&NodeArea::done, index_ + 1);
    return true;
  }
  // Of the input of that rank, what comes here.
  Span given_here(int from) const {
    const Span span = parts_.given(from, rank());
    if (!parts_.are_by_pairs()) return span;
    const std::int64_t begin = table(from)[static_cast<std::size_t>(rank())];
    return {begin, begin + span.count()};
  }

  // A window that all name is one that all have: a rank's part of another may have gone. So what the root alone gives
  // or gets is seen in one address space alone; a broadcast has its tensor everywhere.
  bool sees_all() const {
    const auto is_common = [&](NodeArea::Place NodeArea::Slot::*place, bool of_root_alone) {
      if (of_root_alone) return (slot(collective_.peer).*place).window == NodeArea::Place::kAddress;
      const std::uint32_t window = (slot(rank()).*place).window;
      if (window == NodeArea::Place::kPrivate) return false;
      for (int r = 0; r < n(); ++r)
        if ((slot(r).*place).window != window) return false;
      return true;
    };
    const bool writes = adds_ && !scatters_;
    return is_common(&NodeArea::Slot::input, parts_.root_gives() && parts_.differ()) &&
           (!writes || is_common(&NodeArea::Slot::output, parts_.root_gets()));
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
    if (adds_) {
      memory_.terms.clear();
      memory_.results.clear();
      for (int r = 0; r < n(); ++r) memory_.terms.push_back(input_of(r) + bytes(own_shard().begin));
      for (int r = 0; r < n(); ++r) {
        if (scatters_ ? r != rank() : !parts_.gets(r)) continue;
        memory_.results.push_back(r == rank() ? result_of_sum(0) : output_of(r) + bytes(own_shard().begin));
      }
      return add(own_shard().count());
    }
    for (int i = 0; i < n(); ++i) {
      const int r = (rank() + i) % n();
      const Span span = given_here(r);
      copy(input_of(r) + bytes(span.begin), output_ + bytes(parts_.gotten(r).begin), span.count());
    }
  }
  // Where in the output the sums lie that this rank adds, from an element of its shard on.
  std::byte* result_of_sum(std::int64_t element) const {
    return output_ + bytes((scatters_ ? 0 : own_shard().begin) + element);
  }

  // A round shows the next piece of each shard. Everything that can be done is done, so that no rank waits for another
  // one while there is a round to show or to add.
  void plan() {
    if (is_small_ || sees_all_) return;
    const std::int64_t room = static_cast<std::int64_t>(NodeArea::kBuffer / element_),
                       line = 64 / static_cast<std::int64_t>(element_);
    piece_ = parts_.differ() ? std::max<std::int64_t>(room / n() / line * line, 1) : room;
    const std::int64_t longest = parts_.are_by_pairs() ? largest(n() + 1) : parts_.longest();
    rounds_ = static_cast<std::uint64_t>((longest + piece_ - 1) / piece_);
    first_ = memory_.rounds;
    memory_.rounds += rounds_;
  }
  bool work_in_rounds() {
    for (bool moves = true; moves;) {
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
      if (to_take_ < to_add_ && (!takes_sums() || all_have(&NodeArea::added, first_ + to_take_ + 1))) {
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
  // The piece of a part that a round shows.
  Span piece(Span part, std::uint64_t round) const {
    const std::int64_t begin = std::min(part.begin + static_cast<std::int64_t>(round) * piece_, part.end);
    return {begin, std::min(begin + piece_, part.end)};
  }
  std::byte* place(int r, std::uint64_t round, int owner) const { return buffer(r, round) + bytes(owner * piece_); }
  // Whether it gets sums that other ranks have added.
  bool takes_sums() const { return adds_ && !scatters_ && parts_.gets(rank()); }

  void show(std::uint64_t round) const {
    if (!parts_.gives(rank())) return;
    if (!parts_.differ()) {
      const Span span = piece({0, collective_.input.numel()}, round);
      return copy(input_ + bytes(span.begin), buffer(rank(), round), span.count());
    }
    for (int i = 1; i < n(); ++i) {
      const int r = (rank() + i) % n();
      const Span span = piece(parts_.given(rank(), r), round);
      copy(input_ + bytes(span.begin), place(rank(), round, r), span.count());
    }
  }
  void add_round(std::uint64_t round) const {
    if (!adds_) return;
    const Span span = piece(own_shard(), round);
    memory_.terms.clear();
    memory_.results.clear();
    for (int r = 0; r < n(); ++r)
      memory_.terms.push_back(r == rank() ? input_ + bytes(span.begin) : place(r, round, rank()));
    if (parts_.gets(rank())) memory_.results.push_back(result_of_sum(span.begin - own_shard().begin));
    if (!scatters_) memory_.results.push_back(place(rank(), round, rank()));
    add(span.count());
  }
  void take(std::uint64_t round) const {
    if (adds_) {
      for (int i = 1; takes_sums() && i < n(); ++i) {
        const int r = (rank() + i) % n();
        const Span span = piece(parts_.shard(r), round);
        copy(place(r, round, r), output_ + bytes(span.begin), span.count());
      }
      return;
    }
    for (int i = 0; i < n(); ++i) {
      const int r = (rank() + i) % n();
      const Span given = parts_.given(r, rank()), span = piece(given, round);
      const std::byte* const from = r == rank()       ? input_ + bytes(span.begin)
                                    : parts_.differ() ? place(r, round, rank())
                                                      : buffer(r, round);
      copy(from, output_ + bytes(parts_.gotten(r).begin + span.begin - given.begin), span.count());
    }
  }

  void copy(const std::byte* from, std::byte* to, std::int64_t count) const {
    if (from == to) return;
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
    const bool is_ahead = memory_.finished != index_;  // an earlier collective is at hand
    if (phase_ == Phase::agreeing || !is_ahead) return memory_.those_behind(waits_for_.first, waits_for_.second);
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
  bool adds_, scatters_;  // the latter: each rank gets the sum of its own part
  Parts parts_;
  const std::byte* input_;
  std::byte* output_;
  std::uint64_t index_;  // among the group's collectives
  bool is_small_;        // of an all_to_all_v, until ranks agree: what this rank gives
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
