#include "keel/runtime/emulation/nccl.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "keel/runtime/emulation/communicator.h"
#include "keel/runtime/error.h"

using namespace keel::emulation;
using keel::concat;

namespace {

thread_local std::string last_refusal;

ncclResult_t refuse(ncclResult_t result, std::string why) {
  last_refusal = std::move(why);
  return result;
}

// The calls between ncclGroupStart and ncclGroupEnd.
struct Group {
  struct Queued {
    ncclComm_t comm;
    Call call;
    cudaStream_t stream;
  };
  int depth = 0;
  ncclResult_t result = ncclSuccess;
  std::vector<Queued> calls = {};
  std::vector<std::function<ncclResult_t()>> waits = {};  // of communicators that are being formed
};
thread_local Group group;

ncclResult_t grouped(ncclResult_t result) {
  if (group.depth > 0 && group.result == ncclSuccess) group.result = result;
  return result;
}

ncclResult_t unknown_comm() {
  return refuse(ncclInvalidArgument, "not a communicator, or one that was destroyed or aborted");
}

// Now, or at the end of the group.
ncclResult_t wait_later(std::function<ncclResult_t()> wait) {
  if (group.depth == 0) return wait();
  group.waits.push_back(std::move(wait));
  return ncclSuccess;
}

// Why the rank cannot make this call, or "".
std::string fault_of(const ncclComm& comm, const Call& call, cudaStream_t stream) {
  const int ranks = comm.clique->size();
  if (size_of(call.type) == 0) return concat("type ", static_cast<int>(call.type), " is not offered");
  if (call.op < ncclSum || call.op > ncclAvg) return concat("there is no operator ", static_cast<int>(call.op));
  const bool names_rank =
      call.kind != CallKind::all_reduce && call.kind != CallKind::reduce_scatter && call.kind != CallKind::all_gather;
  if (names_rank && (call.peer < 0 || call.peer >= ranks)) return concat("there is no rank ", call.peer, " of ", ranks);
  if (stream != nullptr && stream->device != comm.device)
    return concat("the stream belongs to emulated:", stream->device, ", the rank to emulated:", comm.device);

  Machine& machine = Machine::get();
  const auto fault_of_memory = [&](const char* name, const void* memory, std::size_t bytes) -> std::string {
    const int device = machine.device_of(memory);
    const std::size_t held = machine.bytes_behind(memory);
    if (bytes == 0 || (held >= bytes && (device < 0 || device == comm.device))) return {};
    const std::string buffer = concat(to_string(call), ": its ", name, " buffer ");
    if (held == 0) return buffer + "is neither memory of a device nor pinned";
    if (held < bytes) return concat(buffer, "holds ", held, " bytes of ", bytes);
    return concat(buffer, "is memory of emulated:", device, ", the rank's device is emulated:", comm.device);
  };
  const std::size_t sent = bytes_sent(call, comm.rank, ranks), received = bytes_received(call, comm.rank, ranks);
  if (std::string fault = fault_of_memory("send", call.send, sent); !fault.empty()) return fault;
  if (std::string fault = fault_of_memory("receive", call.receive, received); !fault.empty()) return fault;
  if (sent == 0 || received == 0) return {};

  const auto* from = static_cast<const std::byte*>(call.send);
  const auto* to = static_cast<const std::byte*>(call.receive);
  const std::size_t part = static_cast<std::size_t>(comm.rank) * call.count * size_of(call.type);
  const bool in_place = call.kind == CallKind::reduce_scatter ? to == from + part
                        : call.kind == CallKind::all_gather   ? from == to + part
                                                              : from == to;
  if (!in_place && from < to + received && to < from + sent)
    return concat(to_string(call), ": its buffers overlap, and not as a call in place would have them");
  return {};
}

// One operation of the rank's stream; its calls were added.
void enqueue(ncclComm_t comm, const std::shared_ptr<Launch>& launch, cudaStream_t stream) {
  std::erase_if(comm->launches, [](const auto& known) { return known.first.expired(); });
  comm->launches.emplace_back(launch, launch->place());
  CUstream_st* queue = stream != nullptr ? stream : Machine::get().default_stream(comm->device);
  Machine::get().enqueue(queue, {.run = [run = launch.get()] { run->run(); }, .gate = launch}, launch->place().get());
}

ncclResult_t submit(ncclComm_t comm, const Call& call, cudaStream_t stream) {
  if (!is_known(comm)) return grouped(unknown_comm());
  {
    const std::lock_guard lock(comm->clique->mutex());
    if (comm->clique->error() != ncclSuccess) return grouped(refuse(comm->clique->error(), comm->clique->failure()));
  }
  const auto whose = [&] { return concat("rank ", comm->rank, " of ", comm->clique->size(), ": "); };
  if (const std::string fault = fault_of(*comm, call, stream); !fault.empty())
    return grouped(refuse(ncclInvalidArgument, whose() + fault));
  if (stream != nullptr && Machine::get().capture_status(stream) != cudaStreamCaptureStatusNone)
    return grouped(refuse(ncclInvalidUsage, whose() + "the emulator does not capture collectives in graphs"));
  if (group.depth > 0) {
    group.calls.push_back({comm, call, stream});
    return ncclSuccess;
  }
  const auto launch = std::make_shared<Launch>(comm->clique, comm->rank);
  launch->add(call);
  enqueue(comm, launch, stream);
  return ncclSuccess;
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
  thread_local std::string text;
  text = last_refusal;
  if (comm != nullptr && is_known(comm)) {
    const std::lock_guard lock(comm->clique->mutex());
    if (comm->clique->error() != ncclSuccess) text = comm->clique->failure();
  }
  return text.c_str();
}

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;  // 2.28.9, whose interface this is
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::string name = new_id();
  *id = {};
  std::copy(name.begin(), name.end(), id->internal);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  *comm = nullptr;
  id.internal[NCCL_UNIQUE_ID_BYTES - 1] = 0;
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return grouped(refuse(ncclInvalidArgument, concat("there is no rank ", rank, " of ", ranks)));
  const std::shared_ptr<Gathering> gathering = gather(id.internal, ranks, rank);
  if (gathering == nullptr)
    return grouped(refuse(ncclInvalidArgument, "ncclGetUniqueId did not give this id, or it was used before"));
  int device = 0;
  cudaGetDevice(&device);
  return wait_later([=] {
    const std::string failure = wait_for_all(*gathering, "ncclCommInitRank");
    if (!failure.empty()) return refuse(ncclSystemError, failure);
    *comm = new_comm(gathering->ranks[static_cast<std::size_t>(rank)].clique, rank, device);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
  *part = nullptr;
  if (!is_known(comm)) return grouped(unknown_comm());
  if (config != nullptr && config->blocking == 0)
    return grouped(refuse(ncclInvalidUsage, "the emulator has no communicators that do not block"));
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
    return grouped(refuse(ncclInvalidArgument, concat("a color is 0 or more, or NCCL_SPLIT_NOCOLOR; not ", color)));
  const std::shared_ptr<Gathering> gathering = gather_to_split(*comm, color, key);
  if (gathering == nullptr)
    return grouped(refuse(ncclInvalidUsage, concat("rank ", comm->rank, " splits its communicator twice at once")));
  return wait_later([=] {
    const std::string failure = wait_for_all(*gathering, "ncclCommSplit");
    if (!failure.empty()) return refuse(ncclSystemError, failure);
    const Gathering::Rank& own = gathering->ranks[static_cast<std::size_t>(comm->rank)];
    if (own.clique != nullptr) *part = new_comm(own.clique, own.rank, comm->device);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!is_known(comm)) return unknown_comm();
  for (const auto& [launch, place] : comm->launches)
    if (!launch.expired()) Machine::get().wait_for(place->stream, place->position + 1);
  forget(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!is_known(comm)) return unknown_comm();
  {
    const std::lock_guard lock(comm->clique->mutex());
    comm->clique->cancel(comm->rank);
  }
  forget(comm);
  Machine::get().wake();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (!is_known(comm)) return unknown_comm();
  const std::lock_guard lock(comm->clique->mutex());
  *error = comm->clique->error();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  if (!is_known(comm)) return unknown_comm();
  *count = comm->clique->size();
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  if (!is_known(comm)) return unknown_comm();
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  if (!is_known(comm)) return unknown_comm();
  *device = comm->device;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
  return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : refuse(ncclUnhandledCudaError, "out of memory");
}

ncclResult_t ncclMemFree(void* memory) {
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : refuse(ncclInvalidArgument, "not memory of a device");
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {CallKind::all_reduce, send, receive, count, type, op}, stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t receive_count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {CallKind::reduce_scatter, send, receive, receive_count, type, op}, stream);
}

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t send_count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {CallKind::all_gather, send, receive, send_count, type}, stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {CallKind::broadcast, send, receive, count, type, ncclSum, root}, stream);
}

ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {CallKind::reduce, send, receive, count, type, op, root}, stream);
}

ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(comm, {CallKind::send, send, nullptr, count, type, ncclSum, peer}, stream);
}

ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(comm, {CallKind::receive, nullptr, receive, count, type, ncclSum, peer}, stream);
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  const Group ended = std::exchange(group, {});
  if (ended.result != ncclSuccess) return ended.result;
  if (!ended.calls.empty() && !ended.waits.empty())
    return refuse(ncclInvalidUsage, "a group either forms communicators or uses them");
  ncclResult_t result = ncclSuccess;
  for (const auto& wait : ended.waits)
    if (const ncclResult_t waited = wait(); result == ncclSuccess) result = waited;
  // One operation for each stream of each communicator; the calls join in their own order.
  struct Part {
    ncclComm_t comm;
    cudaStream_t stream;
    std::shared_ptr<Launch> launch;
  };
  std::vector<Part> parts;
  for (const Group::Queued& queued : ended.calls) {
    auto part = std::ranges::find_if(
        parts, [&](const Part& known) { return known.comm == queued.comm && known.stream == queued.stream; });
    if (part == parts.end())
      part = parts.insert(
          parts.end(), {queued.comm, queued.stream, std::make_shared<Launch>(queued.comm->clique, queued.comm->rank)});
    part->launch->add(queued.call);
  }
  for (const Part& part : parts) enqueue(part.comm, part.launch, part.stream);
  return result;
}
