#pragma once
// NCCL's names, from its own header or from the emulator's, and its answers as exceptions.

#ifdef KEEL_EMULATED
#include "keel/runtime/emulation/nccl.h"
#else
#include <nccl.h>
#endif

#include "keel/runtime/error.h"

namespace keel::cuda {

// Throws an Error that names `what` unless the call succeeded.
inline void check_nccl(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) [[likely]]
    return;
  const char* const detail = ncclGetLastError(nullptr);
  const bool of_peer = result == ncclRemoteError || result == ncclSystemError;
  throw Error(concat(what, ": ", ncclGetErrorString(result), detail == nullptr || *detail == 0 ? "" : "; ",
                     detail == nullptr ? "" : detail),
              of_peer ? ErrorKind::peer : ErrorKind::internal);
}

// Whether what is asked of the stream is recorded for a graph.
inline bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

// The calls between begin and end() are one operation of the stream. Ended without them where one throws.
class NcclCalls {
 public:
  NcclCalls() { check_nccl(ncclGroupStart(), "ncclGroupStart"); }
  ~NcclCalls() {
    if (open_) ncclGroupEnd();
  }
  NcclCalls(const NcclCalls&) = delete;
  NcclCalls& operator=(const NcclCalls&) = delete;
  void end() {
    open_ = false;
    check_nccl(ncclGroupEnd(), "ncclGroupEnd");
  }

 private:
  bool open_ = true;
};

}  // namespace keel::cuda
