// Where parameters lie in flat memory, and with what numbers they begin.

#include "keel/nn/flat_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "keel/kernels/elementwise.h"
#include "keel/nn/layers.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;

// A unit with one inside, and parameters of many sizes: frozen, sparse and tied ones among them.
struct Inner : Module {
  Linear wide{40, 30}, thin{3, 1};
  void visit(Visitor& v) override {
    v("wide", wide);
    v("thin", thin);
  }
  bool is_unit() const override { return true; }
};
struct Outer : Module {
  Linear first{7, 11}, frozen{5, 5};
  Inner inner;
  Outer() { frozen.weight.set_trainable(false); }
  void visit(Visitor& v) override {
    v("first", first);
    v("inner", inner);
    v("frozen", frozen);
  }
  bool is_unit() const override { return true; }
};
struct Model : Module {
  Embedding table{20, 6, Initializer::normal(1), true};
  Outer outer, outer2;  // one's path is the beginning of the other's
  Parameter head{{9, 4}, Initializer::constant(2)};
  Parameter head_again = head.tie();
  Parameter first_again = outer.first.weight.tie();
  void visit(Visitor& v) override {
    v("table", table);
    v("outer", outer);
    v("outer2", outer2);
    v("head", head);
    v("again", head_again);
    v("first", first_again);
  }
};

std::vector<std::string> names_in(const std::vector<FlatBuffer>& buffers, std::string_view unit, bool trainable) {
  std::vector<std::string> names;
  for (const FlatBuffer& buffer : buffers)
    if (buffer.unit == unit && buffer.trainable == trainable && !buffer.sparse)
      for (const Segment& segment : buffer.segments) names.push_back(segment.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(FlatBuffer, BelongsToTheInnermostUnitAndToWhatIsTrainedOrNot) {
  Model model;
  const std::vector<FlatBuffer> buffers = lay_out(model);
  EXPECT_EQ(buffers.size(), 8U);
  EXPECT_EQ(names_in(buffers, "", true), (Names{"outer.first.weight", "head"})) << "tied ones are the root's";
  EXPECT_EQ(names_in(buffers, "outer", true), (Names{"outer.first.bias", "outer.frozen.bias"}));
  EXPECT_EQ(names_in(buffers, "outer", false), Names{"outer.frozen.weight"});
  EXPECT_EQ(names_in(buffers, "outer.inner", true), (Names{"outer.inner.wide.weight", "outer.inner.wide.bias",
                                                           "outer.inner.thin.weight", "outer.inner.thin.bias"}));
  EXPECT_EQ(names_in(buffers, "outer2", true),
            (Names{"outer2.first.weight", "outer2.first.bias", "outer2.frozen.bias"}));
  for (const FlatBuffer& buffer : buffers) {
    EXPECT_EQ(buffer.tied, buffer.segments[0].name == "outer.first.weight");
    EXPECT_EQ(buffer.sparse, buffer.segments[0].name == "table.weight");
  }
}

// A model that goes twice through a unit, which goes three times through what is inside.
struct OftenUsed : Module {
  struct Unit : Inner {
    explicit Unit(std::int64_t times) : times(times) {}
    std::int64_t uses() const override { return times; }
    std::int64_t times;
  };
  struct Around : Module {
    Unit inside{3};
    Linear beside{2, 2};
    void visit(Visitor& v) override {
      v("inside", inside);
      v("beside", beside);
    }
    bool is_unit() const override { return true; }
    std::int64_t uses() const override { return 2; }
  };
  explicit OftenUsed(std::int64_t times) : times(times) {}
  Around around;
  Unit around_again{1};  // whose path begins with another's
  Linear head{2, 2};
  void visit(Visitor& v) override {
    v("around", around);
    v("around_again", around_again);
    v("head", head);
  }
  std::int64_t uses() const override { return times; }
  std::int64_t times;
};

TEST(FlatBuffer, CountsHowOftenAPassUsesItsUnit) {
  for (const int times : {1, 5}) {
    OftenUsed model(times);
    for (const FlatBuffer& buffer : lay_out(model)) {
      const std::int64_t of_unit = buffer.unit == "around.inside" ? 6 : buffer.unit == "around" ? 2 : 1;
      EXPECT_EQ(buffer.uses, buffer.unit.empty() ? 1 : times * of_unit) << buffer.unit;
      EXPECT_EQ(buffer.tied, times * of_unit > 1) << buffer.unit;
    }
  }
  OftenUsed none(0);
  EXPECT_EQ(error_of([&] { lay_out(none); }), "a forward pass uses the module '' at least once, got 0");
}

TEST(FlatBuffer, IsTheShortestThatShardsAndBlocksDivideEvenly) {
  Model model;
  for (const int shards : {1, 2, 3, 5})
    for (const std::int64_t block : {1, 16, 256})
      for (const FlatBuffer& buffer : lay_out(model, shards, block)) {
        SCOPED_TRACE(concat(buffer.segments[0].name, ", ", shards, " shards, blocks of ", block));
        std::int64_t end = 0;
        for (const Segment& segment : buffer.segments) {
          EXPECT_EQ(segment.numel, product(segment.shape));
          const std::int64_t gap = segment.offset - end;
          EXPECT_TRUE(segment.numel < block ? gap == 0 : segment.offset % block == 0 && gap >= 0 && gap < block);
          end = segment.offset + segment.numel;
        }
        EXPECT_EQ(buffer.numel, end);
        const std::int64_t row = buffer.sparse ? 6 : 1;
        const auto fits = [&](std::int64_t padded) {
          return padded % kFlatAlignment == 0 && padded % shards == 0 && padded / shards % block == 0 &&
                 padded / shards % row == 0;
        };
        std::int64_t shortest = end;
        while (!fits(shortest)) ++shortest;
        EXPECT_EQ(buffer.padded, shortest);
      }
}

TEST(FlatBuffer, OfATableNeedsRows) {
  struct Vector : Module {
    Parameter weight{{5}, Initializer::zeros()};
    void visit(Visitor& v) override { v("weight", weight); }
  } vector;
  vector.weight.set_sparse(true);
  EXPECT_NE(error_of([&] { lay_out(vector); }).find("the gradient of weight, of shape (5), cannot be kept as rows"),
            std::string::npos);
  vector.weight.set_trainable(false);  // which has none
  EXPECT_EQ(error_of([&] { lay_out(vector); }), "");
  struct Table : Module {
    Embedding table;
    explicit Table(std::int64_t width) : table(5, width, Initializer::zeros(), true) {}
    void visit(Visitor& v) override { v("table", table); }
  } empty(0), narrow(1), wide(3);
  EXPECT_EQ(lay_out(empty)[0].padded, 0);
  EXPECT_EQ(lay_out(narrow, 128)[0].padded, 128);
  EXPECT_EQ(lay_out(wide, 128)[0].padded, 3 * 128);
}

TEST(FlatBuffer, InMemoryBeginsWithItsNumbersRoundedOnce) {
  const Context context = testing::context(1);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Model model;
    const std::vector<FlatBuffer> buffers =
        materialize(model, context, {.policy = {.parameter = dtype, .gradient = dtype}, .seed = 5});
    for (const FlatBuffer& buffer : buffers) {
      const Tensor whole = empty(context, {buffer.padded}, DType::f32);
      initialise(buffer, 5, 0, whole);
      EXPECT_EQ(doubles(buffer.values), doubles(kernels::cast(whole, dtype)));
      if (buffer.master.defined()) { EXPECT_EQ(doubles(buffer.master), doubles(whole)); }
    }
  }
}

TEST(FlatBuffer, BeginsWithTheSameNumbersHoweverItIsCut) {
  const Context context = testing::context(1);
  Model model;
  for (const FlatBuffer& buffer : lay_out(model, 3, 16)) {
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      const Tensor target = kernels::full(context, {end - begin}, NAN);
      initialise(buffer, 5, begin, target);
      return doubles(target);
    };
    const std::vector<double> whole = part(0, buffer.padded);
    for (const Segment& segment : buffer.segments) {
      std::vector<float> expected(static_cast<std::size_t>(segment.numel));
      segment.parameter->initializer.fill(context, 5, segment.name, 0, segment.numel, expected.data());
      for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(whole[static_cast<std::size_t>(segment.offset) + i], expected[i]) << segment.name;
    }
    std::vector<bool> is_parameter(whole.size());
    for (const Segment& segment : buffer.segments)
      std::fill_n(is_parameter.begin() + segment.offset, segment.numel, true);
    for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_TRUE(is_parameter[i] || whole[i] == 0) << i;
    std::vector<std::int64_t> cuts = {0, 1, buffer.numel, buffer.padded};
    for (const Segment& segment : buffer.segments)
      for (const std::int64_t at : {segment.offset - 1, segment.offset, segment.offset + 1})
        if (at > 0 && at < buffer.padded) cuts.push_back(at);
    std::sort(cuts.begin(), cuts.end());
    std::vector<double> joined;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
      for (const double value : part(cuts[i], cuts[i + 1])) joined.push_back(value);
    EXPECT_EQ(joined, whole);
  }
}

TEST(FlatBuffer, HoldsItsParametersAndTheirGradients) {
  const Context context = testing::context(1);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Model model;
    std::vector<FlatBuffer> buffers = materialize(model, context, {.policy = PrecisionPolicy::of(dtype)});
    for (FlatBuffer& buffer : buffers) {
      for (const Segment& segment : buffer.segments) {
        const Variable& variable = segment.parameter->variable;
        EXPECT_EQ(segment.parameter->name, segment.name);
        EXPECT_EQ(variable.shape(), segment.shape);
        EXPECT_EQ(variable.requires_grad(), buffer.trainable);
        EXPECT_EQ(doubles(variable.value().view({segment.numel})),
                  doubles(buffer.values.slice(0, segment.offset, segment.offset + segment.numel)));
        if (buffer.gradient.defined()) {
          EXPECT_EQ(variable.leaf()->grad.offset(), segment.offset);
          kernels::fill(variable.leaf()->grad, 7);
        }
      }
      EXPECT_EQ(buffer.master.defined(), dtype == DType::bf16 && buffer.trainable);
      if (!buffer.gradient.defined()) continue;
      // Those of the gaps are zeros, those that nobody wrote become zeros, and the others stay.
      const std::size_t kept = buffer.segments.size() / 2;
      buffer.segments[kept].parameter->variable.leaf()->has_grad = true;
      buffer.complete_gradient();
      std::vector<double> expected(static_cast<std::size_t>(buffer.padded));
      std::fill_n(expected.begin() + buffer.segments[kept].offset, buffer.segments[kept].numel, 7);
      EXPECT_EQ(doubles(buffer.gradient), expected);
      for (const Segment& segment : buffer.segments) EXPECT_TRUE(segment.parameter->variable.leaf()->has_grad);
      buffer.zero_grad();
      for (const Segment& segment : buffer.segments) EXPECT_FALSE(segment.parameter->variable.leaf()->has_grad);
    }
  }
}

// Mean, deviation and range of what an initializer writes.
TEST(Initializer, WritesTheDistributionThatItNames) {
  const Context context = testing::context(2);
  constexpr std::int64_t kCount = 40000;
  const auto numbers = [&](const Initializer& initializer) {
    std::vector<float> out(kCount);
    initializer.fill(context, 3, "weight", 0, kCount, out.data());
    return out;
  };
  const auto moments = [](const std::vector<float>& values) {
    double mean = 0, square = 0;
    for (const double value : values) mean += value / kCount;
    for (const double value : values) square += (value - mean) * (value - mean) / kCount;
    return std::pair(mean, std::sqrt(square));
  };
  const auto [mean, deviation] = moments(numbers(Initializer::normal(0.5, 3)));
  EXPECT_NEAR(mean, 3, 4 * 0.5 / std::sqrt(kCount));
  EXPECT_NEAR(deviation, 0.5, 4 * 0.5 / std::sqrt(2 * kCount));
  for (const auto& [initializer, low, high] :
       {std::tuple{Initializer::uniform(-2, 5), -2.0, 5.0}, {Initializer::fan_in(16), -0.25, 0.25}}) {
    const std::vector<float> values = numbers(initializer);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    const double width = high - low;
    EXPECT_GE(*least, low);
    EXPECT_LT(*most, high);
    EXPECT_LT(*least, low + 0.001 * width);
    EXPECT_GT(*most, high - 0.001 * width);
    EXPECT_NEAR(moments(values).first, (low + high) / 2, 4 * width / std::sqrt(12.0 * kCount));
  }
  EXPECT_EQ(numbers(Initializer::constant(7)), std::vector<float>(kCount, 7));
  EXPECT_EQ(numbers(Initializer::fan_in(0)), std::vector<float>(kCount, 0));
  for (const std::int64_t first : {1, 1000, 39999}) {
    std::vector<float> tail(static_cast<std::size_t>(kCount - first));
    Initializer::normal(0.5, 3).fill(context, 3, "weight", first, kCount - first, tail.data());
    const std::vector<float> all = numbers(Initializer::normal(0.5, 3));
    EXPECT_TRUE(std::equal(tail.begin(), tail.end(), all.begin() + first)) << first;
  }
}

}  // namespace
}  // namespace keel
