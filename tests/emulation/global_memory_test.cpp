// Global memory under AddressSanitizer: what a kernel touches beyond an array ends the test, with the kernel's name.

#include <gtest/gtest.h>

#include "keel/runtime/cuda/launch.h"
#include "keel/runtime/tensor.h"

namespace keel::emulation {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// At namespace scope, not inlined: their names are to be seen in the sanitizer's report.
__attribute__((noinline)) void write_at(float* x, std::int64_t i) { x[i] = 1; }
__attribute__((noinline)) float read_at(const float* x, std::int64_t i) { return x[i]; }
__global__ void write_element(float* x, std::int64_t i) { write_at(x, i); }
__global__ void copy_element(const float* x, std::int64_t i, float* to) { *to = read_at(x, i); }

class EmulatedGlobalMemoryDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kSanitized) GTEST_SKIP() << "this build has no AddressSanitizer";
    Machine::get().reset({});
    ContextOptions options;
    options.device = {DeviceType::emulated, 0};
    device = Context::create(options);
  }
  void write(const Tensor& x, std::int64_t i) const {
    cuda::launch("write_element", write_element, {}, static_cast<cudaStream_t>(device.stream().native()),
                 x.data<float>(), i);
    device.synchronize();
  }

  Context device;
};

TEST_F(EmulatedGlobalMemoryDeathTest, AnAccessBeyondAnArrayOfTheDeviceIsReported) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 64 * sizeof(float)), cudaSuccess);
  auto* x = static_cast<float*>(memory);
  cuda::launch("write_element", write_element, {}, nullptr, x, 63);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_DEATH(
      {
        cuda::launch("write_element", write_element, {}, nullptr, x, 64);
        cudaDeviceSynchronize();
      },
      "heap-buffer-overflow(.|\n)*write_at");
  EXPECT_DEATH(
      {
        cuda::launch("copy_element", copy_element, {}, nullptr, x, -1, x);
        cudaDeviceSynchronize();
      },
      "heap-buffer-overflow(.|\n)*read_at");
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(EmulatedGlobalMemoryDeathTest, AnAccessBeyondATensorIsReportedThoughItsBlockIsLarger) {
  const Tensor x = empty(device, {5});
  write(x, 4);
  EXPECT_DEATH(write(x, 5), "use-after-poison(.|\n)*write_at");
}

TEST_F(EmulatedGlobalMemoryDeathTest, AnAccessToATensorThatIsGoneIsReportedInTheOrderOfTheStream) {
  Tensor x = empty(device, {5});
  float* memory = x.data<float>();
  const auto stream = static_cast<cudaStream_t>(device.stream().native());
  cuda::launch("write_element", write_element, {}, stream, memory, 0);  // asked for before: right
  x = Tensor();
  device.synchronize();
  EXPECT_DEATH(
      {
        cuda::launch("write_element", write_element, {}, stream, memory, 0);
        device.synchronize();
      },
      "use-after-poison(.|\n)*write_at");
}

}  // namespace
}  // namespace keel::emulation
