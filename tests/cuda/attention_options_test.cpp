// Windows, starts, a bias with its gradient and dropout of attention on a device, in the kernels with tensor cores and
// without, against a double reference.

#include "tests/kernels/attention_options.h"
#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(AttentionOptionsOnDevice);

// Head sizes from 32 to 128 that are multiples of 8 are those of the tensor cores, in bf16 and f16; the others are not.
const OptionCase kDeviceOptionCases[] = {
    {.batch = 1, .queries = 1, .keys = 1, .size = 1, .window = 1},
    {.batch = 1, .heads = 2, .kv_heads = 1, .queries = 150, .keys = 150, .size = 64, .causal = true, .window = 37},
    {.batch = 1, .queries = 70, .keys = 75, .size = 64, .window = 20},
    {.batch = 1, .queries = 70, .keys = 100, .size = 128, .causal = true, .q_offset = 90, .window = 5},
    {.batch = 3, .heads = 2, .queries = 40, .keys = 70, .size = 64, .starts = {0, 33, 70}, .lengths = {70, 65, 70}},
    {.batch = 2, .queries = 40, .keys = 40, .size = 128, .causal = true, .starts = {3, 35}, .lengths = {30, 20}},
    {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 35, .keys = 40, .size = 64, .causal = true, .bias = "bhq"},
    {.batch = 2, .heads = 2, .queries = 35, .keys = 40, .size = 128, .bias = "hq"},
    {.batch = 2, .heads = 2, .queries = 66, .keys = 40, .size = 8, .bias = "bh"},
    {.batch = 2, .heads = 2, .queries = 66, .keys = 40, .size = 32, .bias = "bh"},
    {.batch = 2, .heads = 2, .queries = 35, .keys = 41, .size = 7, .bias = "q"},
    {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 70, .keys = 70, .size = 64, .causal = true, .dropout = 0.3},
    {.batch = 2, .heads = 2, .queries = 40, .keys = 70, .size = 128, .dropout = 0.5, .position = 1003},
    {.batch = 1, .queries = 20, .keys = 36, .size = 9, .dropout = 0.7, .position = 5},
    {.batch = 2,
     .heads = 4,
     .kv_heads = 2,
     .queries = 70,
     .keys = 83,
     .size = 64,
     .causal = true,
     .q_offset = 10,
     .window = 41,
     .starts = {4, 50},
     .lengths = {83, 70},
     .bias = "hq",
     .dropout = 0.2,
     .position = 3},
    {.batch = 2,
     .heads = 2,
     .kv_heads = 1,
     .queries = 69,
     .keys = 69,
     .size = 128,
     .window = 30,
     .starts = {1, 60},
     .bias = "b",
     .dropout = 0.4},
    {.batch = 1,
     .heads = 2,
     .queries = 20,
     .keys = 40,
     .size = 256,
     .causal = true,
     .q_offset = 20,
     .window = 17,
     .bias = "h",
     .dropout = 0.1},
    {.batch = 1,
     .heads = 2,
     .queries = 50,
     .keys = 50,
     .size = 80,
     .window = 17,
     .starts = {13},
     .bias = "hq",
     .dropout = 0.1},
};

double options_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f32: return 1e-5;
    case DType::f16: return 4e-3;
    default: return 2.5e-2;
  }
}

// By norms; where the exact numbers are zero (a softmax of one weight), so are those that are allowed.
void expect_as_reference(const Tensor& got, const std::vector<double>& expected, DType dtype, const std::string& what) {
  const std::vector<double> values = doubles(got), zeros(values.size(), 0);
  ASSERT_EQ(values.size(), expected.size()) << what;
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  EXPECT_LT(relative_error(values, largest < 1e-9 ? zeros : expected), options_tolerance(dtype))
      << what << ' ' << dtype;
}

std::vector<Tensor> results_of(const AttentionBackwardArgs& run) {
  std::vector<Tensor> all = {run.forward.out, run.forward.lse, run.grad_q, run.grad_k, run.grad_v};
  if (run.grad_bias.defined()) all.push_back(run.grad_bias);
  return all;
}

TEST_P(AttentionOptionsOnDevice, EqualADoubleReferenceAloneAndTogether) {
  for (const OptionCase& c : kDeviceOptionCases)
    for (const DType dtype : kKernelTypes) {
      const OptionInputs in = option_inputs(device, c, dtype, dtype);
      const AttentionBackwardArgs got = run_options(c, in);
      const OptionResults expected = options_reference(c, in);
      const std::string name = name_of(c);
      expect_as_reference(got.forward.out, expected.out, dtype, name + " out");
      expect_as_reference(got.grad_q, expected.grad_q, dtype, name + " q");
      expect_as_reference(got.grad_k, expected.grad_k, dtype, name + " k");
      expect_as_reference(got.grad_v, expected.grad_v, dtype, name + " v");
      if (!c.bias.empty()) expect_as_reference(got.grad_bias, expected.grad_bias, dtype, name + " bias");
      const std::vector<double> lse = doubles(got.forward.lse);
      for (std::size_t i = 0; i < lse.size(); ++i) {
        if (std::isinf(expected.lse[i])) EXPECT_EQ(lse[i], expected.lse[i]) << name;
        else EXPECT_NEAR(lse[i], expected.lse[i], 1e-4) << name << ' ' << dtype;
      }
    }
}

// A combination of everything, for laws about bits.
OptionCase everything(std::int64_t size) {
  return {.batch = 2,
          .heads = 2,
          .kv_heads = 1,
          .queries = 37,
          .keys = 45,
          .size = size,
          .causal = true,
          .q_offset = 8,
          .window = 20,
          .starts = {2, 11},
          .lengths = {45, 40},
          .bias = "h",
          .dropout = 0.25,
          .position = 6};
}

TEST_P(AttentionOptionsOnDevice, GiveTheSameBitsInAnyOrderAndAgain) {
  for (const std::int64_t size : {7, 64, 96})
    for (const DType dtype : kKernelTypes) {
      const OptionCase c = everything(size);
      const OptionInputs in = option_inputs(device, c, dtype, DType::f32);
      expect_same_bits_again([&] { return results_of(run_options(c, in)); });
    }
}

// The mask is attention_keeps()'s, key by key: with values that are rows of an identity matrix the output shows which
// weights are left.
TEST_P(AttentionOptionsOnDevice, DropTheWeightsThatTheFormulaDrops) {
  for (const std::int64_t position : {0, 3, 8})
    for (const DType dtype : kKernelTypes) {
      const OptionCase c = {.batch = 2,
                            .heads = 2,
                            .kv_heads = 1,
                            .queries = 40,
                            .keys = 64,
                            .size = 64,
                            .q_offset = 7,
                            .dropout = 0.4,
                            .position = position};
      OptionInputs in = option_inputs(device, c, dtype, dtype);
      std::vector<double> identity(static_cast<std::size_t>(2 * 64 * 64), 0);
      for (std::size_t i = 0; i < 128; ++i) identity[i * 64 + i % 64] = 1;
      in.v = tensor_of(device, identity, {2, 1, 64, 64}, dtype);
      const std::vector<double> out = doubles(kernels::attention(option_args(c, in)).out);
      for (std::uint32_t b = 0, n = 0; b < 2; ++b)
        for (std::uint32_t h = 0; h < 2; ++h)
          for (std::uint32_t i = 0; i < 40; ++i)
            for (std::uint32_t j = 0; j < 64; ++j, ++n) {
              const auto first = static_cast<std::uint32_t>(position);
              const bool keeps = attention_keeps(attention_dropout_key(key_of(kOptionKey), h),
                                                 static_cast<std::uint64_t>(sample_of(b)), first + 7 + i, first + j,
                                                 attention_dropout_threshold(c.dropout));
              ASSERT_EQ(out[n] != 0, keeps) << b << ' ' << h << ' ' << i << ' ' << j << ' ' << dtype;
            }
    }
}

TEST_P(AttentionOptionsOnDevice, IgnoreWhatLiesBeforeStarts) {
  for (const std::int64_t size : {8, 32, 64})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const OptionCase c = {.batch = 1, .queries = 5, .keys = 45, .size = size, .starts = {37}, .lengths = {43}};
      const OptionInputs in = option_inputs(device, c, dtype, dtype);
      std::vector<double> k = doubles(in.k), v = doubles(in.v);
      const auto elements = static_cast<std::size_t>(size);
      for (std::size_t i = 0; i < k.size(); ++i)
        if (i < 37 * elements || i >= 43 * elements) k[i] = v[i] = NAN;
      OptionInputs dirty = in;
      dirty.k = tensor_of(device, k, in.k.shape(), dtype);
      dirty.v = tensor_of(device, v, in.v.shape(), dtype);
      const AttentionBackwardArgs run = run_options(c, in);
      const std::vector<Tensor> clean = results_of(run), same = results_of(run_options(c, dirty));
      for (std::size_t i = 0; i < clean.size(); ++i)
        EXPECT_EQ(doubles(same[i]), doubles(clean[i])) << i << ' ' << dtype;
      const std::vector<double> padding = doubles(run.grad_k.slice(2, 0, 37));
      EXPECT_EQ(padding, std::vector<double>(padding.size(), 0));
    }
}

// Keys that a bias hides: those queries that see no other give zeros, and their gradients are zero.
TEST_P(AttentionOptionsOnDevice, TakeABiasOfMinusInfinity) {
  for (const std::int64_t size : {8, 32, 64})
    for (const DType dtype : kKernelTypes) {
      const OptionCase c = {.batch = 1, .queries = 36, .keys = 40, .size = size, .bias = "q"};
      OptionInputs in = option_inputs(device, c, dtype, DType::f32);
      std::vector<double> bias = doubles(in.bias);
      for (std::size_t i = 0; i < bias.size(); ++i)
        if (i / 40 == 34 || i % 7 == 3) bias[i] = -INFINITY;
      in.bias = tensor_of(device, bias, in.bias.shape(), DType::f32);
      const AttentionBackwardArgs got = run_options(c, in);
      const std::vector<double> out = doubles(got.forward.out.select(2, 34)), lse = doubles(got.forward.lse);
      EXPECT_EQ(out, std::vector<double>(out.size(), 0));
      EXPECT_EQ(lse[34], -INFINITY);
      EXPECT_EQ(doubles(got.grad_q.select(2, 34)), std::vector<double>(out.size(), 0));
      const std::vector<double> grad_bias = doubles(got.grad_bias);
      for (std::size_t i = 0; i < bias.size(); ++i) {
        ASSERT_TRUE(std::isfinite(grad_bias[i])) << i;
        if (std::isinf(bias[i])) { ASSERT_EQ(grad_bias[i], 0) << i; }
      }
      for (const Tensor& x : {got.grad_k, got.grad_v})
        for (const double value : doubles(x)) ASSERT_TRUE(std::isfinite(value));
    }
}

// Windows, starts and lengths of any size, also ones that no 32 bits hold.
TEST_P(AttentionOptionsOnDevice, ThatHideNothingChangeNoBit) {
  for (const std::int64_t size : {8, 32, 64})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const OptionCase plain = {.batch = 1, .heads = 2, .queries = 70, .keys = 70, .size = size, .causal = true};
      OptionCase open = plain;
      open.window = std::int64_t{1} << 62;
      open.starts = {-3};
      open.lengths = {std::int64_t{1} << 62};
      const OptionInputs in = option_inputs(device, plain, dtype, dtype);
      const std::vector<Tensor> without = results_of(run_options(plain, in));
      const std::vector<Tensor> with = results_of(run_options(open, option_inputs(device, open, dtype, dtype)));
      for (std::size_t i = 0; i < with.size(); ++i)
        EXPECT_EQ(doubles(with[i]), doubles(without[i])) << i << ' ' << dtype;
    }
}

// A bias may be a view of something larger, with any order of dimensions.
TEST_P(AttentionOptionsOnDevice, TakeABiasThatIsAView) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const OptionCase c = {.batch = 2, .heads = 2, .queries = 9, .keys = 20, .size = 64, .bias = "hq"};
    OptionInputs in = option_inputs(device, c, dtype, dtype);
    const AttentionBackwardArgs dense = run_options(c, in);
    const Tensor turned = kernels::contiguous(in.bias.transpose(1, 2));
    in.bias = turned.transpose(1, 2);
    const std::vector<Tensor> expected = results_of(dense), got = results_of(run_options(c, in));
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(doubles(got[i]), doubles(expected[i])) << i;
  }
}

TEST_P(AttentionOptionsOnDevice, SayWhyALibraryIsNotAsked) {
  OptionCase c = {.queries = 70, .keys = 70, .size = 64, .causal = true, .window = 9};
  const OptionInputs in = option_inputs(device, c, DType::bf16, DType::bf16);
  EXPECT_EQ(kernels::attention_backend(option_args(c, in)), "keel: kernels=plain");
  const Context automatic = Context::create({.device = kTestDevice});
  const std::string backend =
      kernels::attention_backend(option_args(c, option_inputs(automatic, c, DType::bf16, DType::bf16)));
  EXPECT_EQ(backend.rfind("keel: ", 0), 0u) << backend;
}

}  // namespace
}  // namespace keel
