// Laws of the algorithms of collectives, on their schedules alone: no messages, no numbers.
//
// Elements are expressions such as "(0+1)@5", the sum of what ranks 0 and 1 gave as element 5, so that a result tells
// which contributions it holds and in which order they were added.

#include "keel/dist/comm/algorithms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "keel/runtime/error.h"

namespace keel {
namespace {

struct Element {
  std::string sum = {};  // empty: never written
  std::int64_t index = -1;
  friend bool operator==(const Element&, const Element&) = default;
};
using Elements = std::vector<Element>;

// Runs the schedules of all ranks until none can go on, and fails on what a real run could not bear.
class Simulation {
 public:
  struct Rank {
    Schedule schedule;
    Elements input, output, scratch = {};
    std::size_t step = 0;
    bool posted = false;
  };

  explicit Simulation(std::vector<Rank> ranks) : ranks_(std::move(ranks)) {
    for (Rank& rank : ranks_) rank.scratch.resize(static_cast<std::size_t>(rank.schedule.scratch));
  }

  std::vector<Rank>& run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r) moved |= advance(static_cast<int>(r));
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      EXPECT_EQ(ranks_[r].step, ranks_[r].schedule.steps.size()) << "rank " << r << " waits for ever";
    for (const auto& [channel, queue] : messages_)
      EXPECT_TRUE(queue.empty()) << channel.first << " sent to " << channel.second << " what nobody received";
    return ranks_;
  }

 private:
  static Elements& memory(Rank& rank, Place place) {
    return place == Place::input ? rank.input : place == Place::output ? rank.output : rank.scratch;
  }
  static Elements read(Rank& rank, const Piece& piece) {
    const Elements& all = memory(rank, piece.place);
    EXPECT_TRUE(piece.span.begin >= 0 && piece.span.end <= static_cast<std::int64_t>(all.size()));
    Elements part(all.begin() + piece.span.begin, all.begin() + piece.span.end);
    for (const Element& element : part) EXPECT_FALSE(element.sum.empty()) << "something unwritten is read";
    return part;
  }
  static void write(Rank& rank, const Piece& piece, const Elements& values) {
    EXPECT_NE(piece.place, Place::input) << "the input is not to be written";
    ASSERT_EQ(static_cast<std::int64_t>(values.size()), piece.span.count()) << "sent and expected lengths differ";
    Elements& all = memory(rank, piece.place);
    ASSERT_LE(piece.span.end, static_cast<std::int64_t>(all.size()));
    std::copy(values.begin(), values.end(), all.begin() + piece.span.begin);
  }
  static bool overlap(const Piece& a, const Piece& b) {
    return a.place == b.place && a.span.begin < b.span.end && b.span.begin < a.span.end;
  }
  // What is received must touch nothing else that is on its way.
  static void check(const Step& step) {
    for (std::size_t i = 0; i < step.receives.size(); ++i) {
      for (const Transfer& send : step.sends) EXPECT_FALSE(overlap(step.receives[i].piece, send.piece));
      for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(overlap(step.receives[i].piece, step.receives[j].piece));
    }
  }

  bool advance(int r) {
    Rank& rank = ranks_[static_cast<std::size_t>(r)];
    if (rank.step == rank.schedule.steps.size()) return false;
    const Step& step = rank.schedule.steps[rank.step];
    bool moved = false;
    if (!rank.posted) {
      check(step);
      for (const Transfer& send : step.sends) messages_[{r, send.peer}].push_back(read(rank, send.piece));
      rank.posted = moved = true;
    }
    std::map<int, std::size_t> needed;
    for (const Transfer& receive : step.receives)
      if (messages_[{receive.peer, r}].size() < ++needed[receive.peer]) return moved;
    for (const Transfer& receive : step.receives) {
      auto& queue = messages_[{receive.peer, r}];
      write(rank, receive.piece, queue.front());
      queue.pop_front();
    }
    for (const Combination& combination : step.combinations) combine(rank, combination);
    ++rank.step;
    rank.posted = false;
    return true;
  }

  static void combine(Rank& rank, const Combination& combination) {
    Elements sums = read(rank, combination.terms.front());
    for (std::size_t t = 1; t < combination.terms.size(); ++t) {
      const Elements term = read(rank, combination.terms[t]);
      ASSERT_EQ(term.size(), sums.size());
      for (std::size_t i = 0; i < sums.size(); ++i) {
        EXPECT_EQ(term[i].index, sums[i].index) << "different elements are added";
        sums[i].sum += '+' + term[i].sum;
      }
    }
    if (combination.terms.size() > 1)
      for (Element& element : sums) element.sum = '(' + element.sum + ')';
    write(rank, combination.result, sums);
  }

  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, std::deque<Elements>> messages_;
};

Elements numbered(int rank, Span span) {
  Elements elements;
  for (std::int64_t i = span.begin; i < span.end; ++i) elements.push_back({std::to_string(rank), i});
  return elements;
}

// The ranks whose contributions a sum holds.
std::multiset<int> contributions(const std::string& sum) {
  std::multiset<int> ranks;
  for (std::size_t i = 0; i < sum.size();) {
    if (!std::isdigit(static_cast<unsigned char>(sum[i]))) {
      ++i;
      continue;
    }
    std::size_t used = 0;
    ranks.insert(std::stoi(sum.substr(i), &used));
    i += used;
  }
  return ranks;
}

std::multiset<int> all_ranks(int n) {
  std::multiset<int> ranks;
  for (int r = 0; r < n; ++r) ranks.insert(r);
  return ranks;
}

struct Case {
  int ranks;
  std::vector<int> node = {};
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (int n = 1; n <= 9; ++n) all.push_back({n});
  all.push_back({8, {0, 0, 0, 0, 1, 1, 1, 1}});
  all.push_back({8, {0, 1, 0, 1, 0, 1, 0, 1}});
  all.push_back({6, {0, 0, 1, 1, 2, 2}});
  all.push_back({7, {5, 5, 5, 2, 2, 9, 9}});
  all.push_back({5, {0, 1, 1, 1, 1}});
  return all;
}
std::vector<std::int64_t> counts(int n) { return {0, 1, n - 1, n, n + 1, 2 * n, 13, 31}; }

using Write = Schedule (*)(const CollectiveShape&);

std::vector<Simulation::Rank> ranks_of(const Case& which, std::int64_t count, Write write) {
  std::vector<Simulation::Rank> ranks;
  for (int r = 0; r < which.ranks; ++r)
    ranks.push_back({write({.rank = r, .size = which.ranks, .count = count, .node = which.node}), {}, {}});
  return ranks;
}

class Algorithms : public ::testing::TestWithParam<const Algorithm*> {};

TEST_P(Algorithms, AllReduceGivesEveryRankTheSameSumOfAllContributions) {
  for (const Case& which : cases()) {
    for (const std::int64_t count : counts(which.ranks)) {
      SCOPED_TRACE(concat(which.ranks, " ranks, ", count, " elements"));
      auto ranks = ranks_of(which, count, GetParam()->all_reduce);
      for (int r = 0; r < which.ranks; ++r) {
        ranks[static_cast<std::size_t>(r)].input = numbered(r, {0, count});
        ranks[static_cast<std::size_t>(r)].output.resize(static_cast<std::size_t>(count));
      }
      Simulation simulation(std::move(ranks));
      const auto& done = simulation.run();
      for (const auto& rank : done) EXPECT_EQ(rank.output, done.front().output);
      for (std::int64_t i = 0; i < count; ++i) {
        const Element& element = done.front().output[static_cast<std::size_t>(i)];
        EXPECT_EQ(element.index, i);
        EXPECT_EQ(contributions(element.sum), all_ranks(which.ranks)) << element.sum;
      }
    }
  }
}

// The same schedule with one memory for input and output, as the engine uses it.
TEST_P(Algorithms, AllReduceInPlaceGivesTheSameSums) {
  for (const Case& which : cases()) {
    for (const std::int64_t count : counts(which.ranks)) {
      auto apart = ranks_of(which, count, GetParam()->all_reduce), together = apart;
      for (int r = 0; r < which.ranks; ++r) {
        apart[static_cast<std::size_t>(r)].input = together[static_cast<std::size_t>(r)].output =
            numbered(r, {0, count});
        apart[static_cast<std::size_t>(r)].output.resize(static_cast<std::size_t>(count));
        for (Step& step : together[static_cast<std::size_t>(r)].schedule.steps) {
          const auto rename = [](Piece& piece) {
            if (piece.place == Place::input) piece.place = Place::output;
          };
          for (Transfer& send : step.sends) rename(send.piece);
          for (Combination& combination : step.combinations)
            for (Piece& term : combination.terms) rename(term);
        }
      }
      Simulation first(std::move(apart)), second(std::move(together));
      EXPECT_EQ(first.run().back().output, second.run().back().output);
    }
  }
}

TEST_P(Algorithms, ReduceScatterGivesEachRankTheAllReducedShard) {
  for (const Case& which : cases()) {
    for (const std::int64_t count : counts(which.ranks)) {
      SCOPED_TRACE(concat(which.ranks, " ranks, ", count, " elements"));
      auto scatter = ranks_of(which, count, GetParam()->reduce_scatter);
      auto reduce = ranks_of(which, count, GetParam()->all_reduce);
      for (int r = 0; r < which.ranks; ++r) {
        const auto at = static_cast<std::size_t>(r);
        scatter[at].input = reduce[at].input = numbered(r, {0, count});
        scatter[at].output.resize(static_cast<std::size_t>(part({0, count}, which.ranks, r).count()));
        reduce[at].output.resize(static_cast<std::size_t>(count));
      }
      Simulation scattering(std::move(scatter)), reducing(std::move(reduce));
      const Elements whole = reducing.run().front().output;
      const auto& done = scattering.run();
      for (int r = 0; r < which.ranks; ++r) {
        const Span shard = part({0, count}, which.ranks, r);
        EXPECT_EQ(done[static_cast<std::size_t>(r)].output,
                  Elements(whole.begin() + shard.begin, whole.begin() + shard.end));
      }
    }
  }
}

TEST_P(Algorithms, AllGatherGivesEveryRankAllShards) {
  for (const Case& which : cases()) {
    for (const std::int64_t count : counts(which.ranks)) {
      SCOPED_TRACE(concat(which.ranks, " ranks, ", count, " elements"));
      auto ranks = ranks_of(which, count, GetParam()->all_gather);
      Elements whole;
      for (int r = 0; r < which.ranks; ++r) {
        const auto at = static_cast<std::size_t>(r);
        ranks[at].input = numbered(r, part({0, count}, which.ranks, r));
        ranks[at].output.resize(static_cast<std::size_t>(count));
        whole.insert(whole.end(), ranks[at].input.begin(), ranks[at].input.end());
      }
      Simulation simulation(std::move(ranks));
      for (const auto& rank : simulation.run()) EXPECT_EQ(rank.output, whole);
    }
  }
}

TEST_P(Algorithms, ReduceGivesTheRootAloneAllContributions) {
  for (const Case& which : cases())
    for (const std::int64_t count : counts(which.ranks))
      for (int root = 0; root < which.ranks; ++root)
        for (const bool by_root : {false, true}) {
          SCOPED_TRACE(concat(which.ranks, " ranks, ", count, " elements, root ", root));
          std::vector<Simulation::Rank> ranks;
          for (int r = 0; r < which.ranks; ++r) {
            const CollectiveShape shape{.rank = r, .size = which.ranks, .count = count, .node = which.node};
            ranks.push_back({by_root ? reduce_by_root(shape, root) : reduce_by_parts(*GetParam(), shape, root),
                             numbered(r, {0, count}), Elements(r == root ? static_cast<std::size_t>(count) : 0)});
          }
          Simulation simulation(std::move(ranks));
          const Elements& sums = simulation.run()[static_cast<std::size_t>(root)].output;
          for (std::int64_t i = 0; i < count; ++i) {
            const Element& element = sums[static_cast<std::size_t>(i)];
            EXPECT_EQ(element.index, i);
            EXPECT_EQ(contributions(element.sum), all_ranks(which.ranks)) << element.sum;
          }
        }
}

INSTANTIATE_TEST_SUITE_P(, Algorithms, ::testing::ValuesIn(algorithms().begin(), algorithms().end()),
                         [](const auto& info) { return std::string(info.param->name); });

std::string sum_of(std::string_view algorithm, const Case& which, std::int64_t count, std::int64_t element) {
  auto ranks = ranks_of(which, count, find_algorithm(algorithm).all_reduce);
  for (int r = 0; r < which.ranks; ++r) {
    ranks[static_cast<std::size_t>(r)].input = numbered(r, {0, count});
    ranks[static_cast<std::size_t>(r)].output.resize(static_cast<std::size_t>(count));
  }
  Simulation simulation(std::move(ranks));
  return simulation.run().front().output[static_cast<std::size_t>(element)].sum;
}

TEST(AlgorithmOrder, IsWhatTheListSays) {
  EXPECT_EQ(sum_of("direct", {4}, 4, 2), "(0+1+2+3)");
  EXPECT_EQ(sum_of("flat", {4}, 4, 2), "(0+1+2+3)");
  EXPECT_EQ(sum_of("ring", {4}, 4, 2), "(((3+0)+1)+2)");
  EXPECT_EQ(sum_of("tree", {4}, 4, 2), "((0+1)+(2+3))");
  EXPECT_EQ(sum_of("tree", {5}, 4, 2), "(((0+1)+(2+3))+4)");
  EXPECT_EQ(sum_of("halving", {4}, 4, 2), "((2+0)+(3+1))");
  EXPECT_EQ(sum_of("hierarchical", {4}, 4, 2), "(0+1+2+3)");
  EXPECT_EQ(sum_of("hierarchical", {4, {0, 0, 1, 1}}, 4, 2), "((0+1)+(2+3))");
  EXPECT_EQ(sum_of("hierarchical", {4, {7, 3, 7, 3}}, 4, 2), "((0+2)+(1+3))");
}

// Bytes are the ring's: (n - 1) / n of the tensor for each half of an all-reduce.
TEST(AlgorithmBytes, AreThoseOfARing) {
  for (const std::string_view name : {"direct", "ring", "hierarchical"}) {
    for (const int n : {1, 2, 3, 4, 8}) {
      const std::int64_t count = 24 * 7;
      for (int r = 0; r < n; ++r) {
        const CollectiveShape shape{.rank = r, .size = n, .count = count};
        const Algorithm& algorithm = find_algorithm(name);
        EXPECT_EQ(algorithm.all_reduce(shape).elements_sent(), 2 * (n - 1) * count / n);
        EXPECT_EQ(algorithm.reduce_scatter(shape).elements_sent(), (n - 1) * count / n);
        EXPECT_EQ(algorithm.all_gather(shape).elements_sent(), (n - 1) * count / n);
      }
    }
  }
}

TEST(AlgorithmBytes, BetweenNodesAreAtMostThoseOfARing) {
  const std::vector<int> node = {0, 0, 0, 0, 1, 1, 1, 1};
  const std::int64_t count = 8 * 11;
  std::int64_t hierarchical = 0, ring = 0, direct = 0;
  for (int r = 0; r < 8; ++r) {
    const CollectiveShape shape{.rank = r, .size = 8, .count = count, .node = node};
    const auto elsewhere = [&](int peer) {
      return node[static_cast<std::size_t>(peer)] != node[static_cast<std::size_t>(r)];
    };
    hierarchical += find_algorithm("hierarchical").reduce_scatter(shape).elements_sent_to(elsewhere);
    ring += find_algorithm("ring").reduce_scatter(shape).elements_sent_to(elsewhere);
    direct += find_algorithm("direct").reduce_scatter(shape).elements_sent_to(elsewhere);
  }
  EXPECT_EQ(hierarchical, count);      // each shard once, to the node of its owner
  EXPECT_EQ(ring, 2 * 7 * count / 8);  // two ranks have their neighbour in the other node
  EXPECT_EQ(direct, 4 * count);
}

TEST(Broadcast, ReachesEveryRankFromEveryRoot) {
  for (const auto write : {broadcast_tree, broadcast_scattered}) {
    for (int n = 1; n <= 9; ++n) {
      for (int root = 0; root < n; ++root) {
        for (const std::int64_t count : counts(n)) {
          std::vector<Simulation::Rank> ranks;
          for (int r = 0; r < n; ++r) {
            ranks.push_back(
                {write({.rank = r, .size = n, .count = count}, root), {}, Elements(static_cast<std::size_t>(count))});
            if (r == root) ranks.back().output = numbered(root, {0, count});
          }
          Simulation simulation(std::move(ranks));
          for (const auto& rank : simulation.run()) EXPECT_EQ(rank.output, numbered(root, {0, count}));
        }
      }
    }
  }
}

TEST(AllToAll, TransposesPartsAndRanks) {
  for (int n = 1; n <= 9; ++n) {
    const std::int64_t each = 3, count = each * n;
    std::vector<Simulation::Rank> ranks;
    for (int r = 0; r < n; ++r)
      ranks.push_back({all_to_all({.rank = r, .size = n, .count = count}), numbered(r, {0, count}),
                       Elements(static_cast<std::size_t>(count))});
    Simulation simulation(std::move(ranks));
    const auto& done = simulation.run();
    for (int r = 0; r < n; ++r)
      for (int from = 0; from < n; ++from)
        for (std::int64_t i = 0; i < each; ++i)
          EXPECT_EQ(done[static_cast<std::size_t>(r)].output[static_cast<std::size_t>(from * each + i)],
                    (Element{std::to_string(from), r * each + i}));
  }
}

}  // namespace
}  // namespace keel
