// Who is left of ranks of which some go, also while the others agree on it.

#include "keel/dist/comm/lifeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <latch>
#include <optional>
#include <random>
#include <thread>

#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/kernels/elementwise.h"
#include "keel/runtime/error.h"
#include "tests/dist/comm/forwarding_transport.h"
#include "tests/dist/comm/messages.h"
#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

struct Dies {};

// Dies where it would send a message of this number.
class MortalTransport : public ForwardingTransport {
 public:
  MortalTransport(std::unique_ptr<Transport> inner, int left) : ForwardingTransport(std::move(inner)), left_(left) {}
  std::unique_ptr<Message> send(int to, std::uint64_t tag, const void* data, std::size_t bytes) override {
    if (left_-- == 0) throw Dies();
    return ForwardingTransport::send(to, tag, data, bytes);
  }

 private:
  int left_;
};

constexpr int kImmortal = -1, kAgreements = 3;
std::int64_t word_of(int rank, int agreement) { return 100 * rank + agreement; }

// What each rank has got by agreements, one after the other; rank r dies before its deaths[r]-th message.
std::vector<std::vector<Survivors>> agreed_by(const std::vector<int>& deaths, const std::vector<int>& groups) {
  const auto n = static_cast<int>(deaths.size());
  const ThreadHub hub(n);
  std::vector<std::vector<Survivors>> by_rank(deaths.size());
  std::latch all_have_agreed(n);  // who goes before is missing to the others
  const auto run = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::unique_ptr<Transport> all = hub.connect(rank);
    std::optional<MortalTransport> lifeline(std::in_place, all->lifeline(), deaths[r]);
    std::optional<Agreement> agreement(std::in_place, *lifeline, groups, std::chrono::seconds(20));
    try {
      for (int i = 0; i < kAgreements; ++i) by_rank[r].push_back(agreement->agree(word_of(rank, i)));
      all_have_agreed.arrive_and_wait();
      return;
    } catch (const Dies&) {
    } catch (const Error&) {}  // its group is missing
    agreement.reset();
    lifeline.reset();
    all_have_agreed.count_down();
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back(run, rank);
  threads.clear();
  return by_rank;
}

std::vector<int> each_by_itself(int n) {
  std::vector<int> groups;
  for (int r = 0; r < n; ++r) groups.push_back(r);
  return groups;
}

TEST(Agreement, OfAllWhoAreThereIsThatTheyAre) {
  for (const int n : {1, 2, 5})
    for (const std::vector<Survivors>& told :
         agreed_by(std::vector<int>(static_cast<std::size_t>(n), kImmortal), each_by_itself(n))) {
      ASSERT_EQ(told.size(), static_cast<std::size_t>(kAgreements));
      for (int i = 0; i < kAgreements; ++i) {
        const Survivors& survivors = told[static_cast<std::size_t>(i)];
        EXPECT_EQ(survivors.ranks, each_by_itself(n));
        for (std::size_t r = 0; r < survivors.ranks.size(); ++r)
          EXPECT_EQ(survivors.words[r], word_of(static_cast<int>(r), i));
      }
    }
}

// At each message that ranks die, of one to all but one rank.
TEST(Agreement, IsTheSameOnAllThatAreLeftWheneverOthersDie) {
  std::mt19937 random(7);
  for (int round = 0; round < 150; ++round) {
    const int n = 2 + static_cast<int>(random() % 4);
    std::vector<int> deaths(static_cast<std::size_t>(n), kImmortal);
    for (int dead = 1 + static_cast<int>(random() % static_cast<unsigned>(n - 1)); dead > 0; --dead)
      deaths[random() % deaths.size()] = static_cast<int>(random() % static_cast<unsigned>(4 * n));
    const auto by_rank = agreed_by(deaths, each_by_itself(n));
    const std::vector<Survivors>* first = nullptr;
    for (int r = 0; r < n; ++r) {
      const std::vector<Survivors>& told = by_rank[static_cast<std::size_t>(r)];
      if (told.size() < static_cast<std::size_t>(kAgreements)) {
        EXPECT_NE(deaths[static_cast<std::size_t>(r)], kImmortal) << "round " << round << ", rank " << r;
        continue;
      }
      if (first == nullptr) first = &told;
      for (int i = 0; i < kAgreements; ++i) {
        const Survivors& mine = told[static_cast<std::size_t>(i)];
        EXPECT_EQ(mine.ranks, (*first)[static_cast<std::size_t>(i)].ranks) << "round " << round << ", rank " << r;
        EXPECT_EQ(mine.words, (*first)[static_cast<std::size_t>(i)].words);
        EXPECT_TRUE(std::ranges::binary_search(mine.ranks, r));
        for (std::size_t at = 0; at < mine.ranks.size(); ++at) EXPECT_EQ(mine.words[at], word_of(mine.ranks[at], i));
        if (i > 0) {
          EXPECT_TRUE(std::ranges::includes(told[static_cast<std::size_t>(i) - 1].ranks, mine.ranks)) << "none returns";
        }
      }
    }
  }
}

TEST(Agreement, LeavesOutAWholeGroup) {
  const std::vector<int> groups = {0, 0, 1, 1, 2, 2};
  for (std::size_t dead = 0; dead < groups.size(); ++dead) {
    std::vector<int> deaths(groups.size(), kImmortal), left;
    deaths[dead] = 0;
    for (std::size_t r = 0; r < groups.size(); ++r)
      if (groups[r] != groups[dead]) left.push_back(static_cast<int>(r));
    const auto by_rank = agreed_by(deaths, groups);
    for (const int r : left) {
      const std::vector<Survivors>& told = by_rank[static_cast<std::size_t>(r)];
      ASSERT_EQ(told.size(), static_cast<std::size_t>(kAgreements));
      EXPECT_EQ(told.back().ranks, left);
    }
    EXPECT_LT(by_rank[dead ^ 1].size(), static_cast<std::size_t>(kAgreements)) << "it ends with its group";
  }
}

// The ends of all ranks of a lifeline.
std::vector<std::unique_ptr<Transport>> lifelines_of(const ThreadHub& hub) {
  std::vector<std::unique_ptr<Transport>> ends(static_cast<std::size_t>(hub.size()));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < hub.size(); ++rank)
    threads.emplace_back([&, rank] { ends[static_cast<std::size_t>(rank)] = hub.connect(rank)->lifeline(); });
  return ends;
}

// All ranks but 0 are played by hand. What they send: whether it is the result, and for each rank whether it is
// missing, whether its word is known, and the word.
TEST(Agreement, IsNoneWhereRanksMissOthers) {
  constexpr int kRanks = 4;
  constexpr std::uint64_t kFirst = std::uint64_t{1} << 32;  // the tag of the first agreement's first round
  using Numbers = std::array<std::int64_t, 1 + 3 * kRanks>;
  for (int missing = 1; missing < kRanks; ++missing) {
    std::vector<std::unique_ptr<Transport>> ends = lifelines_of(ThreadHub(kRanks));
    Agreement agreement(*ends[0], each_by_itself(kRanks), std::chrono::seconds(20));
    std::jthread zero([&] { EXPECT_EQ(agreement.agree(7).ranks, std::vector<int>{0}) << "the others go afterwards"; });
    const int speaker = missing == 1 ? 2 : 1;
    Numbers said[kRanks] = {}, heard = {};
    said[speaker][1 + static_cast<std::size_t>(missing)] = 1;
    std::vector<std::unique_ptr<Message>> sent;
    for (std::size_t r = 1; r < kRanks; ++r) sent.push_back(ends[r]->send(0, kFirst, said[r].data(), sizeof(Numbers)));
    Transport& end = *ends[static_cast<std::size_t>(speaker)];
    finish(end, *end.receive(0, kFirst + 1, heard.data(), sizeof(Numbers)));
    EXPECT_EQ(heard[0], 0) << "it takes the result from ranks that miss others";
    for (int r = 0; r < kRanks; ++r) EXPECT_EQ(heard[1 + static_cast<std::size_t>(r)], r == missing ? 1 : 0);
    sent.clear();
    for (std::size_t r = 1; r < kRanks; ++r) ends[r].reset();
  }
}

// Ranks 1 and 2 are played by hand, and rank 3 has gone. Everything that rank 0 says is seen, in two agreements.
TEST(Agreement, SaysWhatItKnowsInEachRoundAndTheResultBehindTheLast) {
  constexpr std::size_t kRanks = 4;
  using Numbers = std::array<std::int64_t, 1 + 3 * kRanks>;
  std::vector<std::unique_ptr<Transport>> ends = lifelines_of(ThreadHub(kRanks));
  ends[3].reset();
  Agreement agreement(*ends[0], each_by_itself(kRanks), std::chrono::seconds(20));
  std::vector<Survivors> agreed;
  std::jthread zero([&] {
    for (const std::int64_t word : {70, 700}) agreed.push_back(agreement.agree(word));
  });
  const auto say_and_hear = [&](std::uint64_t tag, const std::array<Numbers, 2>& said) {
    std::vector<std::unique_ptr<Message>> messages;
    std::array<Numbers, 2> heard = {};
    for (const std::size_t r : {1, 2}) {
      messages.push_back(ends[r]->receive(0, tag, heard[r - 1].data(), sizeof(Numbers)));
      messages.push_back(ends[r]->send(0, tag, said[r - 1].data(), sizeof(Numbers)));
    }
    for (const auto& message : messages) finish(*ends[1], *message);
    EXPECT_EQ(heard[0], heard[1]);
    return heard[0];
  };
  const auto hear = [&](std::uint64_t tag) {
    Numbers heard = {};
    for (const std::size_t r : {1, 2}) finish(*ends[r], *ends[r]->receive(0, tag, heard.data(), sizeof(Numbers)));
    return heard;
  };
  // Whether it is the result; missing, known, words.
  const std::uint64_t first = std::uint64_t{1} << 32, second = std::uint64_t{2} << 32;
  const Numbers one = {0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 81, 0, 0}, two = {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 92, 0};
  EXPECT_EQ(say_and_hear(first, {one, two}), (Numbers{0, 0, 0, 0, 0, 1, 0, 0, 0, 70, 0, 0, 0}));
  const Numbers all = {0, 0, 0, 0, 1, 1, 1, 1, 0, 70, 81, 92, 0};
  EXPECT_EQ(say_and_hear(first + 1, {all, all}), all);
  EXPECT_EQ(hear(first + 2), (Numbers{1, 0, 0, 0, 1, 1, 1, 1, 0, 70, 81, 92, 0}));
  const Numbers next = {0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 810, 0, 0}, other = {0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 920, 0};
  EXPECT_EQ(say_and_hear(second, {next, other}), (Numbers{0, 0, 0, 0, 1, 1, 0, 0, 0, 700, 0, 0, 0}));
  EXPECT_EQ(hear(second + 1), (Numbers{1, 0, 0, 0, 1, 1, 1, 1, 0, 700, 810, 920, 0}));
  zero.join();
  ASSERT_EQ(agreed.size(), 2u);
  for (const Survivors& each : agreed) EXPECT_EQ(each.ranks, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(agreed[0].words, (std::vector<std::int64_t>{70, 81, 92}));
  EXPECT_EQ(agreed[1].words, (std::vector<std::int64_t>{700, 810, 920}));
}

TEST(Agreement, EndsWhereARankNeitherComesNorGoes) {
  const ThreadHub hub(2);
  std::unique_ptr<Transport> here, there;
  std::jthread other([&] { there = hub.connect(1)->lifeline(); });
  here = hub.connect(0)->lifeline();
  other.join();
  Agreement agreement(*here, {0, 1}, std::chrono::milliseconds(50));
  EXPECT_THROW(agreement.agree(0), Error);
}

TEST(SplitApart, AGroupsFailureIsItsOwn) {
  const auto told = messages(4, [](Communicator& comm) {
    const auto pair = comm.split_apart(comm.rank() / 2, comm.rank());
    const auto below = pair->split(0, pair->rank());
    if (comm.rank() == 0) below->fail("out of paper");
    if (comm.rank() < 2) return below->barrier();
    EXPECT_THROW(
        for (;;) {
          comm.poll();
          std::this_thread::yield();
        },
        Error)
        << "ranks 0 and 1 have failed, and told it";
    pair->barrier();
    below->barrier();
  });
  for (const std::size_t r : {0, 1}) EXPECT_NE(told[r].find("out of paper"), std::string::npos) << told[r];
  for (const std::size_t r : {2, 3}) EXPECT_EQ(told[r], "");
}

// As transports of MPI, which offer none of it.
TEST(Lifeline, IsRefusedWhereRanksEndTogether) {
  const ThreadHub hub(1);
  const auto ranks = make_communicator(std::make_unique<ForwardingTransport>(hub.connect(0)));
  for (const auto& asks :
       std::vector<std::function<void()>>{[&] { ranks->lifeline({0}); }, [&] { ranks->split_apart(0, 0); }}) {
    try {
      asks();
      ADD_FAILURE() << "it is not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
      EXPECT_NE(std::string(error.what()).find("keel launch --tcp"), std::string::npos) << error.what();
    }
  }
}

TEST(Lifeline, MakesACommunicatorOfThoseThatAreLeft) {
  const auto left = results_of_those_left(4, [](Communicator& comm) -> std::vector<double> {
    const auto lifeline = comm.lifeline({0, 1, 2, 3});
    const auto ranks = comm.split_apart(0, comm.rank());
    if (comm.rank() == 1) die();
    EXPECT_THROW(ranks->barrier(), Error);
    const Survivors survivors = lifeline->agree(comm.rank());
    EXPECT_EQ(survivors.ranks, (std::vector<int>{0, 2, 3}));
    const auto fewer = lifeline->ranks();
    const Tensor x = tensor_of(testing::context(1), {1.0 + comm.rank()}, {1});
    fewer->all_reduce(x).wait();
    return {x.item(), static_cast<double>(fewer->rank()), static_cast<double>(fewer->size())};
  });
  EXPECT_EQ(left, (std::vector<std::vector<double>>{{8, 0, 3}, {}, {8, 1, 3}, {8, 2, 3}}));
}

// Rank 1 comes only once it has a sum to which rank 0, which agrees already, still has to add its part.
TEST(Lifeline, GoesOnMeanwhileWithWhatOthersWaitFor) {
  const auto left = results_of_those_left(3, [](Communicator& comm) -> std::vector<double> {
    const auto lifeline = comm.lifeline({0, 0, 1});
    const auto group = comm.split_apart(comm.rank() / 2, comm.rank());
    const auto word = group->split(0, group->rank());
    if (comm.rank() == 2) die();
    const Context context = testing::context(1);
    const Tensor x = kernels::full(context, {5000}, 1.0 + comm.rank()), hint = zeros(context, {1});
    if (comm.rank() == 1) word->receive(hint, 0).wait();
    const Work sum = group->all_reduce(x);
    if (comm.rank() == 0) word->send(hint, 1).wait();
    else sum.wait();
    const Survivors survivors = lifeline->agree(0);
    EXPECT_EQ(survivors.ranks, (std::vector<int>{0, 1}));
    sum.wait();
    lifeline->ranks()->barrier();  // who goes while others agree is gone
    return {doubles(x).back()};
  });
  EXPECT_EQ(left, (std::vector<std::vector<double>>{{3}, {3}, {}}));
}

}  // namespace
}  // namespace keel
