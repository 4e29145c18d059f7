// Whether cuDNN has plans for keel's attention graphs, on devices that are only described, and when it runs them.
//
// Plans are compiled, so that the CUDA driver's library must be there; a GPU need not. The toolkit's stub of it, found
// as libcuda.so.1, is enough for engines to be found and compiled, though not for their workspace to be asked.

#ifdef KEEL_HAVE_CUDNN

#include "keel/kernels/cuda/cudnn_attention.h"

#include "keel/kernels/cuda/workspace_limit.h"
#include "tests/cuda/device.h"

namespace keel::cuda::cudnn {
namespace {

struct Described {
  const char* name;
  int capability, multiprocessors, shared_bytes;
};

std::ostream& operator<<(std::ostream& out, const Described& device) { return out << device.name; }

// Device properties as cuDNN writes them.
std::string properties(const Described& device) {
  return concat(R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)",
                R"("multiProcessorCount":)", device.multiprocessors,
                R"(,"warpSize":32,"maxSharedMemoryPerBlock":49152,)", R"("maxSharedMemoryPerBlockOptin":)",
                device.shared_bytes, R"(,"reservedSharedMemoryPerBlock":1024,)",
                R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,)",
                R"("pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":85000000000,)",
                R"("smClockRateKHz":1980000,"memClockRateKHz":2619000,"l2CacheSize":52428800,"cudaDeviceId":0,)",
                R"("deviceVer":)", device.capability, R"(,"driverVer":13000,"deviceName":")", device.name, R"("})");
}

// Packed q, k, v and their gradients.
AttentionCase packed(bool backward, std::int64_t kv_heads, std::int64_t time, std::int64_t size) {
  AttentionCase c;
  c.backward = backward;
  c.batch = 2;
  c.heads = 12;
  c.kv_heads = kv_heads;
  c.queries = c.keys = time;
  c.size = size;
  const std::int64_t row = (c.heads + 2 * kv_heads) * size;
  c.q = c.k = c.v = c.grad_q = c.grad_k = c.grad_v = {time * row, size, row, 1};
  c.out = c.grad_out = {time * c.heads * size, size, c.heads * size, 1};
  c.scale = 0.125f;
  c.causal = true;
  return c;
}

class CudnnPlans : public ::testing::TestWithParam<Described> {
 protected:
  void SetUp() override {
    if (cudnnGetVersion() < 91100 || CUDNN_VERSION < 90800)
      GTEST_SKIP() << "cuDNN " << cudnnGetVersion() << " plans only for devices that it has";
  }
  // The bytes of workspace of the plan, or -1 where this machine cannot compile plans; 0 where all that failed is to
  // load them by a stub of the driver.
  std::int64_t workspace_of(const AttentionCase& which) {
    try {
      return plan_attention(which, Target::described(properties(GetParam()))).plan->workspace_bytes();
    } catch (const Error& error) {
      const std::string_view reason = error.what();
      if (reason.find("cuLibraryLoadData returned error  (34)") != reason.npos) return 0;
      if (reason.find("libcuda") != reason.npos) return -1;
      throw;
    }
  }
};

TEST(CudnnCases, HaveNoCausalMaskWhereItHidesNothing) {
  AttentionArgs args;
  args.q = args.k = args.v = args.out = empty(testing::context(), {1, 2, 64, 8}, DType::bf16);
  args.causal = true;
  const auto is_causal = [&](std::int64_t q_offset) {
    args.q_offset = q_offset;
    return AttentionCase(args).causal;
  };
  EXPECT_TRUE(is_causal(0));
  EXPECT_TRUE(is_causal(63));
  EXPECT_FALSE(is_causal(64));
  EXPECT_FALSE(is_causal(std::int64_t{1} << 32));
}

TEST_P(CudnnPlans, ExistForEveryMaskAndBothDirections) {
  for (const bool backward : {false, true}) {
    AttentionCase plain = packed(backward, 12, 1024, 64), full = packed(backward, 12, 1000, 128),
                  grouped = packed(backward, 4, 1024, 64), later = packed(backward, 12, 1024, 64);
    full.causal = false;
    grouped.padded = true;
    later.keys = 1088;
    later.q_offset = 64;
    if (workspace_of(plain) < 0) GTEST_SKIP() << "the CUDA driver's library (libcuda.so.1) is not there";
    for (const AttentionCase& which : {plain, full, grouped, later}) EXPECT_GE(workspace_of(which), 0);
  }
}

// Packed queries, keys and values, out and their gradients, of which none was computed.
AttentionBackwardArgs attention_of(const Context& context, std::int64_t batch, std::int64_t heads, std::int64_t time) {
  const auto part = [](const Tensor& packed, int i) { return packed.select(2, i).transpose(1, 2); };
  const auto numbers = [&](const Dims& shape, std::uint64_t seed) {  // the same in each sequence and head
    const Tensor x = empty(context, shape, DType::bf16);
    kernels::copy_into(x.transpose(1, -2), testing::uniform_tensor(context, {time, 64}, seed, DType::bf16));
    return x;
  };
  const Tensor x = numbers({batch, time, 3, heads, 64}, 1), grad = empty_like(x);
  AttentionBackwardArgs args;
  args.forward.q = part(x, 0), args.forward.k = part(x, 1), args.forward.v = part(x, 2);
  args.forward.out = empty(context, {batch, time, heads, 64}, DType::bf16).transpose(1, 2);
  args.forward.lse = empty(context, {batch, heads, time});
  args.forward.causal = true;
  args.grad_out = numbers({batch, time, heads, 64}, 2).transpose(1, 2);
  args.grad_q = part(grad, 0), args.grad_k = part(grad, 1), args.grad_v = part(grad, 2);
  return args;
}

class CudnnOnDevice : public testing::OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped()) return;
    automatic = Context::create({.device = testing::kTestDevice,
                                 .log = [this](LogLevel, std::string_view line) { log.append(line).append("\n"); }});
  }
  std::string log;
  Context automatic;
};

TEST_P(CudnnOnDevice, DoesTheBackwardPassOfLongSequences) {
  constexpr std::int64_t kBatch = 3, kHeads = 32, kTime = 4096, kPairs = kBatch * kHeads * kTime * kTime;
  if (workspace_limit(automatic) < 3 * kPairs)
    GTEST_SKIP() << "a workspace may have " << workspace_limit(automatic) << " bytes here, and this test wants "
                 << 3 * kPairs;
  const AttentionBackwardArgs args = attention_of(automatic, kBatch, kHeads, kTime),
                              own = attention_of(device, kBatch, kHeads, kTime);
  for (const AttentionBackwardArgs& each : {args, own}) {
    kernels::attention(each.forward);
    kernels::attention_backward(each);
  }
  EXPECT_EQ(kernels::attention_backend(own), "keel: kernels=plain");
  EXPECT_EQ(kernels::attention_backend(args).rfind("cuDNN ", 0), 0u) << kernels::attention_backend(args);
  const auto last = [](const Tensor& x) { return testing::doubles(x.select(0, kBatch - 1).select(0, kHeads - 1)); };
  EXPECT_LT(testing::relative_error(last(args.grad_q), last(own.grad_q)), 3e-2);
  EXPECT_LT(testing::relative_error(last(args.grad_k), last(own.grad_k)), 3e-2);
  EXPECT_LT(testing::relative_error(last(args.grad_v), last(own.grad_v)), 3e-2);
}

TEST_P(CudnnOnDevice, GivesWayAndSaysSoWhereItWouldTakeTheRunsMemory) {
  const AttentionBackwardArgs args = attention_of(automatic, 1, 8, 65536);  // 64 GiB for its pairs
  const std::string backend = kernels::attention_backend(args);
  if (workspace_limit(automatic) > std::int64_t{64} << 30)
    GTEST_SKIP() << "this device has room for 64 GiB of workspace";
  EXPECT_EQ(backend.rfind("keel: ", 0), 0u) << backend;
  EXPECT_NE(log.find("attention backward (batch 1, heads 8/8, queries 65536, keys 65536, head size 64): keel's own "
                     "kernels instead of cuDNN's; " +
                     backend.substr(6)),
            log.npos)
      << log;
}

INSTANTIATE_TEST_SUITE_P(, CudnnOnDevice, ::testing::ValuesIn(testing::test_orders()),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

INSTANTIATE_TEST_SUITE_P(, CudnnPlans,
                         ::testing::Values(Described{"A100", 800, 108, 166912}, Described{"H100", 900, 132, 232448}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace keel::cuda::cudnn

#endif
