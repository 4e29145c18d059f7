// Several inputs and outputs, weights of samples, evaluation, and whole parameters and gradients.

#include <cmath>
#include <numeric>
#include <set>

#include "tests/capi/host_mse.h"
#include "tests/capi/learner.h"

namespace keel {
namespace {

using namespace keel::testing;

CModel text_model(const CContext& context, const char* text, std::int64_t inputs, const char* loss = "mse",
                  Pairs pairs = {}) {
  CModel model;
  EXPECT_KEEL(keel_model_create_text(context, c_settings(pairs), text, inputs, loss, model.out()));
  return model;
}

CBatch c_batch(const CContext& context, const CArray& x, const CArray& y) {
  CBatch batch;
  EXPECT_KEEL(keel_batch_create(context, batch.out()));
  EXPECT_KEEL(keel_batch_input(batch, nullptr, x));
  EXPECT_KEEL(keel_batch_target(batch, nullptr, y));
  return batch;
}

double train(const CModel& model, const CBatch& batch) {
  double loss = -1;
  EXPECT_KEEL(keel_train_batch(model, batch, 1e-2, &loss, nullptr, nullptr));
  return loss;
}

double evaluate(const CModel& model, const CBatch& batch) {
  double loss = -1;
  EXPECT_KEEL(keel_evaluate(model, batch, &loss));
  return loss;
}

TEST(CText, OfDenseLayersHasTheBitsOfTheMlp) {
  CContext context = c_context();
  CLearner mlp(context, CSettings());
  const CModel text = text_model(context, "dense 16 tanh; dense 2", kInputs);
  for (int step = 0; step < 3; ++step) {
    Samples samples(step, 0);
    const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs}),
                 y = c_array(context, samples.y.data(), {kSamples, kOutputs});
    EXPECT_EQ(train(text, c_batch(context, x, y)), mlp.step(step));
  }
  EXPECT_TRUE(numbers_of(text) == numbers_of(mlp.model));
}

TEST(CText, WithoutParametersAnswersAndIsEvaluatedAndRefusesToTrain) {
  CContext context = c_context();
  const std::pair<const char*, const char*> settings[] = {
      {"strategy", "zero3"}, {"optimizer.type", "Muon"}, {"seed", "2"}};
  int number = 0;
  for (const auto& [text, inputs] : {std::pair("relu", std::int64_t{3}), {"input a 3", 0}, {"dropout 0.5", 3}}) {
    const CModel model = text_model(context, text, inputs, "mse", {settings[number++]});
    std::int64_t parameters = -1;
    EXPECT_KEEL(keel_model_parameters(model, &parameters));
    EXPECT_EQ(parameters, 0);
    const char* name = "";
    EXPECT_KEEL(keel_parameter_name(model, 0, &name));
    EXPECT_EQ(name, nullptr);
    std::vector<float> x = {1, 2, 3, 4, 5, 6}, y = {1, 2, 3, 4, 5, 9}, answer(6, -1);
    const CArray from = c_array(context, x.data(), {2, 3}), wanted = c_array(context, y.data(), {2, 3}),
                 to = c_array(context, answer.data(), {2, 3});
    EXPECT_KEEL(keel_infer(model, from, to));
    EXPECT_EQ(answer, x) << text;
    EXPECT_EQ(evaluate(model, c_batch(context, from, wanted)), 1.5) << text;
    EXPECT_EQ(keel_train_step(model, from, wanted, 0.1, nullptr, nullptr, nullptr), KEEL_ERROR_INPUT);
    EXPECT_STREQ(keel_last_error(), "keel_train_step: the model has no parameters to train");
    EXPECT_EQ(keel_train_accumulate(model, from, wanted, nullptr), KEEL_ERROR_INPUT);
    EXPECT_EQ(keel_train_update(model, 0.1, nullptr, nullptr), KEEL_ERROR_INPUT);
    EXPECT_EQ(evaluate(model, c_batch(context, from, wanted)), 1.5) << "all goes on";
  }
}

// One field of a simulation each, instead of one array of all.
TEST(CBatches, HaveInputsAndOutputsByNameOrInOrder) {
  CContext context = c_context({{"threads", "1"}, {"kernels", "plain"}});
  constexpr const char* kText = "input a 1; input b 3; dense 8 tanh; output c 1; output d 1";
  const CModel named = text_model(context, kText, 0), ordered = text_model(context, kText, 0);
  Samples samples(1, 0);
  float* const x = samples.x.data();
  float* const y = samples.y.data();
  const CArray a = c_array(context, x, {kSamples, 1}, {kInputs, 1}),
               b = c_array(context, x + 1, {kSamples, 3}, {kInputs, 1}),
               c = c_array(context, y, {kSamples}, {kOutputs}),
               d = c_array(context, y + 1, {kSamples, 1}, {kOutputs, 1});
  CBatch by_name, in_order;
  EXPECT_KEEL(keel_batch_create(context, by_name.out()));
  EXPECT_KEEL(keel_batch_input(by_name, "b", a));
  for (const auto& [name, array] : {std::pair{"b", &b}, {"a", &a}})
    EXPECT_KEEL(keel_batch_input(by_name, name, *array));
  for (const auto& [name, array] : {std::pair{"d", &d}, {"c", &c}})
    EXPECT_KEEL(keel_batch_target(by_name, name, *array));
  EXPECT_KEEL(keel_batch_create(context, in_order.out()));
  for (const CArray* each : {&a, &b}) EXPECT_KEEL(keel_batch_input(in_order, nullptr, *each));
  for (const CArray* each : {&c, &d}) EXPECT_KEEL(keel_batch_target(in_order, nullptr, *each));
  for (int step = 0; step < 3; ++step) EXPECT_EQ(train(named, by_name), train(ordered, in_order));
  EXPECT_TRUE(numbers_of(named) == numbers_of(ordered));

  // The loss is the sum over outputs.
  std::vector<double> answers(2 * kSamples);
  const CArray to_c = c_array(context, answers.data(), {kSamples}, {2}),
               to_d = c_array(context, answers.data() + 1, {kSamples}, {2});
  CBatch asks;
  EXPECT_KEEL(keel_batch_create(context, asks.out()));
  for (const CArray* each : {&a, &b}) EXPECT_KEEL(keel_batch_input(asks, nullptr, *each));
  for (const CArray* each : {&to_c, &to_d}) EXPECT_KEEL(keel_batch_target(asks, nullptr, *each));
  EXPECT_KEEL(keel_infer_batch(named, asks));
  double sum = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) sum += std::pow(answers[i] - static_cast<double>(y[i]), 2);
  EXPECT_NEAR(evaluate(named, by_name), sum / kSamples, 1e-6);

  for (const auto& [name, what] :
       {std::pair{"z", "the model has no input 'z'; it has a, b"}, {"a", "the input 'a' is given twice"}}) {
    CBatch bad;
    EXPECT_KEEL(keel_batch_create(context, bad.out()));
    EXPECT_KEEL(keel_batch_input(bad, nullptr, a));
    EXPECT_KEEL(keel_batch_input(bad, name, a));
    EXPECT_EQ(keel_train_batch(named, bad, 1e-2, nullptr, nullptr, nullptr), KEEL_ERROR_INPUT);
    EXPECT_NE(std::string(keel_last_error()).find(what), std::string::npos) << keel_last_error();
  }
  EXPECT_EQ(keel_train_step(named, a, c, 1e-2, nullptr, nullptr, nullptr), KEEL_ERROR_INPUT);
  EXPECT_NE(std::string(keel_last_error()).find("2 inputs and 2 outputs; give its arrays in a keel_batch"),
            std::string::npos);
  CBatch none;
  EXPECT_KEEL(keel_batch_create(context, none.out()));
  EXPECT_EQ(keel_train_batch(named, none, 1e-2, nullptr, nullptr, nullptr), KEEL_ERROR_INPUT);
  EXPECT_NE(std::string(keel_last_error()).find("the input 'a' is missing"), std::string::npos) << keel_last_error();
}

// Twice a sample is a sample of weight 2; none is one of weight 0.
TEST(CBatches, WeighSamplesAsIfTheyWereThereSoOften) {
  CContext context = c_context();
  std::vector<std::int32_t> classes = {0, 1, 2, 0, 1, -100};
  std::vector<float> x, y;
  for (const double v : uniform(6 * 3, 4)) x.push_back(static_cast<float>(v)), y.push_back(static_cast<float>(v * v));
  std::vector<double> weights = {1, 2, 0, 1, 1, 1};
  const int times[] = {0, 1, 1, 3, 4, 5};
  std::vector<float> more_x, more_y;
  std::vector<std::int32_t> more_classes;
  for (const int i : times) {
    more_x.insert(more_x.end(), &x[static_cast<std::size_t>(3 * i)], &x[static_cast<std::size_t>(3 * i)] + 3);
    more_y.insert(more_y.end(), &y[static_cast<std::size_t>(3 * i)], &y[static_cast<std::size_t>(3 * i)] + 3);
    more_classes.push_back(classes[static_cast<std::size_t>(i)]);
  }
  const CArray w = c_array(context, weights.data(), {6}), in = c_array(context, x.data(), {6, 3}),
               more_in = c_array(context, more_x.data(), {6, 3}), squares = c_array(context, y.data(), {6, 3}),
               more_squares = c_array(context, more_y.data(), {6, 3}), labels = c_array(context, classes.data(), {6}),
               more_labels = c_array(context, more_classes.data(), {6});
  HostMse seen;
  for (const char* kind : {"mse", "cross_entropy", "host"}) {
    const bool is_class = std::string(kind) == "cross_entropy", is_host = std::string(kind) == "host";
    const char* loss = is_class ? "cross_entropy" : "mse";
    const CModel weighted = text_model(context, "dense 5 tanh; dense 3", 3, loss, {{"optimizer.type", "SGD"}}),
                 repeated = text_model(context, "dense 5 tanh; dense 3", 3, loss, {{"optimizer.type", "SGD"}});
    if (is_host) { EXPECT_KEEL(keel_model_loss(weighted, host_mse, &seen)); }
    const CBatch one = c_batch(context, in, is_class ? labels : squares),
                 other = c_batch(context, more_in, is_class ? more_labels : more_squares);
    EXPECT_KEEL(keel_batch_weights(one, w));
    for (int step = 0; step < 5; ++step) {
      const double expected = train(repeated, other);
      EXPECT_NEAR(train(weighted, one), expected, 1e-5 * expected) << kind;
    }
    const double expected = evaluate(repeated, other);
    EXPECT_NEAR(evaluate(weighted, one), expected, 1e-5 * expected) << kind;
  }
  EXPECT_TRUE(seen.has_weights);
  const CModel model = text_model(context, "dense 3", 3);
  const CBatch batch = c_batch(context, in, squares);
  EXPECT_KEEL(keel_batch_weights(batch, w));
  for (const double bad : {-1.0, std::nan(""), HUGE_VAL}) {
    weights[3] = bad;
    EXPECT_EQ(keel_train_batch(model, batch, 1e-2, nullptr, nullptr, nullptr), KEEL_ERROR_INPUT);
    EXPECT_NE(std::string(keel_last_error()).find("weights must be finite and 0 or more"), std::string::npos);
  }
  std::fill(weights.begin(), weights.end(), 0);
  EXPECT_EQ(evaluate(model, batch), 0);
  EXPECT_KEEL(keel_batch_weights(batch, in));
  EXPECT_EQ(keel_train_batch(model, batch, 1e-2, nullptr, nullptr, nullptr), KEEL_ERROR_INPUT);
}

TEST(CBatches, AreEvaluatedWithoutAnyChange) {
  CContext context = c_context();
  CLearner learner(context, CSettings()), twin(context, CSettings());
  Samples samples(1, 0);
  const CBatch batch = c_batch(context, c_array(context, samples.x.data(), {kSamples, kInputs}),
                               c_array(context, samples.y.data(), {kSamples, kOutputs}));
  for (int step = 0; step < 3; ++step) {
    const double before = evaluate(learner.model, batch);
    EXPECT_EQ(before, evaluate(learner.model, batch));
    EXPECT_EQ(train(learner.model, batch), before);
    train(twin.model, batch);
  }
  EXPECT_TRUE(numbers_of(learner.model) == numbers_of(twin.model));
}

TEST(CParameters, AreListedReadAndWrittenByName) {
  CContext context = c_context();
  CLearner one(context, CSettings()), other(context, c_settings({{"seed", "9"}}));
  one.step(1);
  std::int64_t count = 0, numbers = 0;
  const char* name = nullptr;
  while (keel_parameter_name(one.model, count, &name) == KEEL_OK && name != nullptr) {
    ++count;
    int rank = -1;
    std::int64_t shape[8] = {};
    EXPECT_KEEL(keel_parameter_shape(one.model, name, &rank, shape));
    const std::vector<std::int64_t> extents(shape, shape + rank);
    const auto size = std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
    numbers += size;
    // In Fortran's order, as f64.
    std::vector<double> values(static_cast<std::size_t>(size));
    std::vector<std::int64_t> strides(extents.size(), 1);
    for (std::size_t i = 1; i < extents.size(); ++i) strides[i] = strides[i - 1] * extents[i - 1];
    const CArray array = c_array(context, values.data(), extents, strides);
    EXPECT_KEEL(keel_get_weights(one.model, name, array));
    EXPECT_NE(std::count(values.begin(), values.end(), 0.0), size);
    EXPECT_KEEL(keel_set_weights(other.model, name, array));
  }
  EXPECT_EQ(count, 4);
  std::int64_t parameters = 0;
  EXPECT_KEEL(keel_model_parameters(one.model, &parameters));
  EXPECT_EQ(numbers, parameters);
  Samples samples(3, 0);
  const CBatch batch = c_batch(context, c_array(context, samples.x.data(), {kSamples, kInputs}),
                               c_array(context, samples.y.data(), {kSamples, kOutputs}));
  EXPECT_EQ(evaluate(one.model, batch), evaluate(other.model, batch));
}

// Against the change of plain gradient descent: w - lr * g.
TEST(CParameters, HaveGradientsThatAreTheMeanOverAllPartsOfTheStep) {
  for (const char* strategy : {"ddp", "fp16"}) {
    CContext context = c_context();
    const CSettings settings = c_settings({{"optimizer", "{type: SGD, lr: 0.1}"},
                                           {"clip", "0"},
                                           {"strategy", strategy},
                                           {"loss_scale.initial", "1024"},
                                           {"batch.global", "2"},
                                           {"batch.micro", "1"}});
    CLearner learner(context, settings);
    std::vector<float> before(16 * kInputs), after(16 * kInputs), gradient(16 * kInputs);
    const auto array = [&](std::vector<float>& v) { return c_array(context, v.data(), {16, kInputs}); };
    EXPECT_KEEL(keel_get_weights(learner.model, "layers.0.weight", array(before)));
    EXPECT_EQ(keel_get_gradient(learner.model, "layers.0.weight", array(gradient)), KEEL_ERROR_INPUT);
    EXPECT_EQ(keel_train_update(learner.model, 0.5, nullptr, nullptr), KEEL_ERROR_INPUT);
    for (const int last : {0, 1}) {
      Samples samples(last, 0);
      const CBatch batch = c_batch(context, c_array(context, samples.x.data(), {kSamples, kInputs}),
                                   c_array(context, samples.y.data(), {kSamples, kOutputs}));
      EXPECT_KEEL(keel_train_backward(learner.model, batch, last, nullptr));
      if (last == 1) {
        EXPECT_EQ(keel_train_backward(learner.model, batch, 1, nullptr), KEEL_ERROR_INPUT);
        EXPECT_NE(std::string(keel_last_error()).find("keel_train_update() takes the step"), std::string::npos);
      }
    }
    EXPECT_KEEL(keel_get_gradient(learner.model, "layers.0.weight", array(gradient)));
    EXPECT_KEEL(keel_train_update(learner.model, 0.5, nullptr, nullptr));
    EXPECT_KEEL(keel_get_weights(learner.model, "layers.0.weight", array(after)));
    double largest = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(gradient[i])));
      EXPECT_NEAR(after[i], before[i] - 0.5F * gradient[i], 1e-6) << strategy;
    }
    EXPECT_GT(largest, 1e-3);
  }
}

TEST(CText, DropsOtherNumbersInEachPartAndStepAndTheSameAfterALoad) {
  CContext context = c_context();
  const TemporaryFolder place;
  const auto make = [&] { return text_model(context, "dense 64; dropout 0.5; dense 1", 2); };
  const CModel through = make(), resumed = make();
  std::vector<float> x(2, 1), y(1, 0);
  const CBatch batch = c_batch(context, c_array(context, x.data(), {1, 2}), c_array(context, y.data(), {1}));
  EXPECT_EQ(evaluate(through, batch), evaluate(through, batch)) << "nothing is dropped";
  std::set<double> losses;
  for (int step = 0; step < 2; ++step) {
    double loss = 0;
    EXPECT_KEEL(keel_train_batch(through, batch, 0, &loss, nullptr, nullptr));
    losses.insert(loss);
  }
  EXPECT_EQ(losses.size(), 2u);
  EXPECT_KEEL(keel_model_save(through, (place / "c").c_str()));
  EXPECT_KEEL(keel_model_load(resumed, (place / "c").c_str()));
  EXPECT_EQ(train(through, batch), train(resumed, batch));
}

}  // namespace
}  // namespace keel
