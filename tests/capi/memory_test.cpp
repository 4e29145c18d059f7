// Models that fit into no memory are refused as in `keel train`, before anything is allocated.

#include "tests/capi/learner.h"
#ifdef KEEL_EMULATED
#include "keel/runtime/emulation/machine.h"
#endif

namespace keel {
namespace {

using namespace keel::testing;

CContext context_on(const char* device) {
  CContext context;
  EXPECT_KEEL(keel_context_create(c_settings({{"threads", "1"}, {"device", device}}), context.out()));
  return context;
}

// Far beyond any machine: allocating it would end the test.
TEST(CMemory, AModelThatIsLargerThanTheMachineIsRefused) {
  CContext context = context_on("cpu");
  for (const int bits : {24, 29, 30}) {  // whose bytes no 64 bits count, in the end
    const std::int64_t width = std::int64_t{1} << bits, widths[] = {width, width, width, 1};
    CModel mlp;
    EXPECT_EQ(keel_model_create_mlp(context, nullptr, widths, 4, "tanh", "mse", mlp.out()), KEEL_ERROR_INPUT);
    const std::string message = keel_last_error();
    EXPECT_NE(message.find("training needs "), std::string::npos) << message;
    EXPECT_NE(message.find("check_memory=false"), std::string::npos) << message;
  }
  const CSettings huge = c_settings({{"model.vocabulary", "256"}, {"model.width", "65536"}, {"model.layers", "1024"}});
  CModel gpt;
  EXPECT_EQ(keel_model_create(context, huge, gpt.out()), KEEL_ERROR_INPUT);
  EXPECT_NE(std::string(keel_last_error()).find("training needs "), std::string::npos) << keel_last_error();
  const CLearner small(context, CSettings());
}

#ifdef KEEL_EMULATED
TEST(CMemory, AModelThatIsLargerThanWhatIsFreeOnTheDeviceIsRefusedUnlessAKeyGoesOnRegardless) {
  emulation::Machine::get().reset({.bytes = std::size_t{2} << 20});
  {
    CContext context = context_on("emulated:0");
    const std::int64_t widths[] = {256, 300, 256};  // 602 KiB of weights, as much of gradients, and twice of means
    CModel first, second, third;
    EXPECT_EQ(keel_model_create_mlp(context, nullptr, widths, 3, "tanh", "mse", first.out()), KEEL_ERROR_INPUT);
    const std::string message = keel_last_error();
    EXPECT_NE(message.find("training needs 2.4 MiB on emulated:0 ("), std::string::npos) << message;
    EXPECT_NE(message.find(" of its 2.0 MiB are free; "), std::string::npos) << message;
    const CSettings plain = c_settings({{"optimizer", "{type: SGD, lr: 0.1}"}});
    EXPECT_KEEL(keel_model_create_mlp(context, plain, widths, 3, "tanh", "mse", second.out()));
    EXPECT_EQ(keel_model_create_mlp(context, plain, widths, 3, "tanh", "mse", third.out()), KEEL_ERROR_INPUT)
        << "beside the other one";
    const CSettings regardless = c_settings({{"check_memory", "false"}});
    EXPECT_NE(keel_model_create_mlp(context, regardless, widths, 3, "tanh", "mse", third.out()), KEEL_OK);
    EXPECT_NE(std::string(keel_last_error()).find("out of memory on emulated:0: "), std::string::npos)
        << keel_last_error();
  }
  emulation::Machine::get().reset({});
}
#endif

}  // namespace
}  // namespace keel
