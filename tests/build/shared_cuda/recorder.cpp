// Stands before CUDA's runtime library, where there is no GPU: knows the kernels that were registered with it, and how
// much shared memory each may ask for. It is loaded in front of a program, so it sees the calls of a runtime library
// that is shared, and none of one that was linked into another library.

#include <cuda_runtime.h>

#include <map>

namespace {

constexpr std::size_t kUsual = 48 << 10;
std::map<const void*, std::size_t>& kernels() {
  static std::map<const void*, std::size_t> all;  // and the shared memory that each may have
  return all;
}
void* binary = nullptr;

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) { return &binary; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void**, const char* kernel, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*) {
  kernels()[kernel] = kUsual;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const auto known = kernels().find(kernel);
  if (known == kernels().end()) return cudaErrorInvalidDeviceFunction;
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) known->second = static_cast<std::size_t>(value);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, std::size_t shared_bytes, cudaStream_t) {
  const auto known = kernels().find(kernel);
  if (known == kernels().end()) return cudaErrorInvalidDeviceFunction;
  return shared_bytes <= known->second ? cudaSuccess : cudaErrorInvalidValue;
}
}
