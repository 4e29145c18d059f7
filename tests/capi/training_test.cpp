// A rank alone, trained through C: the same bits as through C++, whatever the layout; files; inference.

#include <cmath>
#include <fstream>
#include <limits>

#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/runtime/device_api.h"
#include "tests/capi/learner.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(CTraining, HasTheBitsOfTheSameTrainingInCpp) {
  const TemporaryFolder place;
  const auto alone = make_communicator(ThreadHub(1).connect(0));
  for (const char* optimizer : {"AdamW", "SGD", "Lion", "Muon", "ScheduleFreeAdamW"})
    for (const char* clip : {"0", "0.01"}) {
      CContext context = c_context();
      CLearner c(context, c_settings({{"optimizer.type", optimizer}, {"clip", clip}, {"seed", "7"}}));
      const Config config = parse_config("steps: 1\nseed: 7\ndata: {type: addition}", "test",
                                         {concat("optimizer.type=", optimizer), concat("clip=", clip)});
      CppLearner cpp(*alone, config);
      for (int step = 0; step < 5; ++step) EXPECT_EQ(c.step(step), cpp.step(step));
      cpp.save(place / "cpp");
      EXPECT_EQ(numbers_of(c.model), saved_numbers(place / "cpp")) << optimizer;
    }
}

// (samples, features) as (features, samples) in Fortran's order, as f64, and cut out of a larger field.
TEST(CTraining, HasTheSameBitsForEveryLayoutAndWidthOfTheHostsNumbers) {
  const auto weights_after = [](const auto& arrays_of) {
    CContext context = c_context({{"threads", "1"}, {"kernels", "plain"}});
    const CLearner learner(context, CSettings());
    for (int step = 0; step < 3; ++step) {
      Samples samples(step, 0);
      arrays_of(context, samples, [&](const CArray& x, const CArray& y) {
        EXPECT_KEEL(keel_train_step(learner.model, x, y, 1e-2, nullptr, nullptr, nullptr));
      });
    }
    return numbers_of(learner.model);
  };
  const std::string dense = weights_after([](CContext& context, Samples& s, const auto& train) {
    train(c_array(context, s.x.data(), {kSamples, kInputs}), c_array(context, s.y.data(), {kSamples, kOutputs}));
  });
  EXPECT_EQ(dense, weights_after([](CContext& context, Samples& s, const auto& train) {
              std::vector<double> x(s.x.begin(), s.x.end()), y(s.y.begin(), s.y.end());
              train(c_array(context, x.data(), {kSamples, kInputs}), c_array(context, y.data(), {kSamples, kOutputs}));
            }));
  EXPECT_EQ(dense, weights_after([](CContext& context, Samples& s, const auto& train) {
              std::vector<float> x(s.x.size());  // x(samples, inputs) in Fortran's order
              for (std::int64_t i = 0; i < kSamples; ++i)
                for (std::int64_t j = 0; j < kInputs; ++j)
                  x[static_cast<std::size_t>(i + j * kSamples)] = s.x[static_cast<std::size_t>(i * kInputs + j)];
              train(c_array(context, x.data(), {kSamples, kInputs}, {1, kSamples}),
                    c_array(context, s.y.data(), {kSamples, kOutputs}));
            }));
  EXPECT_EQ(dense, weights_after([](CContext& context, Samples& s, const auto& train) {
              constexpr std::int64_t kPitch = kInputs + 3;  // a field with a frame around it
              std::vector<double> x((kSamples + 2) * kPitch, 1e9);
              for (std::int64_t i = 0; i < kSamples; ++i)
                for (std::int64_t j = 0; j < kInputs; ++j)
                  x[static_cast<std::size_t>((i + 1) * kPitch + j + 1)] =
                      static_cast<double>(s.x[static_cast<std::size_t>(i * kInputs + j)]);
              train(c_array(context, x.data() + kPitch + 1, {kSamples, kInputs}, {kPitch, 1}),
                    c_array(context, s.y.data(), {kSamples, kOutputs}));
            }));
}

TEST(CTraining, PartsOfAStepAddUpToTheWhole) {
  CContext context = c_context();
  const auto settings =
      c_settings({{"optimizer.type", "SGD"}, {"clip", "0"}, {"batch.global", "4"}, {"batch.micro", "1"}});
  CLearner whole(context, settings), parts(context, settings);
  Samples samples(1, 0);
  const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs});
  const CArray y = c_array(context, samples.y.data(), {kSamples, kOutputs});
  double norm = 0, norm_of_parts = 0, sum = 0;
  EXPECT_KEEL(keel_train_step(whole.model, x, y, 1e-2, nullptr, &norm, nullptr));
  for (int part = 0; part < 3; ++part) {
    const std::int64_t first = 2 * part, count = part == 2 ? kSamples - first : 2;
    const CArray xs = c_array(context, &samples.x[static_cast<std::size_t>(first * kInputs)], {count, kInputs});
    const CArray ys = c_array(context, &samples.y[static_cast<std::size_t>(first * kOutputs)], {count, kOutputs});
    double loss = 0;
    if (part < 2) {
      EXPECT_KEEL(keel_train_accumulate(parts.model, xs, ys, &loss));
    } else {
      EXPECT_KEEL(keel_train_step(parts.model, xs, ys, 1e-2, &loss, &norm_of_parts, nullptr));
    }
    sum += loss * static_cast<double>(count);
  }
  EXPECT_NEAR(norm_of_parts, norm, 1e-6 * norm);
  EXPECT_GT(sum, 0);
  // A part more than was announced is refused, and the step that has begun can be ended.
  for (int part = 0; part < 3; ++part) EXPECT_KEEL(keel_train_accumulate(parts.model, x, y, nullptr));
  EXPECT_EQ(keel_train_accumulate(parts.model, x, y, nullptr), KEEL_ERROR_INPUT);
  EXPECT_KEEL(keel_train_step(parts.model, x, y, 1e-2, nullptr, nullptr, nullptr));
}

TEST(CTraining, AnswersIntoAnyMemoryWhatTheModelSays) {
  CContext context = c_context();
  CLearner learner(context, CSettings());
  const auto alone = make_communicator(ThreadHub(1).connect(0));
  CppLearner cpp(*alone, parse_config("steps: 1\ndata: {type: addition}", "test"));
  Samples samples(3, 0);
  const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs});
  const Variable wanted = cpp.net(Variable(from_values(cpp.context, samples.x, {kSamples, kInputs})));

  std::vector<float> dense(kSamples * kOutputs);
  EXPECT_KEEL(keel_infer(learner.model, x, c_array(context, dense.data(), {kSamples, kOutputs})));
  EXPECT_EQ(dense, wanted.value().to_vector<float>());

  std::vector<double> columns(kSamples * kOutputs + 1, -1);  // (outputs, samples) of C's order, and one more
  EXPECT_KEEL(keel_infer(learner.model, x, c_array(context, columns.data(), {kSamples, kOutputs}, {1, kSamples})));
  for (std::int64_t i = 0; i < kSamples; ++i)
    for (std::int64_t j = 0; j < kOutputs; ++j)
      EXPECT_EQ(columns[static_cast<std::size_t>(i + j * kSamples)],
                static_cast<double>(dense[static_cast<std::size_t>(i * kOutputs + j)]));
  EXPECT_EQ(columns.back(), -1);
  for (const std::vector<std::int64_t>& strides : {std::vector<std::int64_t>{0, 1}, {1, 1}})
    EXPECT_EQ(keel_infer(learner.model, x, c_array(context, dense.data(), {kSamples, kOutputs}, strides)),
              KEEL_ERROR_INPUT);
}

TEST(CTraining, OneOutputMayLeaveItsDimensionOut) {
  CContext context = c_context();
  const std::int64_t widths[] = {kInputs, 1};
  CModel with, without;
  for (CModel* model : {&with, &without})
    EXPECT_KEEL(keel_model_create_mlp(context, nullptr, widths, 2, "relu", "mse", model->out()));
  Samples samples(1, 0);
  const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs});
  double losses[2] = {};
  EXPECT_KEEL(
      keel_train_step(with, x, c_array(context, samples.y.data(), {kSamples, 1}), 1e-2, &losses[0], nullptr, nullptr));
  EXPECT_KEEL(
      keel_train_step(without, x, c_array(context, samples.y.data(), {kSamples}), 1e-2, &losses[1], nullptr, nullptr));
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(numbers_of(with), numbers_of(without));
  std::vector<float> answers(2 * kSamples);
  EXPECT_KEEL(keel_infer(with, x, c_array(context, answers.data(), {kSamples, 1})));
  EXPECT_KEEL(keel_infer(with, x, c_array(context, &answers[kSamples], {kSamples})));
  EXPECT_TRUE(std::equal(answers.begin(), answers.begin() + kSamples, answers.begin() + kSamples));
}

TEST(CTraining, LearnsClassesOfEitherWidth) {
  CContext context = c_context();
  const std::int64_t widths[] = {2, 16, 3};
  const auto train = [&](auto tag) {
    CModel model;
    EXPECT_KEEL(keel_model_create_mlp(context, nullptr, widths, 3, "gelu", "cross_entropy", model.out()));
    std::vector<float> x;
    std::vector<decltype(tag)> classes;
    for (const double v : uniform(60, 3)) x.push_back(static_cast<float>(v));
    for (std::size_t i = 0; i < 30; ++i) classes.push_back(x[2 * i] > 0.3F ? 2 : x[2 * i + 1] > 0 ? 1 : 0);
    const CArray inputs = c_array(context, x.data(), {30, 2}), targets = c_array(context, classes.data(), {30});
    double loss = 0;
    for (int step = 0; step < 150; ++step)
      EXPECT_KEEL(keel_train_step(model, inputs, targets, 3e-2, &loss, nullptr, nullptr));
    EXPECT_LT(loss, 0.1);
    classes[4] = 3;
    EXPECT_EQ(keel_train_step(model, inputs, targets, 3e-2, &loss, nullptr, nullptr), KEEL_ERROR_INPUT);
    classes[4] = 2;
    EXPECT_KEEL(keel_train_step(model, inputs, targets, 3e-2, &loss, nullptr, nullptr));
    return loss;
  };
  EXPECT_EQ(train(std::int32_t()), train(std::int64_t()));
}

TEST(CTraining, GoesOnFromAFolderToTheSameBits) {
  const TemporaryFolder place;
  const std::string folder = place / "saved", weights = place / "model.safetensors";
  CContext context = c_context();
  CLearner through(context, c_settings({{"optimizer.type", "NAdam"}})),
      resumed(context, c_settings({{"optimizer.type", "NAdam"}, {"seed", "9"}}));
  for (int step = 0; step < 3; ++step) through.step(step);
  EXPECT_KEEL(keel_model_save(through.model, folder.c_str()));
  EXPECT_KEEL(keel_model_load(resumed.model, folder.c_str()));
  for (int step = 3; step < 6; ++step) EXPECT_EQ(through.step(step), resumed.step(step));
  EXPECT_EQ(numbers_of(through.model), numbers_of(resumed.model));

  EXPECT_KEEL(keel_export_weights(folder.c_str(), weights.c_str()));
  CLearner answers(context, c_settings({{"seed", "3"}}));
  EXPECT_KEEL(keel_model_load_weights(answers.model, weights.c_str()));
  EXPECT_KEEL(keel_model_load(resumed.model, folder.c_str()));
  EXPECT_EQ(answers.step(7), resumed.step(7)) << "the loss before the step, of the weights alone";
}

TEST(CTraining, RefusesFilesThatDoNotFitAndKeepsWhatItHas) {
  const TemporaryFolder place;
  CContext context = c_context();
  CLearner adam(context, CSettings()), lion(context, c_settings({{"optimizer.type", "Lion"}}));
  const std::int64_t widths[] = {kInputs, 5, kOutputs};
  CModel other;
  EXPECT_KEEL(keel_model_create_mlp(context, nullptr, widths, 3, "tanh", "mse", other.out()));
  adam.step(1);
  const std::string folder = place / "adam", before = numbers_of(lion.model), others = numbers_of(other);
  EXPECT_KEEL(keel_model_save(adam.model, folder.c_str()));
  EXPECT_EQ(keel_model_load(other, folder.c_str()), KEEL_ERROR_INPUT);
  EXPECT_EQ(numbers_of(other), others);
  EXPECT_EQ(keel_model_load(lion.model, folder.c_str()), KEEL_ERROR_INPUT);
  EXPECT_EQ(numbers_of(lion.model), before);
  std::ofstream(folder + "/optimizer.safetensors", std::ios::app) << "more";
  EXPECT_EQ(keel_model_load(adam.model, folder.c_str()), KEEL_ERROR_INPUT);
  EXPECT_NE(std::string(keel_last_error()).find("optimizer.safetensors"), std::string::npos);
  EXPECT_EQ(keel_model_load(adam.model, (place / "nowhere").c_str()), KEEL_ERROR_IO);
  EXPECT_EQ(keel_model_save(adam.model, "/proc/keel"), KEEL_ERROR_IO);
  EXPECT_EQ(keel_model_load_weights(adam.model, (place / "nowhere").c_str()), KEEL_ERROR_IO);
  adam.step(2);
}

TEST(CTraining, FollowsTheSchedule) {
  CContext context = c_context();
  const auto settings = c_settings({{"steps", "3"}, {"optimizer.lr", "0.5"}, {"scheduler.type", "linear"}});
  CLearner by_schedule(context, settings), by_hand(context, settings);
  const Config config =
      parse_config("steps: 3\noptimizer: {lr: 0.5}\nscheduler: {type: linear}\ndata: {type: addition}", "test");
  const std::vector<double> rates = make_curves(config, testing::context(1)).rates.to_vector<double>();
  Samples samples(1, 0);
  const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs});
  const CArray y = c_array(context, samples.y.data(), {kSamples, kOutputs});
  for (const double rate : rates) {
    EXPECT_KEEL(keel_train_step(by_schedule.model, x, y, KEEL_SCHEDULED, nullptr, nullptr, nullptr));
    EXPECT_KEEL(keel_train_step(by_hand.model, x, y, rate, nullptr, nullptr, nullptr));
  }
  EXPECT_EQ(numbers_of(by_schedule.model), numbers_of(by_hand.model));
  const CLearner endless(context, CSettings());
  EXPECT_EQ(keel_train_step(endless.model, x, y, KEEL_SCHEDULED, nullptr, nullptr, nullptr), KEEL_ERROR_INPUT);
}

TEST(CTraining, SkipsAStepWhoseGradientIsNotFinite) {
  CContext context = c_context();
  CLearner learner(context, CSettings());
  const std::string before = numbers_of(learner.model);
  Samples samples(1, 0);
  samples.x[0] = std::numeric_limits<float>::quiet_NaN();
  const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs});
  const CArray y = c_array(context, samples.y.data(), {kSamples, kOutputs});
  int taken = 1;
  EXPECT_KEEL(keel_train_step(learner.model, x, y, 1e-2, nullptr, nullptr, &taken));
  EXPECT_EQ(taken, 0);
  EXPECT_EQ(numbers_of(learner.model), before);
  samples.x[0] = 0;
  EXPECT_KEEL(keel_train_step(learner.model, x, y, 1e-2, nullptr, nullptr, &taken));
  EXPECT_EQ(taken, 1);
}

TEST(CTraining, ReadsAModelFromAConfiguration) {
  const TemporaryFolder place;
  std::ofstream(place / "tiny.yaml") << "steps: 2\nmodel: {layers: 1, heads: 2, width: 8, block: 6, vocabulary: 11}\n"
                                        "data: {type: addition, digits: 1}\nclip: 0\n";
  CSettings settings = c_settings({{"threads", "1"}});
  EXPECT_KEEL(keel_settings_load(settings, (place / "tiny.yaml").c_str()));
  CContext context;
  EXPECT_KEEL(keel_context_create(settings, context.out()));
  CModel model;
  EXPECT_KEEL(keel_model_create(context, nullptr, model.out()));
  std::int64_t parameters = 0;
  EXPECT_KEEL(keel_model_parameters(model, &parameters));
  EXPECT_GT(parameters, 11 * 8);
  std::vector<std::int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8}, next = {2, 3, 4, -100, 6, 7, 8, 9};
  const CArray x = c_array(context, tokens.data(), {2, 4}), y = c_array(context, next.data(), {2, 4});
  double first = 0, last = 0;
  EXPECT_KEEL(keel_train_step(model, x, y, 1e-2, &first, nullptr, nullptr));
  EXPECT_NEAR(first, std::log(11), 0.2);
  for (int step = 0; step < 20; ++step) EXPECT_KEEL(keel_train_step(model, x, y, 1e-2, &last, nullptr, nullptr));
  EXPECT_LT(last, 0.7 * first);
  std::vector<float> logits(2 * 4 * 11);
  EXPECT_KEEL(keel_infer(model, x, c_array(context, logits.data(), {2, 4, 11})));
  for (std::size_t i = 0; i < 8; ++i)
    if (next[i] >= 0) {
      const auto row = logits.begin() + static_cast<std::ptrdiff_t>(11 * i);
      EXPECT_EQ(std::max_element(row, row + 11) - row, next[i]);
    }
  EXPECT_EQ(keel_train_step(model, y, x, 1e-2, &last, nullptr, nullptr), KEEL_ERROR_INPUT) << "-100 is no token";
}

// What a rank without any of the step's sequences calls, in a step of its own.
TEST(CTraining, TakesAPartWithoutSequencesOrPositions) {
  const CSettings settings = c_settings({{"threads", "1"},
                                         {"model.layers", "2"},
                                         {"model.heads", "2"},
                                         {"model.width", "8"},
                                         {"model.block", "6"},
                                         {"model.vocabulary", "11"},
                                         {"batch.global", "2"},
                                         {"batch.micro", "1"}});
  CContext context;
  EXPECT_KEEL(keel_context_create(settings, context.out()));
  CModel model, same;
  EXPECT_KEEL(keel_model_create(context, settings, model.out()));
  EXPECT_KEEL(keel_model_create(context, settings, same.out()));
  std::vector<std::int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8}, next = {2, 3, 4, -100, 6, 7, 8, 9};
  const CArray x = c_array(context, tokens.data(), {2, 4}), y = c_array(context, next.data(), {2, 4});
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{0, 4}, {2, 0}}) {
    const CArray none = c_array(context, tokens.data(), shape);
    double loss = -1, norm = 0, expected = 0;
    EXPECT_KEEL(keel_train_accumulate(model, none, none, &loss));
    EXPECT_EQ(loss, 0);
    EXPECT_KEEL(keel_train_step(model, x, y, 1e-2, nullptr, &norm, nullptr));
    EXPECT_KEEL(keel_train_step(same, x, y, 1e-2, nullptr, &expected, nullptr));
    EXPECT_EQ(norm, expected);
    float nothing = 0;
    EXPECT_KEEL(keel_infer(model, none, c_array(context, &nothing, {shape[0], shape[1], 11})));
  }
}

TEST(CTraining, ComputesInTheNumbersThatTheStrategySays) {
  CContext context = c_context();
  for (const char* strategy : {"bf16", "fp16", "zero2-bf16", "auto"}) {
    CLearner learner(context, c_settings({{"strategy", strategy}, {"loss_scale.initial", "1024"}}));
    double first = learner.step(1), last = 0;
    for (int step = 0; step < 30; ++step) last = learner.step(1);
    EXPECT_LT(last, 0.5 * first) << strategy;
  }
}

// Where the numbers come from makes no difference to what is computed on the device.
TEST(CTraining, TakesTheMemoryOfADeviceAsItLiesAndTheHostsByACopy) {
  if (count_devices(DeviceType::emulated).count == 0) GTEST_SKIP() << "this build has no emulated device";
  CContext context = c_context({{"threads", "1"}, {"device", "emulated:0"}});
  CLearner from_host(context, CSettings()), from_device(context, CSettings());
  const Context device = Context::create({.device = {DeviceType::emulated, 0}, .threads = 1});
  const std::int64_t in[] = {kSamples, kInputs}, out[] = {kSamples, kOutputs}, by_columns[] = {1, kSamples};
  for (int step = 0; step < 2; ++step) {
    Samples samples(step, 0);
    std::vector<float> columns(samples.x.size());
    for (std::int64_t i = 0; i < kSamples; ++i)
      for (std::int64_t j = 0; j < kInputs; ++j)
        columns[static_cast<std::size_t>(i + j * kSamples)] = samples.x[static_cast<std::size_t>(i * kInputs + j)];
    const Tensor x = from_values(device, columns, {kInputs, kSamples}),
                 y = from_values(device, samples.y, {kSamples, kOutputs});
    device.synchronize();
    CArray inputs, targets;
    EXPECT_KEEL(keel_array_create(context, x.raw(), KEEL_F32, KEEL_DEVICE, 2, in, by_columns, inputs.out()));
    EXPECT_KEEL(keel_array_create(context, y.raw(), KEEL_F32, KEEL_DEVICE, 2, out, nullptr, targets.out()));
    double loss = 0;
    EXPECT_KEEL(keel_train_step(from_device.model, inputs, targets, 1e-2, &loss, nullptr, nullptr));
    EXPECT_EQ(from_host.step(step), loss);
  }
  EXPECT_EQ(numbers_of(from_device.model), numbers_of(from_host.model));
  Samples samples(5, 0);
  std::vector<double> answers(kSamples * kOutputs), same(kSamples * kOutputs);
  const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs});
  EXPECT_KEEL(keel_infer(from_host.model, x, c_array(context, answers.data(), {kSamples, kOutputs}, {1, kSamples})));
  EXPECT_KEEL(keel_infer(from_device.model, x, c_array(context, same.data(), {kSamples, kOutputs}, {1, kSamples})));
  EXPECT_EQ(answers, same);
  EXPECT_NE(answers, std::vector<double>(kSamples * kOutputs));
}

}  // namespace
}  // namespace keel
