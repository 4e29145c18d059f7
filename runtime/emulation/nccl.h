#pragma once
// The part of NCCL's interface that a communicator needs, among threads of one process on emulated devices: same
// names, same meaning, no NCCL needed. One rank a thread; several ranks may share a device.
//
// A call puts an operation into the rank's stream. It happens when the matching calls of all ranks have come to the
// head of their streams, the k-th collective of one rank with the k-th of the others, the k-th send to a rank with its
// k-th receive. What NCCL answers by hanging, or by wrong numbers, is an error here that names the ranks: calls that do
// not match, a rank that never calls, memory of another device or too little of it. It comes to light at a wait for the
// stream, and in ncclCommGetAsyncError.
//
// Sums go in rank order, rounded to the type at every addition, as in a ring; avg multiplies floating-point numbers by
// 1/n before it adds them up; min and max ignore NaN beside a number.
//
// A communicator may be one that does not block. What it is asked for is then in progress until ncclCommGetAsyncError
// was asked a number of times (MachineOptions::nccl_questions), and only then in the stream; nothing else may be asked
// of it before.
//
// More lenient than NCCL: two ranks on one device, and an abort that wakes the other ranks too (their own work fails;
// on GPUs each rank must abort for itself), unless MachineOptions say otherwise. Stricter: calls cannot be captured in
// a graph, and an abort while another thread is inside a call with the communicator is refused, where NCCL would free
// what that thread uses.

#include <climits>
#include <cstddef>

#include "keel/runtime/emulation/cudart.h"

// NOLINTBEGIN(readability-identifier-naming): the names are NCCL's
using ncclComm_t = struct ncclComm*;

inline constexpr int NCCL_UNIQUE_ID_BYTES = 128;
struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

enum ncclRedOp_t { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };

enum ncclDataType_t {
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
};

inline constexpr int NCCL_CONFIG_UNDEF_INT = INT_MIN;
inline constexpr int NCCL_SPLIT_NOCOLOR = -1;

struct ncclConfig_t {
  int blocking = NCCL_CONFIG_UNDEF_INT;  // 0: calls answer ncclInProgress rather than wait for other ranks
};
#define NCCL_CONFIG_INITIALIZER \
  {}

const char* ncclGetErrorString(ncclResult_t result);
// Of the communicator, when one is given and has failed; else of the calling thread's last refused call.
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGetVersion(int* version);

ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
// Waits for the other ranks, inside a group at its end.
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
// The handle of one that does not block is there at once.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
// The ranks of one color form a communicator, ordered by key, then by their old rank; null with NCCL_SPLIT_NOCOLOR.
// Without a config it blocks or not as `comm` does, and where that does not, the part is null until `comm` has
// succeeded.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);  // this rank's work ends, and there is no more
ncclResult_t ncclCommDestroy(ncclComm_t comm);   // after this rank's work
// This rank's operations end without having happened, whether they wait or not.
ncclResult_t ncclCommAbort(ncclComm_t comm);
// ncclInProgress while a call goes on. Goes on with it.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclCommCount(ncclComm_t comm, int* count);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank);
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device);

// Memory that suits NCCL best: here as any other.
ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes);
ncclResult_t ncclMemFree(void* memory);

// Counts are elements: of all_reduce, broadcast and reduce what each buffer holds, of reduce_scatter what a rank
// receives, of all_gather what it sends.
ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t receive_count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t send_count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);

// The calls of a group are one operation of each stream, whose parts wait for nothing but their own partners. A call
// that is refused inside a group undoes the group; ncclGroupEnd answers the same.
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
// NOLINTEND(readability-identifier-naming)
