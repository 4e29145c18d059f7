#include "keel/nn/tensor_parts.h"

#include <gtest/gtest.h>

#include "keel/kernels/elementwise.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace testing;

// The tensor (numel) cut at these elements.
TensorParts cut(const std::string& name, const Tensor& whole, const std::vector<std::int64_t>& at) {
  TensorParts parts;
  const Tensor row = whole.view({whole.numel()});
  for (std::size_t i = 0; i + 1 < at.size(); ++i)
    parts.push_back({name, whole.shape(), at[i], row.slice(0, at[i], at[i + 1])});
  return parts;
}

TEST(TensorParts, AreFilledFromAnyOtherCut) {
  const Context context = testing::context(1);
  const Tensor whole = uniform_tensor(context, {5, 7}, 1);
  for (const std::vector<std::int64_t>& from : {std::vector<std::int64_t>{0, 35}, {0, 1, 20, 35}, {0, 12, 24, 35}})
    for (const std::vector<std::int64_t>& to : {std::vector<std::int64_t>{0, 35}, {0, 34, 35}, {0, 11, 13, 35}}) {
      const Tensor target = zeros(context, {5, 7});
      copy_parts(cut("w", whole, from), cut("w", target, to), "");
      EXPECT_EQ(doubles(target), doubles(whole));
      // Through the names of a file.
      const Tensor again = zeros(context, {5, 7});
      copy_parts(parse_parts(named_parts(cut("w", whole, from))), cut("w", again, to), "");
      EXPECT_EQ(doubles(again), doubles(whole));
    }
}

std::string complaint(const TensorParts& from, const TensorParts& to) {
  try {
    copy_parts(from, to, "other weights");
  } catch (const Error& error) { return error.what(); }
  return "";
}

TEST(TensorParts, ThatDoNotFitAreNamedAndChangeNothing) {
  const Context context = testing::context(1);
  const Tensor whole = uniform_tensor(context, {5, 7}, 1), target = zeros(context, {5, 7});
  const TensorParts to = cut("w", target, {0, 35});
  EXPECT_EQ(complaint(cut("w", whole, {0, 20}), to), "other weights; missing: a part of w");
  EXPECT_EQ(complaint(cut("v", whole, {0, 35}), to), "other weights; missing: w; unknown: v");
  EXPECT_EQ(complaint(cut("w", whole.view({7, 5}), {0, 35}), to),
            "other weights; of another shape: w (7, 5) instead of (5, 7)");
  TensorParts gap = cut("w", whole, {0, 10, 20, 35});
  gap.erase(gap.begin() + 1);
  EXPECT_EQ(complaint(gap, to), "other weights; missing: a part of w");
  EXPECT_EQ(doubles(target), doubles(zeros(context, {5, 7})));
}

TEST(TensorParts, ThreeNamesAreShownOfMany) {
  const Context context = testing::context(1);
  const Tensor one = uniform_tensor(context, {1}, 1);
  TensorParts to;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    to.push_back({name, {1}, 0, one});
    const std::string shown[] = {"", "a", "a, b", "a, b, c", "a, b, c and 1 more", "a, b, c and 2 more"};
    EXPECT_EQ(complaint({}, to), "other weights; missing: " + shown[to.size()]);
  }
}

// Parts that overlap or hold nothing fill what others leave, in any order; a whole is put together from no others.
TEST(TensorParts, MayOverlapAndMayBeEmpty) {
  const Context context = testing::context(1);
  const Tensor whole = uniform_tensor(context, {5, 7}, 1);
  TensorParts from = cut("w", whole, {20, 35});
  for (const auto& [begin, end] : {std::pair{0, 3}, {2, 21}, {7, 7}, {4, 6}})
    from.push_back(cut("w", whole, {begin, end})[0]);
  const Tensor target = zeros(context, {5, 7});
  EXPECT_EQ(complaint(from, cut("w", target, {0, 35})), "");
  EXPECT_EQ(doubles(target), doubles(whole));
  EXPECT_EQ(complaint(cut("w", whole, {3, 9}), cut("w", target, {3, 9})), "");
  for (const auto& [begin, end] : {std::pair{2, 9}, {3, 10}})
    EXPECT_EQ(complaint(cut("w", whole, {3, 9}), cut("w", target, {begin, end})),
              "other weights; missing: a part of w");
  EXPECT_EQ(named_parts(from).size(), 4U) << "none of nothing";
  const Tensor nothing = zeros(context, {0, 3});
  EXPECT_EQ(named_parts(parts_of({{"n", nothing}}))[0].second.shape(), (Dims{0, 3}));
  EXPECT_EQ(doubles(whole_tensors(cut("w", whole, {0, 35}))[0].second), doubles(whole));
  EXPECT_EQ(testing::error_of([&] {
              whole_tensors(cut("w", whole, {1, 35}));
            }),
            "this rank has elements 1 to 35 of w (5, 7) alone");
}

TEST(TensorParts, NamesThatSayNoRangeAreErrors) {
  const Context context = testing::context(1);
  const Tensor numbers = uniform_tensor(context, {4}, 1);
  for (const char* name : {"w (", "w (5, 7)", "w (5, 7) 0:5", "w (5, 7) 33:37", "w (5, 7) -1:3", "w (5,7) 0:4",
                           "w (99999999999, 99999999999) 0:4", "w (1, 1, 1, 1, 1, 1, 1, 1, 4) 0:4", "w (4 0:4",
                           "w (4) 0:4x", "w (5, 7) 31:34", "w (5, 7) 32:36", "w (5, 7) 31-35", "w (5, 7)31:35",
                           "w (5 7) 31:35", "w (4) 99999999999999999999:4", "w (4) 0:", "w (4) :4", "w (4) :"})
    EXPECT_THROW(parse_parts({{name, numbers}}), Error) << name;
  const Tensor nothing = zeros(context, {0});
  EXPECT_EQ(parse_parts({{"w (5, 7) 35:35", nothing}})[0].end(), 35);
  for (const char* name : {"w (", "w (x", "w (5, 7)", "w (5,7) 0:0", "w (5, 7) 36:36", "w (5, 7) 0:0x",
                           "w (99999999999, 99999999999) 0:0"})
    EXPECT_THROW(parse_parts({{name, nothing}}), Error) << name;
  const TensorPart last = parse_parts({{"w (5, 7) 31:35", numbers}})[0];
  EXPECT_EQ(last.begin, 31);
  EXPECT_EQ(last.shape, (Dims{5, 7}));
  EXPECT_EQ(last.name, "w");
  EXPECT_EQ(parse_parts({{"w (1, 1, 1, 1, 1, 1, 1, 4) 0:4", numbers}})[0].end(), 4);
  EXPECT_EQ(parse_parts({{"w (4) 0:4", numbers}})[0].end(), 4);
  for (const char* name : {"w ", "w x", "w 0:0", "a name of others"})
    EXPECT_EQ(parse_parts({{name, numbers}})[0].name, name);
}

TEST(TensorParts, HaveAFingerprintThatDependsOnEveryNumberAndPlaceButNotOnTheCut) {
  const Context context = testing::context(1);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor whole = uniform_tensor(context, {5, 7}, 1, dtype);
    const std::uint64_t print = fingerprint(cut("w", whole, {0, 35}));
    std::uint64_t sum = 0;
    for (const TensorPart& part : cut("w", whole, {0, 1, 3, 3, 17, 34, 35})) sum += fingerprint({part});
    sum += fingerprint({{"w", {5, 7}}});  // nothing of it
    EXPECT_EQ(sum, print);
    EXPECT_NE(fingerprint(cut("v", whole, {0, 35})), print);
    for (std::size_t i = 0; i < 35; ++i)
      for (const std::size_t byte : {std::size_t{0}, size_of(dtype) - 1})
        for (const int bit : {1, 128}) {
          const Tensor flipped = kernels::clone(whole);
          flipped.raw()[i * size_of(dtype) + byte] ^= static_cast<std::byte>(bit);
          EXPECT_NE(fingerprint(cut("w", flipped, {0, 35})), print);
        }
    for (std::int64_t i = 0; i + 1 < 35; ++i) {
      const Tensor swapped = kernels::clone(whole).view({35});
      kernels::copy_into(swapped.slice(0, i, i + 1), whole.view({35}).slice(0, i + 1, i + 2));
      EXPECT_NE(fingerprint(cut("w", swapped.view({5, 7}), {0, 35})), print);
      kernels::copy_into(swapped.slice(0, i + 1, i + 2), whole.view({35}).slice(0, i, i + 1));
      EXPECT_NE(fingerprint(cut("w", swapped.view({5, 7}), {0, 35})), print);
    }
  }
}

}  // namespace
}  // namespace keel
