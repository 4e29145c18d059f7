#pragma once
// NCCL's names, from its own header or from the emulator's, and its answers as exceptions.

#ifdef KEEL_EMULATED
#include "keel/runtime/emulation/nccl.h"
#else
#include <nccl.h>
#endif

#include "keel/runtime/error.h"

namespace keel::cuda {

// "unhandled system error; Connection refused": the communicator's, or the latest of this process without one.
inline std::string text_of(ncclResult_t result, ncclComm_t comm = nullptr) {
  const char* const detail = ncclGetLastError(comm);
  const bool is_told = detail != nullptr && *detail != 0;
  return concat(ncclGetErrorString(result), is_told ? "; " : "", is_told ? detail : "");
}

// Throws an Error that names `what` unless the call succeeded, or goes on in the background.
inline void check_nccl(ncclResult_t result, const char* what, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess || result == ncclInProgress) [[likely]]
    return;
  const bool of_peer = result == ncclRemoteError || result == ncclSystemError;
  throw Error(concat(what, ": ", text_of(result, comm)), of_peer ? ErrorKind::peer : ErrorKind::internal);
}

// Whether what is asked of the stream is recorded for a graph.
inline bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

}  // namespace keel::cuda
