#include "keel/kernels/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/norm.h"
#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;

RotaryTable table_of(const Context& context, std::int64_t positions, std::int64_t pairs, RotaryPairs layout) {
  std::vector<double> cosines, sines;
  for (std::int64_t m = 0; m < positions; ++m)
    for (std::int64_t p = 0; p < pairs; ++p) {
      const double angle = static_cast<double>(m) * std::pow(0.4, static_cast<double>(p));
      cosines.push_back(1.25 * std::cos(angle));
      sines.push_back(1.25 * std::sin(angle));
    }
  return {tensor_of(context, cosines, {positions, pairs}), tensor_of(context, sines, {positions, pairs}), layout};
}

// Rows of the table for every (batch, time).
std::vector<std::int64_t> places_of(const RotaryArgs& args) {
  const std::int64_t batch = args.x.dim(0), time = args.x.dim(2);
  std::vector<std::int64_t> places;
  const std::vector<double> given = args.positions.defined() ? doubles(args.positions) : std::vector<double>{};
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < time; ++t) {
      const auto at = static_cast<std::size_t>(given.size() == static_cast<std::size_t>(time) ? t : b * time + t);
      places.push_back(given.empty() ? args.first + t : static_cast<std::int64_t>(given[at]));
    }
  return places;
}

// The formula, element by element; x in row-major order of (batch, heads, time, size).
std::vector<double> rotated(const RotaryArgs& args, std::vector<double> x) {
  const auto heads = static_cast<std::size_t>(args.x.dim(1)), time = static_cast<std::size_t>(args.x.dim(2));
  const auto size = static_cast<std::size_t>(args.x.dim(3)),
             pairs = static_cast<std::size_t>(args.table.cosines.dim(1));
  const std::vector<double> cosines = doubles(args.table.cosines), sines = doubles(args.table.sines);
  const std::vector<std::int64_t> places = places_of(args);
  for (std::size_t row = 0; row < x.size() / std::max<std::size_t>(1, size); ++row) {
    const std::size_t t = row % time, b = row / time / heads;
    const auto place = static_cast<std::size_t>(places[b * time + t]);
    for (std::size_t p = 0; p < pairs; ++p) {
      const bool halves = args.table.pairs == RotaryPairs::halves;
      double& first = x[row * size + (halves ? p : 2 * p)];
      double& second = x[row * size + (halves ? p + pairs : 2 * p + 1)];
      const double c = cosines[place * pairs + p], s = (args.inverse ? -1 : 1) * sines[place * pairs + p];
      const double a = first, other = second;
      first = a * c - other * s;
      second = other * c + a * s;
    }
  }
  return x;
}

std::vector<double> normed(const RotaryArgs& args, std::vector<double> x) {
  const auto size = static_cast<std::size_t>(args.x.dim(3));
  const std::vector<double> weight = doubles(args.weight);
  for (std::size_t at = 0; at < x.size(); at += size) {
    double squares = 0;
    for (std::size_t i = 0; i < size; ++i) squares += x[at + i] * x[at + i];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(size) + args.epsilon);
    for (std::size_t i = 0; i < size; ++i) x[at + i] *= rstd * weight[i];
  }
  return x;
}

// Queries and keys of packed rows: (2, 3, 5, size), not dense.
Tensor packed_heads(const Context& context, std::int64_t size, DType dtype) {
  return uniform_tensor(context, {2, 5, 4, size}, 1, dtype).transpose(1, 2).slice(1, 1, 4);
}

template <class F>
void for_each_rotary_case(const Context& context, const F& f) {
  const Tensor shared = tensor_of(context, {3, 0, 7, 7, 1}, {5}, DType::i32);
  const Tensor own = tensor_of(context, {3, 0, 7, 7, 1, 4, 4, 8, 2, 0}, {2, 5}, DType::i64);
  for (const DType dtype : kFloats)
    for (const RotaryPairs layout : {RotaryPairs::halves, RotaryPairs::interleaved})
      for (const std::int64_t pairs : {16, 5, 0})
        for (const Tensor& positions : {Tensor(), shared, own}) {
          SCOPED_TRACE(concat(dtype, ' ', static_cast<int>(layout), " pairs ", pairs, ' ',
                              positions.defined() ? positions.rank() : 0));
          RotaryArgs args;
          args.x = packed_heads(context, 32, dtype);
          args.table = table_of(context, 9, pairs, layout);
          args.positions = positions;
          args.first = positions.defined() ? 0 : 4;
          f(args);
        }
}

TEST(Rotary, EqualsADoubleReferenceForEveryDtypeLayoutAndPosition) {
  const Context context = testing::context();
  for_each_rotary_case(context, [&](RotaryArgs args) {
    for (const bool inverse : {false, true}) {
      args.inverse = inverse;
      EXPECT_LT(relative_error(doubles(kernels::rotary(args).out), rotated(args, doubles(args.x))),
                tolerance(args.x.dtype()));
    }
  });
}

TEST(Rotary, InPlaceAndInTwoLayoutsGivesTheSameBits) {
  const Context context = testing::context();
  for_each_rotary_case(context, [&](RotaryArgs args) {
    const std::vector<double> expected = doubles(kernels::rotary(args).out);
    RotaryArgs dense = args;
    dense.x = kernels::clone(args.x);
    EXPECT_EQ(doubles(kernels::rotary(dense).out), expected);
    RotaryArgs in_place = args;
    in_place.out = args.x;
    kernels::rotary(in_place);
    EXPECT_EQ(doubles(args.x), expected);
  });
}

TEST(Rotary, TurningBackUndoesTheTurnOfATableOfLengthOne) {
  const Context context = testing::context();
  RotaryArgs args;
  args.x = packed_heads(context, 12, DType::f64);
  args.table = table_of(context, 9, 6, RotaryPairs::halves);
  RotaryArgs back = args;
  back.x = kernels::rotary(args).out;
  back.inverse = true;
  std::vector<double> expected = doubles(args.x);
  for (double& value : expected) value *= 1.25 * 1.25;  // the table's length
  EXPECT_LT(relative_error(doubles(kernels::rotary(back).out), expected), 1e-6);
}

TEST(Rotary, WithANormEqualsADoubleReferenceAndRoundsOnce) {
  const Context context = testing::context();
  for_each_rotary_case(context, [&](RotaryArgs args) {
    args.weight = uniform_tensor(context, {32}, 2, args.x.dtype(), 0.5, 1.5);
    args.epsilon = 1e-3;
    const RotaryArgs done = kernels::rotary(args);
    EXPECT_LT(relative_error(doubles(done.out), rotated(args, normed(args, doubles(args.x)))),
              tolerance(args.x.dtype()));
  });
}

TEST(Rotary, ANormOfF32HasTheBitsOfTheNormThenTheRotation) {
  const Context context = testing::context();
  RotaryArgs args;
  args.x = packed_heads(context, 32, DType::f32);
  args.table = table_of(context, 9, 16, RotaryPairs::halves);
  RotaryArgs both = args;
  both.weight = uniform_tensor(context, {32}, 2, DType::f32, 0.5, 1.5);
  both.epsilon = 1e-3;
  args.x = kernels::norm(NormKind::rms, args.x, {}, both.weight, {}, both.epsilon).out;
  EXPECT_EQ(doubles(kernels::rotary(both).out), doubles(kernels::rotary(args).out));
}

// Gradients of sum(out * grad_out), from the formulas in double.
TEST(Rotary, GradientsThroughTheNormEqualADoubleReference) {
  const Context context = testing::context();
  for_each_rotary_case(context, [&](RotaryArgs args) {
    const DType dtype = args.x.dtype();
    args.weight = uniform_tensor(context, {32}, 2, dtype, 0.5, 1.5);
    args.epsilon = 1e-3;
    args = kernels::rotary(args);
    RotaryBackwardArgs backward;
    backward.forward = args;
    backward.grad_out = uniform_tensor(context, {2, 5, 3, 32}, 3, dtype).transpose(1, 2);
    backward.grad_weight = kernels::full(context, {32}, 0.5, dtype == DType::f64 ? DType::f64 : DType::f32);
    backward.add_weight = true;

    RotaryArgs back = args;
    back.inverse = true;
    const std::vector<double> x = doubles(args.x), weight = doubles(args.weight);
    const std::vector<double> grad = rotated(back, doubles(backward.grad_out));
    std::vector<double> of_x(x.size()), of_weight(32, 0.5);
    for (std::size_t at = 0; at < x.size(); at += 32) {
      double squares = 0, dot = 0;
      for (std::size_t i = at; i < at + 32; ++i) squares += x[i] * x[i];
      const double rstd = 1 / std::sqrt(squares / 32 + args.epsilon);
      for (std::size_t i = at; i < at + 32; ++i) dot += grad[i] * weight[i - at] * x[i] * rstd;
      for (std::size_t i = at; i < at + 32; ++i) {
        of_x[i] = rstd * (grad[i] * weight[i - at] - x[i] * rstd * dot / 32);
        of_weight[i - at] += grad[i] * x[i] * rstd;
      }
    }
    const RotaryBackwardArgs done = kernels::rotary_backward(backward);
    EXPECT_LT(relative_error(doubles(done.grad_x), of_x), tolerance(dtype));
    EXPECT_LT(relative_error(doubles(done.grad_weight), of_weight), dtype == DType::f64 ? 1e-13 : 1e-6);

    RotaryBackwardArgs in_place = backward;
    in_place.grad_x = in_place.grad_out;
    in_place.grad_weight = {};
    EXPECT_EQ(doubles(kernels::rotary_backward(in_place).grad_x), doubles(done.grad_x));
  });
}

TEST(Rotary, SumsHaveTheSameBitsWithOneThreadAndWithTwo) {
  std::vector<std::vector<double>> found;
  for (const int threads : {1, 2}) {
    const Context context = testing::context(threads);
    RotaryArgs args;
    args.x = uniform_tensor(context, {3, 2, 400, 64}, 1);
    args.table = table_of(context, 400, 32, RotaryPairs::halves);
    args.weight = uniform_tensor(context, {64}, 2);
    RotaryBackwardArgs backward;
    backward.forward = kernels::rotary(args);
    backward.grad_out = uniform_tensor(context, {3, 2, 400, 64}, 3);
    backward.grad_weight = empty(context, {64}, DType::f32);
    const RotaryBackwardArgs done = kernels::rotary_backward(backward);
    found.push_back(doubles(done.grad_weight));
    found.push_back(doubles(done.grad_x));
  }
  EXPECT_EQ(found[0], found[2]);
  EXPECT_EQ(found[1], found[3]);
}

TEST(Rotary, SaysWhatDoesNotFit) {
  const Context context = testing::context(1);
  RotaryArgs args;
  args.x = uniform_tensor(context, {2, 3, 5, 8}, 1);
  args.table = table_of(context, 6, 4, RotaryPairs::halves);
  const auto message = [&](const auto& change) {
    RotaryArgs changed = args;
    change(changed);
    return error_of([&] { kernels::rotary(changed); });
  };
  EXPECT_EQ(message([](RotaryArgs&) {}), "");
  EXPECT_NE(
      message([](RotaryArgs& a) { a.first = 2; }).find("positions [2, 7) are not all in a table of 6; make it longer"),
      std::string::npos);
  EXPECT_NE(message([](RotaryArgs& a) { a.first = -1; }).find("positions [-1, 4)"), std::string::npos);
  EXPECT_NE(message([&](RotaryArgs& a) {
              a.positions = tensor_of(context, {0, 1, 6, 0, 0}, {5}, DType::i64);
            }).find("rotary: position 6 at position 2 is outside [0, 6)"),
            std::string::npos);
  EXPECT_NE(message([&](RotaryArgs& a) { a.positions = zeros(context, {4}, DType::i64); }).find("i32 or i64"),
            std::string::npos);
  EXPECT_NE(message([&](RotaryArgs& a) {
              a.table = table_of(context, 6, 5, RotaryPairs::halves);
            }).find("turns 10 elements of a head"),
            std::string::npos);
  EXPECT_NE(message([](RotaryArgs& a) { a.x = a.x.select(0, 0); }).find("(batch, heads, time, size)"),
            std::string::npos);
  EXPECT_NE(message([](RotaryArgs& a) { a.out = a.x.transpose(2, 3).transpose(1, 2); }), "");
  EXPECT_NE(message([&](RotaryArgs& a) {
              a.weight = uniform_tensor(context, {8}, 1);
              a.inverse = true;
            }).find("has no norm"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
