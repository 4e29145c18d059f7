// What a checkpoint keeps of callbacks, and which of them find it there.

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "keel/nn/tensor_parts.h"
#include "keel/trainer/callback.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

// Counts steps, in a number, in a tensor, or in both.
class Keeping : public Callback {
 public:
  Keeping(std::string name, bool has_number, bool has_tensor)
      : name_(std::move(name)), has_number_(has_number), has_tensor_(has_tensor) {}
  std::string_view name() const override { return name_; }
  void fit_begin(LoopView& view) override {
    if (has_tensor_) counted_ = zeros(view.context(), {1});
  }
  void step_end(LoopView&) override {
    ++number_;
    if (has_tensor_) counted_.data<float>()[0] += 1;
  }
  CallbackState save() override {
    CallbackState state;
    if (has_number_) state.numbers = {{"steps", number_}};
    if (has_tensor_) state.tensors = {{.name = "steps", .shape = {1}, .values = counted_}};
    return state;
  }
  void load(const Json& numbers) override {
    EXPECT_EQ(numbers.is_null(), !has_number_) << name_;
    if (has_number_) number_ = numbers.at("steps").integer();
    ++loads;
  }
  std::int64_t number() const { return number_; }
  double counted() const { return counted_.data<float>()[0]; }
  int loads = 0;

 private:
  std::string name_;
  bool has_number_, has_tensor_;
  std::int64_t number_ = 0;
  Tensor counted_;
};

TEST(KeptByCallbacks, IsFoundByNameWhetherItIsNumbersOrTensors) {
  const TemporaryFolder place;
  const auto config = [&](const char* resume) {
    return small_run(place, "run", {"steps=4", "eval.every=0", "checkpoint.async=false", resume});
  };
  const auto made = [](const char* name, bool has_number, bool has_tensor) {
    return std::make_shared<Keeping>(name, has_number, has_tensor);
  };
  Recorder first(2), then;
  train(config("resume=never"), first,
        {made("number", true, false), made("tensor", false, true), made("both", true, true), made("gone", true, true)});
  const auto number = made("number", true, false), tensor = made("tensor", false, true),
             both = made("both", true, true), fresh = made("fresh", true, true), none = made("none", false, false);
  train(config("resume=auto"), then, {number, tensor, both, fresh, none});
  EXPECT_EQ(number->number(), 4);
  EXPECT_EQ(tensor->counted(), 4);
  EXPECT_EQ(both->number(), 4);
  EXPECT_EQ(both->counted(), 4);
  EXPECT_EQ(fresh->counted(), 2) << "of this session";
  for (const auto& each : {number, tensor, both}) EXPECT_EQ(each->loads, 1) << each->name();
  for (const auto& each : {fresh, none}) EXPECT_EQ(each->loads, 0) << each->name();
  std::string callbacks;
  for (std::size_t at = 0, end = 0; at < then.messages.size(); at = end + 1) {
    end = then.messages.find('\n', at);
    const std::string line = then.messages.substr(at, end - at);
    if (line.find(" callback ") != std::string::npos) callbacks += line + '\n';
  }
  const std::string path = RunFolder(place / "run").checkpoint(2);
  EXPECT_EQ(callbacks, concat("'", path, "' has nothing of the callback fresh, which begins anew\nwhat '", path,
                              "' has of the callback gone is left out: the run has none\n"));
}

class KeepsNumbers : public Callback {
 public:
  explicit KeepsNumbers(Json numbers) : numbers_(std::move(numbers)) {}
  std::string_view name() const override { return "keeps"; }
  CallbackState save() override { return {numbers_}; }

 private:
  Json numbers_;
};

TEST(KeptByCallbacks, IsAnythingButNumbersThatAreNotFinite) {
  const auto told = [&](Json numbers) {
    const TemporaryFolder place;
    TrainObserver silent;
    return error_of([&] {
      train(small_run(place, "run", {"steps=1", "scheduler.warmup=1", "eval.every=0", "model.layers=1"}), silent,
            {std::make_shared<KeepsNumbers>(std::move(numbers))});
    });
  };
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(told({{"text", "words"}, {"flag", true}, {"none", Json()}, {"list", Json::parse("[1, \"a\", [2.5]]")}}),
            "");
  const auto list = [](double number) {
    Json all = Json::parse("[1, 2]");
    all.push_back(number);
    return all;
  };
  const auto nested = [](double number) {
    Json inner = Json::object(), outer = Json::object();
    inner["deep"] = number;
    outer["first"] = 1;
    outer["second"] = inner;
    return outer;
  };
  for (const double number : {inf, -inf, nan}) {
    EXPECT_EQ(told(list(number)), "callback keeps keeps a number that is not finite");
    EXPECT_EQ(told(nested(number)), "callback keeps keeps a number that is not finite");
  }
}

}  // namespace
}  // namespace keel
