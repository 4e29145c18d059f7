// What a communicator does where the system shares no memory for tensors.

#include <gtest/gtest.h>

#include <mutex>

#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/kernels/elementwise.h"
#include "tests/dist/comm/forwarding_transport.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

// Between processes, as it says, of a system that has shared memory for the ranks' areas and no more.
class Stingy : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  std::optional<SharedAreas> share(std::size_t bytes) override {
    if (std::exchange(has_shared_, true)) return {};
    std::optional<SharedAreas> areas = inner().share(bytes);
    areas->one_address_space = false;
    return areas;
  }

 private:
  bool has_shared_ = false;
};

TEST(PrivateMemory, IsToldOfOnceAndHasTheSameNumbers) {
  for (const int n : {2, 3, 4}) {
    ThreadHub hub(n);
    std::mutex mutex;
    std::vector<std::string> told;
    run_ranks(n, [&](Communicator& ranks) {
      const LogSink log = [&](LogLevel, std::string_view message) {
        const std::lock_guard lock(mutex);
        told.emplace_back(concat("rank ", ranks.rank(), ": ", message));
      };
      const Context logging = Context::create({.threads = 1, .log = log});
      const auto comm = make_communicator(std::make_unique<Stingy>(hub.connect(ranks.rank())));
      for (int i = 0; i < 3; ++i) {
        const Tensor x = comm->allocate(logging, 200'000, DType::f32, Purpose::workspace);
        const Tensor mine = uniform_tensor(logging, {200'000}, static_cast<std::uint64_t>(ranks.rank()));
        kernels::copy_into(x, mine);
        comm->all_reduce(x).wait();
        ranks.all_reduce(mine).wait();
        EXPECT_EQ(doubles(x), doubles(mine));
      }
    });
    ASSERT_EQ(told.size(), 1u) << n << " ranks";
    EXPECT_EQ(told[0], concat("rank 0: the system has no 800000 bytes of memory that all ", n,
                              " ranks see: collectives copy piece by piece, with the same numbers but slower"));
  }
}

}  // namespace
}  // namespace keel
