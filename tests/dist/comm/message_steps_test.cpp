// Collectives by messages, step by step: ranks of one thread, each of which goes on when the test says so.

#include <gtest/gtest.h>

#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "tests/dist/comm/forwarding_transport.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr std::int64_t kEach = 20'000;  // more than what travels with a signature

// Rank 0 gets a part of each, or each a part of rank 0's. All have come, and rank 1 has gone on where it `goes_on`.
std::string told_by_zero(bool gathers, bool goes_on) {
  const ThreadHub hub(3);
  const Context context = testing::context(1);
  std::vector<std::unique_ptr<Communicator>> comms(3);
  std::vector<Work> works(3);
  for (const std::size_t r : {2, 1, 0}) {
    comms[r] = make_communicator(hub.connect(static_cast<int>(r)),
                                 {.shared_memory = false, .timeout = std::chrono::milliseconds(5)});
    const Tensor whole = zeros(context, {3 * kEach}), part = zeros(context, {kEach});
    works[r] = gathers ? comms[r]->gather(part, whole, 0) : comms[r]->scatter(whole, part, 0);
  }
  if (goes_on) works[1].has_finished();
  return error_of([&] { works[0].wait(); });
}

TEST(MessageTimeOut, NamesThoseWhoseNumbersHaveNotCome) {
  const std::string gathers =
      "rank 0 gave up after 5 ms in gather of 60000 f32 to rank 0 (collective number 0): nothing came from ";
  EXPECT_EQ(told_by_zero(true, false), gathers + "ranks 1, 2");
  EXPECT_EQ(told_by_zero(true, true), gathers + "rank 2");
  EXPECT_EQ(told_by_zero(false, false),
            "rank 0 gave up after 5 ms in scatter of 60000 f32 from rank 0 (collective number 0): nothing came from "
            "its peers")
      << "it waits for them to take what is theirs";
}

// Counts how often memory in common is asked for, and has it once.
class CountedShares : public ForwardingTransport {
 public:
  CountedShares(std::unique_ptr<Transport> inner, int& shares, bool one_address_space)
      : ForwardingTransport(std::move(inner)), shares_(shares), one_address_space_(one_address_space) {}
  std::optional<SharedAreas> share(std::size_t bytes) override {
    if (shares_++ > 0) return {};
    std::optional<SharedAreas> areas = inner().share(bytes);
    areas->one_address_space = one_address_space_;
    return areas;
  }

 private:
  int& shares_;
  bool one_address_space_;
};

TEST(SharedMemory, IsForRanksOfOneNodeThatNeedNoAlgorithm) {
  struct Case {
    int ranks;
    CommunicatorOptions options;
    bool shares;
  };
  const Case cases[] = {{2, {}, true},
                        {3, {}, true},
                        {2, {.nodes = {4, 4}}, true},
                        {2, {.nodes = {0, 1}}, false},
                        {3, {.nodes = {0, 0, 1}}, false},
                        {2, {.shared_memory = false}, false},
                        {2, {.algorithm = "ring"}, false},
                        {3, {.algorithm = "flat"}, false}};
  for (const Case& each : cases)
    for (const bool one_address_space : {true, false}) {
      const ThreadHub hub(each.ranks);
      int shares = 0;
      const auto comm = make_communicator(
          std::make_unique<CountedShares>(hub.connect(each.ranks - 1), shares, one_address_space), each.options);
      EXPECT_EQ(shares, each.shares ? 1 : 0);
      for (const std::int64_t bytes : {0, 2'047, 2'048, 2'049, 100'000}) {  // a small tensor travels anyway
        const int before = shares;
        const Tensor made = comm->allocate(testing::context(1), bytes, DType::u8, Purpose::workspace);
        EXPECT_EQ(made.numel(), bytes);
        EXPECT_EQ(shares - before, each.shares && !one_address_space && bytes > 2'048 ? 1 : 0) << bytes;
      }
    }
}

}  // namespace
}  // namespace keel
