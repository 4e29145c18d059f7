// Values and texts that ranks tell each other, and what they do together or not at all.

#include "keel/dist/comm/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "keel/dist/comm/agreement.h"
#include "tests/dist/comm/ranks.h"

namespace keel {
namespace {

using testing::messages;
using testing::on_ranks;

std::vector<std::byte> bytes_of_rank(int rank, std::size_t count) { return {count, static_cast<std::byte>(rank + 1)}; }

TEST(Exchange, GathersAsManyBytesOfEachRankInTheirOrder) {
  for (const int n : {1, 2, 3, 4})
    on_ranks(n, [&](Communicator& comm) {
      for (const std::size_t count : {0, 1, 5, 1'000}) {
        std::vector<std::vector<std::byte>> expected;
        for (int r = 0; r < n; ++r) expected.push_back(bytes_of_rank(r, count));
        EXPECT_EQ(gather_bytes(comm, bytes_of_rank(comm.rank(), count)), expected);
      }
      const std::vector<double> values = gather_values(comm, 0.5 + comm.rank());
      for (int r = 0; r < n; ++r) EXPECT_EQ(values.at(static_cast<std::size_t>(r)), 0.5 + r);
      EXPECT_EQ(values.size(), static_cast<std::size_t>(n));
    });
}

// The lengths of texts, by rank: the longest one anywhere, and none at all.
TEST(Exchange, BringsTextsOfAnyLengthsToAll) {
  const std::vector<std::vector<std::size_t>> cases = {{0, 0, 0},   {3, 0, 7}, {9, 1, 0},
                                                       {0, 400, 2}, {1, 1, 1}, {5, 2, 2}};
  for (const int n : {1, 2, 3})
    on_ranks(n, [&](Communicator& comm) {
      for (const std::vector<std::size_t>& lengths : cases) {
        std::vector<std::string> texts;
        for (int r = 0; r < n; ++r)
          texts.emplace_back(lengths[static_cast<std::size_t>(r)], static_cast<char>('a' + r));
        const std::string& own = texts[static_cast<std::size_t>(comm.rank())];
        EXPECT_EQ(gather_texts(comm, own), texts);
        for (int root = 0; root < n; ++root)
          EXPECT_EQ(broadcast_text(comm, own, root), texts[static_cast<std::size_t>(root)]);
        EXPECT_EQ(broadcast_text(comm, own), texts[0]);
      }
    });
}

TEST(Exchange, OfARankAloneNeedsNoCollectives) {
  on_ranks(1, [](Communicator& comm) {
    EXPECT_EQ(gather_texts(comm, "alone"), std::vector<std::string>{"alone"});
    EXPECT_EQ(broadcast_text(comm, "alone"), "alone");
    EXPECT_EQ(gather_values(comm, 7), std::vector<int>{7});
    EXPECT_NO_THROW(check_agreement(comm, "a", "they differ"));
    together(comm, [] {});
    EXPECT_EQ(comm.traffic().collectives, 0);
  });
}

// Its length, and then its bytes.
TEST(Exchange, BroadcastsATextByTwoCollectivesAndAnEmptyOneByOne) {
  on_ranks(2, [](Communicator& comm) {
    for (const std::string& text : {std::string(), std::string("a"), std::string(400, 'b')}) {
      const std::int64_t before = comm.traffic().collectives;
      EXPECT_EQ(broadcast_text(comm, text, 1), text);
      EXPECT_EQ(comm.traffic().collectives - before, text.empty() ? 1 : 2);
    }
  });
}

TEST(Together, AllGoOnWhereNoneThrows) {
  for (const int n : {1, 2, 3})
    on_ranks(n, [](Communicator& comm) {
      int runs = 0;
      together(comm, [&] { ++runs; });
      EXPECT_EQ(runs, 1);
    });
}

TEST(Together, AllThrowWhatTheFirstRankOfThoseThatThrowDoes) {
  struct Case {
    std::vector<int> throwing;
    std::string told;
  };
  for (const Case& c : std::vector<Case>{{{0}, "no file 0"},
                                         {{1}, "rank 1: no file 1"},
                                         {{2}, "rank 2: no file 2"},
                                         {{0, 2}, "no file 0"},
                                         {{1, 2}, "rank 1: no file 1"}})
    for (const ErrorKind kind : {ErrorKind::internal, ErrorKind::input, ErrorKind::io, ErrorKind::unsupported})
      on_ranks(3, [&](Communicator& comm) {
        const bool throws = std::count(c.throwing.begin(), c.throwing.end(), comm.rank()) == 1;
        try {
          together(comm, [&] {
            if (throws) throw Error(concat("no file ", comm.rank()), kind);
          });
          ADD_FAILURE() << "rank " << comm.rank() << " goes on";
        } catch (const AgreedError& error) {
          EXPECT_EQ(error.what(), c.told);
          EXPECT_EQ(error.kind(), kind);
          EXPECT_TRUE(is_thrown_by_all(comm));
        }
        comm.barrier();
      });
}

TEST(Together, AnExceptionOfAnotherKindIsInternal) {
  on_ranks(2, [](Communicator& comm) {
    try {
      together(comm, [&] {
        if (comm.rank() == 1) throw std::runtime_error("no room");
      });
      ADD_FAILURE() << "rank " << comm.rank() << " goes on";
    } catch (const AgreedError& error) {
      EXPECT_STREQ(error.what(), "rank 1: no room");
      EXPECT_EQ(error.kind(), ErrorKind::internal);
    }
  });
}

// Of a rank alone every exception is thrown by all; what one of several throws by itself is not.
TEST(Together, ARankAloneThrowsItsOwn) {
  on_ranks(1, [](Communicator& comm) {
    try {
      together(comm, [] { throw std::length_error("no room"); });
      ADD_FAILURE();
    } catch (const std::length_error& error) {
      EXPECT_STREQ(error.what(), "no room");
      EXPECT_TRUE(is_thrown_by_all(comm));
    }
    EXPECT_NO_THROW(check_agreement(comm, "a", "they differ"));
  });
  on_ranks(2, [](Communicator& comm) {
    try {
      throw Error("no file");
    } catch (const Error&) { EXPECT_FALSE(is_thrown_by_all(comm)); }
  });
}

TEST(Agreement, NamesTheFirstRankThatDiffersAndTheLine) {
  struct Case {
    std::vector<std::string> lines;  // of each rank
    std::string told;                // nothing where they agree
  };
  const std::vector<Case> cases = {
      {{"a\nb\n", "a\nb\n", "a\nb\n"}, ""},
      {{"", "", ""}, ""},
      {{"a\nb\n", "a\nc\n", "a\nd\n"}, "rank 0 has b, rank 1 has c"},
      {{"a\nb\n", "a\nb\n", "x\nb\n"}, "rank 0 has a, rank 2 has x"},
      {{"left 1\nright 12\nlast", "left 1\nright 13\nlast", "left 1\nright 12\nlast"},
       "rank 0 has right 12, rank 1 has right 13"},
      {{"a\nb\n", "a\nb\n", "a\nb\nc\n"}, "rank 0 has nothing more, rank 2 has c"},
      {{"a\nb", "a\nbcd", "a\nb"}, "rank 0 has b, rank 1 has bcd"},
      {{"a\nb\nc\n", "a\nbcd\nc\n", "a\nb\nc\n"}, "rank 0 has b, rank 1 has bcd"},
      {{"ab\n", "ab\n", "a\n"}, "rank 0 has ab, rank 2 has a"},
      {{"a\nb\n", "a\n", "a\nb\n"}, "rank 0 has b, rank 1 has nothing more"},
      {{"", "a", ""}, "rank 0 has nothing more, rank 1 has a"},
      {{"\nb", "\nc", "\nb"}, "rank 0 has b, rank 1 has c"},
      {{"a\nb\n", "a\nb\n"}, ""},
      {{"a\nb\n", "a\nc\n"}, "rank 0 has b, rank 1 has c"},
  };
  for (const Case& c : cases)
    on_ranks(static_cast<int>(c.lines.size()), [&](Communicator& comm) {
      std::string told;
      try {
        check_agreement(comm, c.lines[static_cast<std::size_t>(comm.rank())], "they differ");
      } catch (const AgreedError& error) { told = error.what(); }
      EXPECT_EQ(told, c.told.empty() ? "" : "they differ: " + c.told);
    });
}

}  // namespace
}  // namespace keel
