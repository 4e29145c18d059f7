#include <gtest/gtest.h>

#include "keel/kernels/elementwise.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::context;
using testing::doubles;

Tensor ids(const Context& context, const std::vector<std::int64_t>& values) {
  return from_values(context, values, {static_cast<std::int64_t>(values.size())});
}

TEST(Dropout, MaskIsTheStatedFunctionOfKeySamplePositionAndChannel) {
  const Context cpu = context();
  const DropoutKey key{.seed = 5, .step = 9, .call = 3};
  const std::int64_t far = (std::int64_t{1} << 40) + 7;  // needs both counter words
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const Tensor x = testing::uniform_tensor(cpu, {2, 5, 301}, 1, dtype, 0.5, 1);
    const std::vector<double> in = doubles(x), out = doubles(kernels::dropout(x, 0.25, key, ids(cpu, {4, far})));
    std::size_t i = 0;
    for (const std::int64_t sample : {std::int64_t{4}, far})
      for (std::uint32_t position = 0; position < 5; ++position)
        for (std::uint32_t channel = 0; channel < 301; ++channel, ++i) {
          const std::uint32_t word =
              dropout_words(key_of(key), static_cast<std::uint64_t>(sample), position, channel / 4)[channel % 4];
          if (word < 0x40000000u) EXPECT_EQ(out[i], 0);
          else EXPECT_NEAR(out[i], in[i] / 0.75, in[i] * 0x1p-8);
        }
  }
}

TEST(Dropout, KeepsTheStatedShareAndTheMean) {
  const Context cpu = context();
  const Tensor x = kernels::full(cpu, {4, 100, 1000}, 1);
  for (const double probability : {0.1, 0.5, 0.9}) {
    double dropped = 0, sum = 0;
    for (const double value : doubles(kernels::dropout(x, probability, {.seed = 1}, ids(cpu, {0, 1, 2, 3})))) {
      dropped += value == 0;
      sum += value;
    }
    EXPECT_NEAR(dropped / 400000, probability, 0.004);
    EXPECT_NEAR(sum / 400000, 1, 0.03);
  }
  EXPECT_EQ(doubles(kernels::dropout(x, 0, {}, ids(cpu, {0, 1, 2, 3}))), doubles(x));
  EXPECT_EQ(doubles(kernels::dropout(x, 1, {}, ids(cpu, {0, 1, 2, 3}))), std::vector<double>(400000, 0));
}

TEST(Dropout, DoesNotDependOnHowABatchIsSplitOrOnThreads) {
  const Context two = context(2), one = context(1);
  const DropoutKey key{.seed = 2, .step = 7};
  const Tensor x = testing::uniform_tensor(two, {6, 11, 2000}, 1),
               same = testing::uniform_tensor(one, {6, 11, 2000}, 1);
  const std::vector<double> whole = doubles(kernels::dropout(x, 0.3, key, ids(two, {10, 11, 12, 13, 14, 15})));
  EXPECT_EQ(whole, doubles(kernels::dropout(same, 0.3, key, ids(one, {10, 11, 12, 13, 14, 15}))));
  const std::vector<double> part = doubles(kernels::dropout(x.slice(0, 2, 4), 0.3, key, ids(two, {12, 13})));
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 2 * 11 * 2000));
  // The layout of the input does not matter either.
  const Tensor turned = kernels::clone(x.transpose(1, 2)).transpose(1, 2);
  EXPECT_EQ(whole, doubles(kernels::dropout(turned, 0.3, key, ids(two, {10, 11, 12, 13, 14, 15}))));
}

TEST(Dropout, EveryPartOfTheKeyChangesTheMask) {
  const Context cpu = context();
  const Tensor x = kernels::full(cpu, {1, 1, 4096}, 1);
  const std::vector<double> base = doubles(kernels::dropout(x, 0.5, {1, 1, 1}, ids(cpu, {1})));
  const auto agreement = [&](const DropoutKey& key, std::int64_t sample) {
    const std::vector<double> other = doubles(kernels::dropout(x, 0.5, key, ids(cpu, {sample})));
    double equal = 0;
    for (std::size_t i = 0; i < base.size(); ++i) equal += base[i] == other[i];
    return equal / 4096;
  };
  EXPECT_EQ(agreement({1, 1, 1}, 1), 1);
  for (const double share :
       {agreement({2, 1, 1}, 1), agreement({1, 2, 1}, 1), agreement({1, 1, 2}, 1), agreement({1, 1, 1}, 2)})
    EXPECT_NEAR(share, 0.5, 0.05);
}

TEST(Dropout, RefusesWhatDoesNotFit) {
  const Context cpu = context();
  const Tensor x = empty(cpu, {2, 3, 4});
  EXPECT_THROW(kernels::dropout(x, 1.5, {}, ids(cpu, {0, 1})), Error);
  EXPECT_THROW(kernels::dropout(x, -0.1, {}, ids(cpu, {0, 1})), Error);
  EXPECT_THROW(kernels::dropout(x, NAN, {}, ids(cpu, {0, 1})), Error);
  EXPECT_THROW(kernels::dropout(x, 0.1, {}, ids(cpu, {0})), Error);
  EXPECT_THROW(kernels::dropout(empty(cpu, {2, 3}), 0.1, {}, ids(cpu, {0, 1})), Error);
  EXPECT_EQ(kernels::dropout(empty(cpu, {0, 3, 4}), 0.1, {}, ids(cpu, {})).numel(), 0);
}

}  // namespace
}  // namespace keel
