#include "keel/dist/comm/run_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/runtime/error.h"
#include "tests/error_of.h"

namespace keel {
namespace {

TEST(RunRanks, RethrowsTheFailureThatCausedTheOthers) {
  try {
    run_ranks(3, [](Communicator& comm) {
      if (comm.rank() == 2) throw Error("bad weather");
      comm.barrier();
    });
    FAIL();
  } catch (const Error& error) { EXPECT_STREQ(error.what(), "bad weather"); }
}

// It is one of all ranks, also where a rank fails by itself afterwards.
TEST(RunRanks, RethrowsTheFailureThatAllHaveAgreedOn) {
  for (const bool shared : {true, false})
    EXPECT_EQ(testing::error_of([&] {
                run_ranks(2,
                          [](Communicator& comm) {
                            if (comm.rank() == 0) throw AgreedError("ranks differ in the weather");
                            EXPECT_NE(testing::error_of([&] { comm.barrier(); }), "") << "rank 0 has gone";
                            throw Error("bad weather");
                          },
                          {.shared_memory = shared});
              }),
              "ranks differ in the weather");
}

// The reason of one that an exception ends may yet come.
TEST(ThreadHub, MissesARankThatHasLeftInOrderAtOnce) {
  for (const bool in_order : {true, false}) {
    const ThreadHub hub(2);
    const std::unique_ptr<Transport> stays = hub.connect(0);
    int number = 0;
    const std::unique_ptr<Message> message = stays->receive(1, 0, &number, sizeof(number));
    EXPECT_FALSE(message->has_finished());
    try {
      const std::unique_ptr<Transport> goes = hub.connect(1);
      if (!in_order) throw Error("bad weather");
    } catch (const Error&) {}
    EXPECT_EQ(testing::error_of([&] { EXPECT_FALSE(message->has_finished()); }),
              in_order ? "rank 1 has left while rank 0 waits for it" : "");
  }
}

// Also of one that sends, and of groups that were split off a lifeline which all have left.
TEST(ThreadHub, NamesWhoHasLeft) {
  const ThreadHub hub(3);
  const auto one = hub.connect(1), two = hub.connect(2);
  hub.connect(0).reset();
  char word = 0;
  const auto told = [](Message& message) { return testing::error_of([&] { EXPECT_FALSE(message.has_finished()); }); };
  EXPECT_EQ(told(*one->send(0, 7, &word, 1)), "rank 0 has left while rank 1 waits for it");
  EXPECT_EQ(told(*one->receive(0, 7, &word, 1)), "rank 0 has left while rank 1 waits for it");
  EXPECT_EQ(told(*one->send(2, 7, &word, 1)), "");
  EXPECT_EQ(testing::error_of([&] { two->split(0, 0); }), "rank 0 has left while rank 2 splits the group with it");
}

TEST(ThreadHub, NamesWhoHasLeftALifelineThatAllHaveLeft) {
  const ThreadHub hub(2);
  std::unique_ptr<Transport> ends[2], group;
  {
    const auto zero = hub.connect(0), one = hub.connect(1);
    const std::jthread other([&] { ends[1] = one->lifeline(); });
    ends[0] = zero->lifeline();
  }
  group = ends[0]->among({0, 1}, 1);
  char word = 0;
  const auto message = group->receive(1, 7, &word, 1);
  EXPECT_FALSE(message->has_finished());
  for (auto& end : ends) end.reset();
  EXPECT_EQ(testing::error_of([&] { EXPECT_FALSE(message->has_finished()); }),
            "rank 1 has left while rank 0 waits for it");
}

TEST(ThreadHub, HasTheFirstReasonOfItsFamilyButALifelineHasNone) {
  const ThreadHub hub(2);
  const auto zero = hub.connect(0), one = hub.connect(1);
  std::unique_ptr<Transport> lifelines[2];
  {
    const std::jthread other([&] { lifelines[1] = one->lifeline(); });
    lifelines[0] = zero->lifeline();
  }
  lifelines[0]->fail("out of luck");
  EXPECT_EQ(testing::error_of([&] { lifelines[1]->check(); }), "");
  EXPECT_EQ(testing::error_of([&] { one->check(); }), "");
  zero->fail("out of paper");
  one->fail("out of ink");
  for (const auto* each : {&zero, &one}) EXPECT_EQ(testing::error_of([&] { (*each)->check(); }), "out of paper");
  EXPECT_EQ(testing::error_of([&] { lifelines[1]->check(); }), "");
}

TEST(ThreadHub, CopiesMessagesOfAnyLengthWhicheverSideComesFirst) {
  const ThreadHub hub(3);
  const auto one = hub.connect(1), two = hub.connect(2);
  for (const std::size_t bytes : {0, 1, 2, 5})
    for (const bool sends_first : {true, false}) {
      const std::string said = std::string("abcde").substr(0, bytes);
      std::string heard(bytes + 1, '-');
      std::unique_ptr<Message> send, receive;
      if (sends_first) send = two->send(1, 9, said.data(), bytes);
      receive = one->receive(2, 9, heard.data(), bytes);
      EXPECT_EQ(receive->has_finished(), sends_first);
      if (!sends_first) send = two->send(1, 9, said.data(), bytes);
      EXPECT_TRUE(send->has_finished());
      EXPECT_TRUE(receive->has_finished());
      EXPECT_EQ(heard, said + "-");
      EXPECT_EQ(testing::error_of([&] {
                  if (sends_first) send = two->send(1, 9, said.data(), bytes);
                  receive = one->receive(2, 9, heard.data(), bytes + 1);
                  if (!sends_first) send = two->send(1, 9, said.data(), bytes);
                }),
                concat("rank 2 sends ", bytes, " bytes to rank 1, which expects ", bytes + 1));
    }
}

TEST(ThreadHub, HasNoMessagesButBetweenTwoOfItsRanks) {
  const ThreadHub hub(2);
  const auto zero = hub.connect(0), one = hub.connect(1);
  for (const int peer : {-1, 2, 1}) {
    EXPECT_EQ(testing::error_of([&] { one->send(peer, 0, nullptr, 0); }),
              concat("rank 1 of 2 has no message to rank ", peer));
    EXPECT_EQ(testing::error_of([&] { one->receive(peer, 0, nullptr, 0); }),
              concat("rank 1 of 2 has no message from rank ", peer));
  }
  EXPECT_EQ(testing::error_of([&] { one->send(0, 0, nullptr, 0); }), "");
}

TEST(ThreadHub, HasAnAreaOfWholePagesForEachRank) {
  for (const int n : {1, 2, 3})
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4'095}, std::size_t{4'096}, std::size_t{4'097}}) {
      const ThreadHub hub(n);
      const auto last = hub.connect(n - 1);
      const SharedAreas shared = last->share(bytes).value();
      EXPECT_TRUE(shared.one_address_space);
      ASSERT_EQ(shared.areas.size(), static_cast<std::size_t>(n));
      for (int r = 0; r < n; ++r) {
        std::byte* const area = shared.areas[static_cast<std::size_t>(r)];
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(area) % 4'096, 0U);
        for (std::size_t i = 0; i < bytes; ++i) EXPECT_EQ(area[i], std::byte{0});
        std::fill_n(area, bytes, static_cast<std::byte>(r + 1));
      }
      for (int r = 0; r < n; ++r)
        for (std::size_t i = 0; i < bytes; ++i)
          EXPECT_EQ(shared.areas[static_cast<std::size_t>(r)][i], static_cast<std::byte>(r + 1));
    }
}

TEST(ThreadHub, HasThePlacesOfItsRanksAlone) {
  const ThreadHub hub(2);
  for (const int rank : {-1, 2, 3})
    EXPECT_EQ(testing::error_of([&] { hub.connect(rank); }), concat("there is no rank ", rank, " of 2"));
  for (const int size : {0, -1})
    EXPECT_EQ(testing::error_of([&] { ThreadHub none(size); }),
              concat("a group of ranks needs one at least, got ", size));
}

}  // namespace
}  // namespace keel
