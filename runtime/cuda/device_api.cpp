// A GPU as a device, through CUDA's runtime library; the emulator's library has the same names.

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "keel/runtime/cuda/launch.h"
#include "keel/runtime/processor_api.h"

#if defined(KEEL_EMULATED) && defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace keel {
namespace {

using cuda::check;

#ifdef KEEL_EMULATED
constexpr DeviceType kType = DeviceType::emulated;
constexpr const char* kMissing = "this build emulates GPUs and drives none: configure one with -DKEEL_CUDA=ON";
#else
constexpr DeviceType kType = DeviceType::cuda;
constexpr const char* kMissing = "this build drives GPUs and emulates none: configure one with -DKEEL_CUDA=EMULATED";
#endif

cudaStream_t stream_of(NativeStream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(NativeEvent event) { return static_cast<cudaEvent_t>(event); }

// The memory that `call` gives; null when it says that there is no more.
void* unless_full(cudaError_t (*call)(void**, std::size_t), const char* name, std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = call(&memory, bytes);
  if (error == cudaSuccess) return memory;
  cudaGetLastError();  // else the next call would report it again
  if (error != cudaErrorMemoryAllocation) check(error, name);
  return nullptr;
}

class CudaApi final : public DeviceApi {
 public:
  explicit CudaApi(int index) : index_(index) {
    make_current();
    check(cudaMallocHost(reinterpret_cast<void**>(&fault_), sizeof(Fault)), "cudaMallocHost");
    *fault_ = {};
  }
  ~CudaApi() override { cudaFreeHost(fault_); }

  void make_current() const override { check(cudaSetDevice(index_), "cudaSetDevice"); }

  void* allocate(std::size_t bytes) override {
    make_current();
    return unless_full(cudaMalloc, "cudaMalloc", bytes);
  }
  void release(void* memory) noexcept override {
    cudaSetDevice(index_);
    cudaFree(memory);
  }
  DeviceMemory memory() const override {
    make_current();
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
  }
  // Not its number: each process may see other devices, and counts those that it sees.
  std::string identity() const override {
#ifdef KEEL_EMULATED
    return std::to_string(index_);
#else
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, index_), "cudaGetDeviceProperties");
    return {properties.uuid.bytes, sizeof properties.uuid.bytes};
#endif
  }
  std::string free_memory() const override {
    const DeviceMemory now = memory();
    return concat("; ", now.free, " bytes of ", now.total, " are free on the device");
  }

  // In the order of the stream: the host runs ahead of it. In the emulator fresh memory holds NaN, so that a kernel
  // which reads what nobody wrote is found out.
  void allow_access([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes,
                    [[maybe_unused]] std::size_t block_bytes, [[maybe_unused]] NativeStream stream) noexcept override {
#ifdef KEEL_EMULATED
#ifndef __SANITIZE_ADDRESS__
    if (bytes == 0) return;
#endif
    auto& machine = emulation::Machine::get();
    const auto open = [=] {
#ifdef __SANITIZE_ADDRESS__
      __asan_poison_memory_region(block, block_bytes);
      __asan_unpoison_memory_region(block, bytes);
#endif
      std::memset(block, 0xff, bytes);
    };
    machine.enqueue(stream != nullptr ? stream_of(stream) : machine.default_stream(index_), {.run = open});
#endif
  }

  void copy(void* to, const void* from, std::size_t bytes, NativeStream stream) override {
    make_current();
    check_work(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)));
  }
  void set_bytes(void* memory, int value, std::size_t bytes, NativeStream stream) override {
    make_current();
    check(cudaMemsetAsync(memory, value, bytes, stream_of(stream)), "cudaMemsetAsync");
  }

  NativeStream create_stream(bool urgent) override {
    make_current();
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest : least),
          "cudaStreamCreateWithPriority");
    return stream;
  }
  void destroy_stream(NativeStream stream) noexcept override {
    cudaSetDevice(index_);
    cudaStreamSynchronize(stream_of(stream));
    cudaStreamDestroy(stream_of(stream));
  }
  void synchronize(NativeStream stream) override {
    make_current();
    check_work(cudaStreamSynchronize(stream_of(stream)));
  }
  NativeEvent record(NativeStream stream) override { return record_event(stream, cudaEventDisableTiming); }
  void destroy_event(NativeEvent event) noexcept override { cudaEventDestroy(event_of(event)); }
  void wait(NativeStream stream, NativeEvent event) override {
    make_current();
    check(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0), "cudaStreamWaitEvent");
  }
  void synchronize_event(NativeEvent event) override {
    make_current();
    check_work(cudaEventSynchronize(event_of(event)));
  }
  bool has_passed(NativeEvent event) override {
    const cudaError_t error = cudaEventQuery(event_of(event));
    if (error == cudaSuccess) return true;
    cudaGetLastError();  // "not ready" is no error that a later call should find
    if (error != cudaErrorNotReady) check_work(error);
    return false;
  }
  NativeEvent record_time(NativeStream stream) override { return record_event(stream, cudaEventDefault); }
  double milliseconds_between(NativeEvent begin, NativeEvent end) override {
    float time = 0;
    check(cudaEventElapsedTime(&time, event_of(begin), event_of(end)), "cudaEventElapsedTime");
    return time;
  }

  void begin_capture(NativeStream stream) override {
    make_current();
    check(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  }
  NativeGraph end_capture(NativeStream stream) override {
    make_current();
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream_of(stream), &graph), "cudaStreamEndCapture");
    cudaGraphExec_t executable = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    check(error, "cudaGraphInstantiate");
    return executable;
  }
  void launch_graph(NativeGraph graph, NativeStream stream) override {
    make_current();
    check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream)), "cudaGraphLaunch");
  }
  void destroy_graph(NativeGraph graph) noexcept override { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); }

  Fault* fault() override { return fault_; }

 private:
  NativeEvent record_event(NativeStream stream, unsigned flags) const {
    make_current();
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
    const cudaError_t error = cudaEventRecord(event, stream_of(stream));
    if (error != cudaSuccess) cudaEventDestroy(event);
    check(error, "cudaEventRecord");
    return event;
  }
  // For calls that may tell of what was queued before them.
  void check_work(cudaError_t error) const {
    if (error == cudaSuccess) return;
    throw Error(concat("work on ", Device{kType, index_}, ": ", cuda::text_of(error)), ErrorKind::internal);
  }

  int index_;
  Fault* fault_ = nullptr;
};

// Host memory that the GPU can reach by itself; the rest is the processor's.
class PinnedApi final : public ProcessorApi {
 public:
  explicit PinnedApi(int index) : index_(index) {}
  void* allocate(std::size_t bytes) override {
    check(cudaSetDevice(index_), "cudaSetDevice");
    return unless_full(cudaMallocHost, "cudaMallocHost", bytes);
  }
  // Waits for the device, whose copies may be on their way to the memory, also where it has failed.
  void release(void* memory) noexcept override {
    cudaSetDevice(index_);
    cudaDeviceSynchronize();
    cudaFreeHost(memory);
  }
  std::string free_memory() const override { return "; this was pinned memory of the host"; }

 private:
  int index_;
};

}  // namespace

#ifndef KEEL_EMULATED
void cuda::allow_shared_memory(const void* kernel, std::size_t bytes, const char* name) {
  static std::mutex mutex;  // what a kernel may ask for is kept by CUDA, for the whole process
  static std::map<std::pair<const void*, int>, std::size_t> allowed;  // by kernel and device
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  std::size_t& most = allowed[{kernel, device}];
  if (bytes <= most) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)), name);
  most = bytes;
}
#endif

DeviceCount count_devices(DeviceType type) {
  if (type == DeviceType::cpu) return {1};
  if (type != kType) return {0, kMissing};
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return {count};
  cudaGetLastError();
  return {0, error == cudaSuccess ? "CUDA finds no GPU" : concat("CUDA says: ", cudaGetErrorString(error))};
}

std::shared_ptr<DeviceApi> open_device(Device device) {
  if (device.type == DeviceType::cpu && device.index == 0) return processor_api();
  const DeviceCount found = count_devices(device.type);
  if (found.count == 0)
    throw Error(concat("device ", device, " is not there: ", found.why_none), ErrorKind::unsupported);
  if (device.index >= found.count)
    throw Error(concat("device ", device, " is not there: the highest number is ", found.count - 1),
                ErrorKind::unsupported);
  return std::make_shared<CudaApi>(device.index);
}

std::shared_ptr<DeviceApi> pinned_api(Device device) {
  if (device.type == DeviceType::cpu) return processor_api();
  return std::make_shared<PinnedApi>(device.index);
}

std::string describe_device(Device device) {
  if (device.type != kType) return to_string(device);
#ifdef KEEL_EMULATED
  return "CUDA kernels run by the processor, for tests: no figure from it is one of a GPU";
#else
  cudaDeviceProp properties{};
  int driver = 0;
  check(cudaGetDeviceProperties(&properties, device.index), "cudaGetDeviceProperties");
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  return fmt::format("{}, {:.0f} GiB, compute capability {}.{}, driver for CUDA {}.{}", properties.name,
                     static_cast<double>(properties.totalGlobalMem) / (1 << 30), properties.major, properties.minor,
                     driver / 1000, driver % 1000 / 10);
#endif
}

}  // namespace keel
