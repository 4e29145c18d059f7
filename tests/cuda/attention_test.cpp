// Attention on a device against the processor's in fp64 on the same numbers: every mask, layout and head size.

#include "keel/kernels/attention.h"

#include "keel/kernels/cuda/attention_padding.h"
#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(AttentionOnDevice);

struct AttentionCase {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, size = 8;
  bool causal = false;
  std::int64_t q_offset = 0;
  std::vector<std::int64_t> lengths = {};
  double scale = 0;
};

std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << "batch " << c.batch << " heads " << c.heads << '/' << c.kv_heads << " queries " << c.queries << " keys "
             << c.keys << " size " << c.size << (c.causal ? " causal" : "") << " offset " << c.q_offset
             << (c.lengths.empty() ? "" : " padded");
}

// Head sizes from 32 to 128 that are multiples of 8 are those of the tensor cores, in bf16 and f16.
const AttentionCase kAttentionCases[] = {
    {.batch = 1, .queries = 1, .keys = 1, .size = 1},
    {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 9, .keys = 7, .size = 5, .causal = true, .lengths = {7, 0}},
    {.batch = 1, .heads = 2, .kv_heads = 2, .queries = 70, .keys = 70, .size = 8, .causal = true},
    {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 3, .keys = 90, .size = 8, .lengths = {90, 66}, .scale = 0.7},
    {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 3, .keys = 90, .size = 24, .lengths = {90, 66}, .scale = 0.7},
    {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 3, .keys = 90, .size = 32, .lengths = {90, 66}, .scale = 0.7},
    {.batch = 1, .queries = 130, .keys = 130, .size = 64, .causal = true},
    {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 35, .keys = 70, .size = 64, .lengths = {33, 0}},
    {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 1, .keys = 80, .size = 64, .causal = true, .q_offset = 70},
    {.batch = 1, .heads = 2, .kv_heads = 1, .queries = 33, .keys = 75, .size = 128, .causal = true, .q_offset = 40},
    {.batch = 1, .heads = 2, .kv_heads = 1, .queries = 40, .keys = 45, .size = 40, .causal = true, .q_offset = 5},
    {.batch = 1, .heads = 2, .kv_heads = 1, .queries = 70, .keys = 70, .size = 96, .causal = true, .lengths = {68}},
    {.batch = 1, .queries = 17, .keys = 19, .size = 150, .causal = true},
    {.batch = 1, .queries = 20, .keys = 20, .size = 256, .causal = true},
#ifndef KEEL_EMULATED
    {.batch = 3, .heads = 4, .kv_heads = 4, .queries = 512, .keys = 512, .size = 64, .causal = true},
    {.batch = 2, .heads = 4, .kv_heads = 2, .queries = 1000, .keys = 1000, .size = 128, .causal = true},
    {.batch = 2, .heads = 4, .kv_heads = 2, .queries = 300, .keys = 900, .size = 64},
    {.batch = 2, .heads = 2, .kv_heads = 2, .queries = 128, .keys = 384, .size = 64, .causal = true, .q_offset = 256},
    {.batch = 3, .heads = 2, .kv_heads = 1, .queries = 200, .keys = 200, .size = 64, .lengths = {200, 77, 0}},
    {.batch = 2,
     .heads = 2,
     .kv_heads = 2,
     .queries = 256,
     .keys = 256,
     .size = 128,
     .causal = true,
     .lengths = {256, 9}},
#endif
};

struct AttentionInputs {
  Tensor q, k, v, grad_out, lengths;
};

AttentionInputs inputs_of(const Context& context, const AttentionCase& c, DType dtype) {
  const Dims query_shape = {c.batch, c.heads, c.queries, c.size}, key_shape = {c.batch, c.kv_heads, c.keys, c.size};
  return {.q = uniform_tensor(context, query_shape, 1, dtype, -2, 2),
          .k = uniform_tensor(context, key_shape, 2, dtype, -2, 2),
          .v = uniform_tensor(context, key_shape, 3, dtype),
          .grad_out = uniform_tensor(context, query_shape, 4, dtype),
          .lengths = c.lengths.empty() ? Tensor() : from_values(context, c.lengths, {c.batch})};
}

AttentionArgs args_of(const AttentionCase& c, const AttentionInputs& in) {
  AttentionArgs args;
  args.q = in.q;
  args.k = in.k;
  args.v = in.v;
  args.causal = c.causal;
  args.q_offset = c.q_offset;
  args.lengths = in.lengths;
  args.scale = c.scale;
  return args;
}

AttentionBackwardArgs backward_of(const AttentionArgs& forward, const Tensor& grad_out) {
  AttentionBackwardArgs args;
  args.forward = forward;
  args.grad_out = grad_out;
  return kernels::attention_backward(args);
}

double attention_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f32: return 3e-6;
    case DType::f16: return 2e-3;
    default: return 1.2e-2;
  }
}

// By norms; what is exactly zero may have a few roundings.
void expect_near(const Tensor& result, const Tensor& reference, const std::string& what, double factor = 1) {
  const std::vector<double> x = doubles(result), y = doubles(reference);
  const double allowed = factor * attention_tolerance(result.dtype());
  if (relative_error(x, std::vector<double>(x.size(), 0)) < allowed &&
      relative_error(y, std::vector<double>(y.size(), 0)) < allowed)
    return;
  EXPECT_LT(relative_error(x, y), allowed) << what;
}

// keel's own kernels and, on a GPU, also those of a library where one is built in.
std::vector<Context> contexts(const Context& own) {
#ifdef KEEL_EMULATED
  return {own};
#else
  ContextOptions options;
  options.device = own.device();
  options.log = [](LogLevel, std::string_view message) { std::cout << message << std::endl; };
  return {own, Context::create(options)};
#endif
}

TEST_P(AttentionOnDevice, FollowsTheProcessorInFp64ForwardAndBackward) {
  for (const Context& where : contexts(device))
    for (const AttentionCase& c : kAttentionCases)
      for (const DType dtype : kKernelTypes) {
        const std::string name = concat(c, ' ', dtype, where == device ? "" : ", automatic");
        const AttentionInputs in = inputs_of(where, c, dtype);
        const AttentionArgs out = kernels::attention(args_of(c, in));
        const AttentionBackwardArgs grads = backward_of(out, in.grad_out);

        const AttentionInputs exact = {wide(in.q), wide(in.k), wide(in.v), wide(in.grad_out),
                                       in.lengths.defined() ? kernels::to(in.lengths, host) : Tensor()};
        const AttentionArgs expected = kernels::attention(args_of(c, exact));
        const AttentionBackwardArgs expected_grads = backward_of(expected, exact.grad_out);
        expect_near(out.out, expected.out, name);
        const std::vector<double> lse = doubles(out.lse), expected_lse = doubles(expected.lse);
        for (std::size_t i = 0; i < lse.size(); ++i) {
          if (std::isinf(expected_lse[i])) EXPECT_EQ(lse[i], expected_lse[i]) << name;
          else EXPECT_NEAR(lse[i], expected_lse[i], where == device ? 1e-5 : 1e-3) << name;
        }
        expect_near(grads.grad_q, expected_grads.grad_q, name + " q", 2);
        expect_near(grads.grad_k, expected_grads.grad_k, name + " k", 2);
        expect_near(grads.grad_v, expected_grads.grad_v, name + " v", 2);
      }
}

TEST_P(AttentionOnDevice, ReadsAndWritesViewsOfPackedTensorsWithTheBitsOfDenseOnes) {
  for (const std::int64_t size : {8, 32, 64}) {
    const AttentionCase c = {
        .batch = 2, .heads = 2, .kv_heads = 2, .queries = 21, .keys = 21, .size = size, .causal = true};
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto part = [](const Tensor& x, int which) { return x.select(2, which).transpose(1, 2); };
      const Tensor packed = uniform_tensor(device, {2, 21, 3, 2, size}, 4, dtype);
      AttentionArgs views = args_of(c, {part(packed, 0), part(packed, 1), part(packed, 2), {}, {}});
      views.out = empty(device, {2, 21, 2, size}, dtype).transpose(1, 2);
      views = kernels::attention(views);
      const auto dense = [&](const Tensor& x) { return tensor_of(device, doubles(x), x.shape(), dtype); };
      const AttentionArgs plain =
          kernels::attention(args_of(c, {dense(views.q), dense(views.k), dense(views.v), {}, {}}));
      EXPECT_EQ(doubles(views.out), doubles(plain.out));

      const Tensor grad_out = uniform_tensor(device, {2, 21, 2, size}, 5, dtype).transpose(1, 2);
      const Tensor grad_packed = empty(device, {2, 21, 3, 2, size}, dtype);
      const AttentionBackwardArgs grads = kernels::attention_backward({.forward = views,
                                                                       .grad_out = grad_out,
                                                                       .grad_q = part(grad_packed, 0),
                                                                       .grad_k = part(grad_packed, 1),
                                                                       .grad_v = part(grad_packed, 2)});
      const AttentionBackwardArgs plain_grads = backward_of(plain, dense(grad_out));
      EXPECT_EQ(doubles(grads.grad_q), doubles(plain_grads.grad_q));
      EXPECT_EQ(doubles(grads.grad_k), doubles(plain_grads.grad_k));
      EXPECT_EQ(doubles(grads.grad_v), doubles(plain_grads.grad_v));
    }
  }
}

TEST_P(AttentionOnDevice, TakesRowsThatAreNotAligned) {
  const AttentionCase c = {.batch = 1, .heads = 1, .queries = 5, .keys = 6, .size = 64, .causal = true};
  for (const DType dtype : kKernelTypes) {
    const AttentionInputs in = inputs_of(device, c, dtype);
    const auto shifted = [&](const Tensor& x) {  // rows begin three elements into rows of 67
      const std::vector<double> values = doubles(x);
      std::vector<double> wider(static_cast<std::size_t>(x.dim(2) * 67), NAN);
      for (std::size_t i = 0; i < values.size(); ++i) wider[i / 64 * 67 + 3 + i % 64] = values[i];
      return tensor_of(device, wider, {1, 1, x.dim(2), 67}, dtype).slice(3, 3, 67);
    };
    const AttentionArgs views = kernels::attention(args_of(c, {shifted(in.q), shifted(in.k), shifted(in.v), {}, {}}));
    const AttentionArgs dense = kernels::attention(args_of(c, in));
    expect_near(views.out, wide(dense.out), concat(dtype), 1);
    const AttentionBackwardArgs grads = backward_of(views, in.grad_out), plain = backward_of(dense, in.grad_out);
    expect_near(grads.grad_q, wide(plain.grad_q), concat(dtype), 2);
    expect_near(grads.grad_k, wide(plain.grad_k), concat(dtype), 2);
    expect_near(grads.grad_v, wide(plain.grad_v), concat(dtype), 2);
  }
}

// What the contract calls deterministic: the order of blocks and threads leaves no trace in the bits.
TEST_P(AttentionOnDevice, GivesTheSameBitsInEveryOrderAndAgain) {
#ifdef KEEL_EMULATED
  const std::int64_t time = 70;
#else
  const std::int64_t time = 512;  // a library may take it, too
#endif
  const AttentionCase c = {
      .batch = 1, .heads = 2, .kv_heads = 1, .queries = time, .keys = time, .size = 64, .causal = true};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto run = [&](const Context& where) {
      const AttentionInputs in = inputs_of(where, c, dtype);
      const AttentionBackwardArgs grads = backward_of(kernels::attention(args_of(c, in)), in.grad_out);
      std::vector<std::vector<double>> all;
      for (const Tensor& x : {grads.forward.out, grads.forward.lse, grads.grad_q, grads.grad_k, grads.grad_v})
        all.push_back(doubles(x));
      return all;
    };
    for (const Context& where : contexts(device)) {
      const auto once = run(where);
      EXPECT_EQ(run(where), once) << dtype;
    }
#ifdef KEEL_EMULATED
    const auto once = run(device);
    for (const Order order : test_orders()) {
      emulation::grid_options().blocks = emulation::grid_options().threads = static_cast<emulation::Order>(order);
      EXPECT_EQ(run(device), once) << dtype;
    }
#endif
  }
}

TEST_P(AttentionOnDevice, IgnoresWhatLiesInPaddedKeys) {
  for (const std::int64_t size : {8, 32, 64})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const AttentionCase c = {.batch = 1, .heads = 1, .queries = 5, .keys = 20, .size = size, .lengths = {11}};
      const AttentionInputs in = inputs_of(device, c, dtype);
      std::vector<double> k = doubles(in.k), v = doubles(in.v);
      for (std::size_t i = 11 * static_cast<std::size_t>(size); i < k.size(); ++i) k[i] = v[i] = NAN;
      const AttentionInputs dirty = {in.q, tensor_of(device, k, in.k.shape(), dtype),
                                     tensor_of(device, v, in.v.shape(), dtype), in.grad_out, in.lengths};
      const AttentionBackwardArgs a = backward_of(kernels::attention(args_of(c, in)), in.grad_out);
      const AttentionBackwardArgs b = backward_of(kernels::attention(args_of(c, dirty)), in.grad_out);
      EXPECT_EQ(doubles(a.forward.out), doubles(b.forward.out));
      EXPECT_EQ(doubles(a.grad_q), doubles(b.grad_q));
      EXPECT_EQ(doubles(a.grad_k), doubles(b.grad_k));
      EXPECT_EQ(doubles(a.grad_v), doubles(b.grad_v));
      const std::vector<double> padding = doubles(a.grad_k.slice(2, 11, 20));
      EXPECT_EQ(padding, std::vector<double>(padding.size(), 0));
    }
}

TEST_P(AttentionOnDevice, CarriesNanToTheQueriesThatSeeItAndToNoOther) {
  for (const std::int64_t size : {8, 32, 64})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const AttentionCase c = {.batch = 1, .heads = 1, .queries = 40, .keys = 40, .size = size, .causal = true};
      AttentionInputs in = inputs_of(device, c, dtype);
      const std::vector<double> clean = doubles(kernels::attention(args_of(c, in)).out);
      for (const bool in_query : {true, false}) {
        AttentionInputs dirty = in;
        Tensor& x = in_query ? dirty.q : dirty.k;
        std::vector<double> values = doubles(x);
        values[static_cast<std::size_t>(35 * size + 1)] = NAN;
        x = tensor_of(device, values, x.shape(), dtype);
        const AttentionArgs result = kernels::attention(args_of(c, dirty));
        const std::vector<double> out = doubles(result.out), lse = doubles(result.lse);
        for (std::size_t i = 0; i < 40; ++i) {
          const bool sees = in_query ? i == 35 : i >= 35;
          EXPECT_EQ(std::isnan(lse[i]), sees) << i;
          for (std::size_t d = 0; d < static_cast<std::size_t>(size); ++d) {
            const std::size_t at = i * static_cast<std::size_t>(size) + d;
            if (sees) EXPECT_TRUE(std::isnan(out[at])) << i;
            else EXPECT_EQ(out[at], clean[at]) << i;
          }
        }
      }
    }
}

TEST_P(AttentionOnDevice, ClearsWhatALibraryLeavesInPadding) {
  const std::vector<std::int64_t> lengths = {0, 3, 9, -2};
  const AttentionCase c = {
      .batch = 4, .heads = 2, .kv_heads = 1, .queries = 5, .keys = 7, .size = 10, .lengths = lengths};
  for (const DType dtype : kKernelTypes) {
    const AttentionInputs in = inputs_of(device, c, dtype);
    const AttentionArgs args = args_of(c, in);
    const Tensor queries = empty(device, {4}, DType::i32), keys = empty(device, {4}, DType::i32);
    cuda::write_sequence_lengths(args, queries, keys);
    EXPECT_EQ(doubles(queries), (std::vector<double>{5, 5, 5, 5}));
    EXPECT_EQ(doubles(keys), (std::vector<double>{0, 3, 7, 0}));

    std::vector<double> q = doubles(in.q), k = doubles(in.k), sums(4 * 2 * 5, 1);
    const Tensor lse = tensor_of(device, sums, {4, 2, 5});
    cuda::clear_blind_queries(args, in.q, lse);
    cuda::clear_padded_keys(args, in.k);
    for (std::size_t i = 0; i < q.size(); ++i)
      if (i / (2 * 5 * 10) % 3 == 0) q[i] = 0;
    for (std::size_t i = 0; i < k.size(); ++i)
      if (static_cast<std::int64_t>(i / 10 % 7) >= std::max<std::int64_t>(0, lengths[i / (7 * 10)])) k[i] = 0;
    for (std::size_t i = 0; i < sums.size(); ++i)
      if (i / (2 * 5) % 3 == 0) sums[i] = -INFINITY;
    EXPECT_EQ(doubles(in.q), q);
    EXPECT_EQ(doubles(in.k), k);
    EXPECT_EQ(doubles(lse), sums);
  }
}

TEST_P(AttentionOnDevice, TakesNoQueriesAndNoKeys) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const AttentionCase no_keys = {.batch = 1, .heads = 1, .queries = 3, .keys = 0, .size = 64};
    AttentionInputs in = inputs_of(device, no_keys, dtype);
    AttentionBackwardArgs grads = backward_of(kernels::attention(args_of(no_keys, in)), in.grad_out);
    EXPECT_EQ(doubles(grads.forward.out), std::vector<double>(3 * 64, 0));
    EXPECT_EQ(doubles(grads.forward.lse), std::vector<double>(3, -INFINITY));
    EXPECT_EQ(doubles(grads.grad_q), std::vector<double>(3 * 64, 0));
    const AttentionCase no_queries = {.batch = 1, .heads = 1, .queries = 0, .keys = 3, .size = 64};
    in = inputs_of(device, no_queries, dtype);
    grads = backward_of(kernels::attention(args_of(no_queries, in)), in.grad_out);
    EXPECT_EQ(doubles(grads.grad_k), std::vector<double>(3 * 64, 0));
    EXPECT_EQ(doubles(grads.grad_v), std::vector<double>(3 * 64, 0));
  }
}

TEST_P(AttentionOnDevice, SaysWhoseKernelsItRuns) {
  const AttentionCase c = {.queries = 70, .keys = 70, .size = 64, .causal = true};
  const auto backends = [&](const Context& where, DType dtype) {
    const AttentionInputs in = inputs_of(where, c, dtype);
    AttentionBackwardArgs args;
    args.forward = kernels::attention(args_of(c, in));
    args.grad_out = in.grad_out;
    return std::vector<std::string>{kernels::attention_backend(args.forward), kernels::attention_backend(args)};
  };
  EXPECT_EQ(backends(device, DType::bf16), std::vector<std::string>(2, "keel: kernels=plain"));
  EXPECT_EQ(backends(host, DType::bf16), std::vector<std::string>(2, "keel: there are no others on cpu"));
  const Context automatic = Context::create({.device = kTestDevice});
  for (const std::string& backend : backends(automatic, DType::f32)) EXPECT_EQ(backend.rfind("keel: ", 0), 0u);
}

TEST_P(AttentionOnDevice, RefusesByNameWhatItDoesNotDo) {
  const auto message = [&](const auto& change) {
    AttentionCase c = {.batch = 1, .heads = 1, .queries = 2, .keys = 2, .size = 8};
    AttentionArgs args = args_of(c, inputs_of(device, c, DType::f32));
    change(args);
    try {
      kernels::attention(args);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const std::string where = concat(device.device());
  EXPECT_EQ(message([&](AttentionArgs& args) {
              args.q = args.k = args.v = empty(device, {1, 1, 2, 8}, DType::f64);
            }),
            "attention in f64 is not implemented on " + where + "; it takes f32, bf16 and f16");
  EXPECT_EQ(message([&](AttentionArgs& args) {
              args.q = args.k = args.v = empty(device, {1, 1, 2, 300});
            }),
            "attention with head size 300 is not implemented on " + where + "; it takes up to 256");
}

}  // namespace
}  // namespace keel
