// In which order a device begins the collectives of several communicators, in the emulator.

#ifdef KEEL_EMULATED

#include <cstdlib>
#include <optional>

#include "tests/cuda/nccl_ranks.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr const char* kVariable = "NCCL_LAUNCH_ORDER_IMPLICIT";

class NcclOrder : public NcclRanks {
 protected:
  void SetUp() override {
    if (const char* value = std::getenv(kVariable)) former_ = value;
    ::unsetenv(kVariable);
  }
  void TearDown() override {
    NcclRanks::TearDown();
    former_ ? ::setenv(kVariable, former_->c_str(), 1) : ::unsetenv(kVariable);
  }

  // Whether a wait for a collective of one communicator is also one for that which another one was asked for before. In
  // the emulator nothing else happens.
  static bool waits_for_the_other(int nccl_version) {
    bool waits = false;
    on_devices(2,
               [&](const DeviceRank& own) {
                 const auto second = make_nccl_communicator(own.context, own.hosts.split(0, own.rank()));
                 const Tensor x = tensor_of(own.context, {1}, {1}), y = tensor_of(own.context, {1}, {1});
                 own.context.synchronize();
                 const Work before = own.devices.all_reduce(x), work = second->all_reduce(y);
                 work.wait();
                 EXPECT_EQ(doubles(y)[0], 2);
                 if (own.rank() == 0) waits = doubles(x)[0] == 2;
                 own.hosts.barrier();
                 before.wait();
                 EXPECT_EQ(doubles(x)[0], 2);
               },
               {.nccl_version = nccl_version});
    return waits;
  }

 private:
  std::optional<std::string> former_;
};

TEST_F(NcclOrder, IsThatOfTheHostWhereNcclKeepsIt) {
  EXPECT_FALSE(waits_for_the_other(22600));
  EXPECT_STREQ(std::getenv(kVariable), "1");
}

TEST_F(NcclOrder, IsThatOfOneStreamWhereNcclIsOlder) {
  EXPECT_TRUE(waits_for_the_other(22500));
  EXPECT_EQ(std::getenv(kVariable), nullptr);
}

TEST_F(NcclOrder, IsThatOfOneStreamWhereTheEnvironmentForbidsNcclToKeepIt) {
  ::setenv(kVariable, "0", 1);
  EXPECT_TRUE(waits_for_the_other(22600));
  EXPECT_STREQ(std::getenv(kVariable), "0");
}

}  // namespace
}  // namespace keel

#endif
