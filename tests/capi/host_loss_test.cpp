// A loss of the host's own: the numbers of keel's, whatever the host does.

#include <stdexcept>

#include "keel/runtime/device_api.h"
#include "tests/capi/host_mse.h"
#include "tests/capi/learner.h"

namespace keel {
namespace {

using namespace keel::testing;

// A learner and its twin, whose loss is the host's.
struct Twins {
  CContext& context;
  CLearner own, host;
  HostMse seen;

  explicit Twins(CContext& context, Pairs pairs = {})
      : context(context), own(context, c_settings(pairs)), host(context, c_settings(pairs)) {
    EXPECT_KEEL(keel_model_loss(host.model, host_mse, &seen));
  }
};

TEST(CHostLoss, HasTheBitsOfTheSameLossOfKeels) {
  for (const char* optimizer : {"AdamW", "SGD"}) {
    CContext context = c_context();
    Twins twins(context, {{"optimizer.type", optimizer}, {"clip", "0.01"}});
    for (int step = 0; step < 5; ++step) {
      const double loss = twins.own.step(step);
      EXPECT_NEAR(twins.host.step(step), loss, 3e-7 * loss);
    }
    EXPECT_EQ(twins.seen.calls, 5);
    EXPECT_TRUE(numbers_of(twins.own.model) == numbers_of(twins.host.model)) << optimizer;
    // And the model's own again.
    EXPECT_KEEL(keel_model_loss(twins.host.model, nullptr, nullptr));
    EXPECT_EQ(twins.own.step(5), twins.host.step(5));
    EXPECT_EQ(twins.seen.calls, 5);
  }
}

TEST(CHostLoss, CountsInPartsOfAStepAsKeelsDoes) {
  CContext context = c_context();
  Twins twins(context, {{"batch.global", "4"}, {"batch.micro", "1"}, {"optimizer.type", "SGD"}});
  Samples samples(1, 0);
  for (const CLearner* learner : {&twins.own, &twins.host}) {
    std::int64_t first = 0;
    for (const std::int64_t count : {1, 2, 4}) {
      const CArray x = c_array(context, &samples.x[static_cast<std::size_t>(first * kInputs)], {count, kInputs});
      const CArray y = c_array(context, &samples.y[static_cast<std::size_t>(first * kOutputs)], {count, kOutputs});
      if (count < 4) {
        EXPECT_KEEL(keel_train_accumulate(learner->model, x, y, nullptr));
      } else {
        EXPECT_KEEL(keel_train_step(learner->model, x, y, 1e-2, nullptr, nullptr, nullptr));
      }
      first += count;
    }
  }
  EXPECT_EQ(twins.seen.calls, 3);
  EXPECT_TRUE(numbers_of(twins.own.model) == numbers_of(twins.host.model));
}

TEST(CHostLoss, IsCalledByTheThreadThatCallsKeelAndMayNotCallIt) {
  for (const char* overlap : {"true", "false"}) {
    CContext context = c_context();
    Twins twins(context, {{"sharding.overlap", overlap}});
    twins.seen.context = context;
    twins.host.step(1);
    EXPECT_EQ(twins.seen.thread, std::this_thread::get_id());
    EXPECT_EQ(twins.seen.of_a_call, KEEL_ERROR_INPUT);
    EXPECT_EQ(std::string(keel_last_error()),
              "keel_context_fail: a function of the host's that keel has called must not call keel");
    twins.host.step(2);
  }
}

TEST(CHostLoss, ThatFailsEndsTheStepWithItsNumberAndTextAndChangesNothing) {
  CContext context = c_context();
  Twins twins(context);
  Samples samples(7, 0);
  const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs});
  const CArray y = c_array(context, samples.y.data(), {kSamples, kOutputs});
  twins.seen.fails = 42;
  for (const std::string& why : {std::string("no convergence in cell 17"), std::string(), std::string(1000, 'x')}) {
    twins.seen.why = why;
    double loss = -1;
    EXPECT_EQ(keel_train_step(twins.host.model, x, y, 1e-2, &loss, nullptr, nullptr), KEEL_ERROR_INPUT);
    EXPECT_EQ(loss, -1);
    const std::string text = why.substr(0, KEEL_MESSAGE - 1);
    EXPECT_EQ(std::string(keel_last_error()),
              concat("keel_train_step: the host's loss function returned 42", text.empty() ? "" : ": ", text));
  }
  twins.seen.fails = 0;
  for (int step = 0; step < 3; ++step) twins.own.step(step), twins.host.step(step);
  EXPECT_TRUE(numbers_of(twins.own.model) == numbers_of(twins.host.model));
}

int throws(int, const keel_view*, const keel_view*, const keel_view*, const keel_view*, double*, char*, void* user) {
  if (user != nullptr) throw std::runtime_error("of the host's");
  throw 7;
}

TEST(CHostLoss, ThatThrowsLetsNothingAcrossTheBorder) {
  CContext context = c_context();
  CLearner learner(context, CSettings());
  Samples samples(7, 0);
  const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs});
  const CArray y = c_array(context, samples.y.data(), {kSamples, kOutputs});
  for (void* user : {static_cast<void*>(&samples), static_cast<void*>(nullptr)}) {
    EXPECT_KEEL(keel_model_loss(learner.model, throws, user));
    EXPECT_EQ(keel_train_step(learner.model, x, y, 1e-2, nullptr, nullptr, nullptr), KEEL_ERROR_INPUT);
    EXPECT_NE(std::string(keel_last_error()).find(user ? "exception: of the host's" : "that is no exception"),
              std::string::npos)
        << keel_last_error();
  }
  EXPECT_KEEL(keel_model_loss(learner.model, nullptr, nullptr));
  learner.step(1);
}

TEST(CHostLoss, ThatLeavesAGradientOutTakesNoStep) {
  CContext context = c_context();
  Twins twins(context);
  twins.seen.forgets = true;
  const std::string before = numbers_of(twins.host.model);
  Samples samples(7, 0);
  const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs});
  const CArray y = c_array(context, samples.y.data(), {kSamples, kOutputs});
  int taken = 1;
  EXPECT_KEEL(keel_train_step(twins.host.model, x, y, 1e-2, nullptr, nullptr, &taken));
  EXPECT_EQ(taken, 0);
  EXPECT_TRUE(numbers_of(twins.host.model) == before);
}

// (samples, outputs) in Fortran's order, as f64.
TEST(CHostLoss, SeesTargetsAsTheyLie) {
  CContext context = c_context();
  Twins twins(context);
  Samples samples(7, 0);
  std::vector<double> columns(samples.y.size());
  for (std::int64_t i = 0; i < kSamples; ++i)
    for (std::int64_t j = 0; j < kOutputs; ++j)
      columns[static_cast<std::size_t>(i + j * kSamples)] =
          static_cast<double>(samples.y[static_cast<std::size_t>(i * kOutputs + j)]);
  const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs});
  const CArray y = c_array(context, columns.data(), {kSamples, kOutputs}, {1, kSamples});
  EXPECT_KEEL(keel_train_step(twins.host.model, x, y, 1e-2, nullptr, nullptr, nullptr));
  twins.own.step(7);
  EXPECT_TRUE(numbers_of(twins.own.model) == numbers_of(twins.host.model));
}

TEST(CHostLoss, IsOfFullPrecisionWhateverTheModelComputesIn) {
  CContext context = c_context();
  for (const char* strategy : {"bf16", "fp16"}) {
    Twins twins(context, {{"strategy", strategy}, {"loss_scale.initial", "1024"}});
    for (int step = 0; step < 3; ++step) {
      const double loss = twins.own.step(step);
      EXPECT_NEAR(twins.host.step(step), loss, 1e-6 * loss);
    }
    EXPECT_TRUE(numbers_of(twins.own.model) == numbers_of(twins.host.model)) << strategy;
  }
}

TEST(CHostLoss, OfADeviceSeesTheProcessorsMemory) {
  if (count_devices(DeviceType::emulated).count == 0) GTEST_SKIP() << "this build has no emulated device";
  CContext context = c_context({{"threads", "1"}, {"device", "emulated:0"}});
  Twins twins(context);
  for (int step = 0; step < 2; ++step) {
    const double loss = twins.own.step(step);
    EXPECT_NEAR(twins.host.step(step), loss, 1e-6 * loss);
  }
  EXPECT_TRUE(numbers_of(twins.own.model) == numbers_of(twins.host.model));
}

}  // namespace
}  // namespace keel
