#include "keel/runtime/emulation/nccl.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "keel/runtime/emulation/call_fault.h"
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

// Has the communicator do it at once, or, where it does not block, after some questions.
ncclResult_t begin(ncclComm_t comm, std::function<ncclResult_t()> go_on) {
  if (comm->blocks) return go_on();
  const std::lock_guard lock(comm->mutex);
  comm->questions = Machine::get().draw_nccl_questions();
  comm->result = comm->questions > 0 ? ncclInProgress : go_on();
  if (comm->result == ncclInProgress) comm->goes_on = std::move(go_on);
  return comm->result;
}

// Why nothing can be asked of the communicator.
ncclResult_t refusal_of(ncclComm_t comm) {
  {
    const std::lock_guard lock(comm->mutex);
    if (comm->result == ncclInProgress)
      return refuse(ncclInvalidArgument,
                    concat("rank ", comm->rank, " uses its communicator before its last call is over"));
    if (comm->result != ncclSuccess) return refuse(comm->result, comm->why);
  }
  if (comm->finalized) return refuse(ncclInvalidUsage, concat("rank ", comm->rank, " has finalized its communicator"));
  const std::lock_guard lock(comm->clique->mutex());
  return comm->clique->error() == ncclSuccess ? ncclSuccess : refuse(comm->clique->error(), comm->clique->failure());
}

// The meeting of ranks that form communicators, for a caller that does not wait.
ncclResult_t look_at(ncclComm_t comm, const std::function<void(const Gathering&)>& use) {
  if (!is_settled(*comm->gathering)) return ncclInProgress;
  const std::shared_ptr<Gathering> gathering = std::move(comm->gathering);
  comm->why = gathering->failure;
  if (!comm->why.empty()) return ncclSystemError;
  use(*gathering);
  return ncclSuccess;
}

// Now, or at the end of the group.
ncclResult_t wait_later(std::function<ncclResult_t()> wait) {
  if (group.depth == 0) return wait();
  group.waits.push_back(std::move(wait));
  return ncclSuccess;
}

// Each stream's calls are one operation of it; they join in their own order.
void launch(ncclComm_t comm, const std::vector<Group::Queued>& calls) {
  std::vector<std::pair<cudaStream_t, std::shared_ptr<Launch>>> launches;
  for (const Group::Queued& queued : calls) {
    auto known = std::ranges::find(launches, queued.stream, &decltype(launches)::value_type::first);
    if (known == launches.end())
      known = launches.insert(launches.end(), {queued.stream, std::make_shared<Launch>(comm->clique, comm->rank)});
    known->second->add(queued.call);
  }
  std::erase_if(comm->launches, [](const auto& known) { return known.first.expired(); });
  for (const auto& [stream, launch] : launches) {
    comm->launches.emplace_back(launch, launch->place());
    CUstream_st* queue = stream != nullptr ? stream : Machine::get().default_stream(comm->device);
    Machine::get().enqueue(queue, {.run = [run = launch.get()] { run->run(); }, .gate = launch}, launch->place().get());
  }
}

ncclResult_t begin_calls(ncclComm_t comm, std::vector<Group::Queued> calls) {
  return begin(comm, [comm, calls = std::move(calls)] {
    launch(comm, calls);
    return ncclSuccess;
  });
}

ncclResult_t submit(ncclComm_t comm, const Call& call, cudaStream_t stream) {
  const Inside inside(comm);
  if (!inside) return grouped(unknown_comm());
  if (const ncclResult_t refusal = refusal_of(comm); refusal != ncclSuccess) return grouped(refusal);
  const auto whose = [&] { return concat("rank ", comm->rank, " of ", comm->clique->size(), ": "); };
  if (Machine::get().is_lost(comm->device))
    return grouped(refuse(ncclUnhandledCudaError, whose() + cudaGetErrorString(cudaErrorIllegalAddress)));
  if (const std::string fault = fault_of(*comm, call, stream); !fault.empty())
    return grouped(refuse(ncclInvalidArgument, whose() + fault));
  if (stream != nullptr && Machine::get().capture_status(stream) != cudaStreamCaptureStatusNone)
    return grouped(refuse(ncclInvalidUsage, whose() + "the emulator does not capture collectives in graphs"));
  if (group.depth == 0) return begin_calls(comm, {{comm, call, stream}});
  if (!group.calls.empty() && group.calls.front().comm->blocks != comm->blocks)
    return grouped(refuse(ncclInvalidArgument, "a group has communicators that block and others that do not"));
  group.calls.push_back({comm, call, stream});
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
  const Inside inside(comm);
  if (!inside) return text.c_str();
  {
    const std::lock_guard lock(comm->mutex);
    if (!comm->why.empty()) text = comm->why;
  }
  if (comm->clique == nullptr) return text.c_str();
  const std::lock_guard lock(comm->clique->mutex());
  if (comm->clique->error() != ncclSuccess) text = comm->clique->failure();
  return text.c_str();
}

ncclResult_t ncclGetVersion(int* version) {
  *version = Machine::get().options().nccl_version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::string name = new_id();
  *id = {};
  std::copy(name.begin(), name.end(), id->internal);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  *comm = nullptr;
  id.internal[NCCL_UNIQUE_ID_BYTES - 1] = 0;
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return grouped(refuse(ncclInvalidArgument, concat("there is no rank ", rank, " of ", ranks)));
  const std::shared_ptr<Gathering> gathering = gather(id.internal, ranks, rank);
  if (gathering == nullptr)
    return grouped(refuse(ncclInvalidArgument, "ncclGetUniqueId did not give this id, or it was used before"));
  int device = 0;
  cudaGetDevice(&device);
  const auto clique_of = [rank](const Gathering& all) { return all.ranks[static_cast<std::size_t>(rank)].clique; };
  if (config != nullptr && config->blocking == 0) {
    const ncclComm_t made = *comm = new_comm(nullptr, rank, device, false);
    made->gathering = gathering;
    return begin(made, [=] { return look_at(made, [&](const Gathering& all) { made->clique = clique_of(all); }); });
  }
  return wait_later([=] {
    const std::string failure = wait_for_all(*gathering, "ncclCommInitRank");
    if (!failure.empty()) return refuse(ncclSystemError, failure);
    *comm = new_comm(clique_of(*gathering), rank, device, true);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
  *part = nullptr;
  const auto inside = std::make_shared<Inside>(comm);
  if (!*inside) return grouped(unknown_comm());
  if (const ncclResult_t refusal = refusal_of(comm); refusal != ncclSuccess) return grouped(refusal);
  if (config != nullptr && (config->blocking == 0) == comm->blocks)
    return grouped(refuse(ncclInvalidUsage, "the emulator's parts block as the whole does"));
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
    return grouped(refuse(ncclInvalidArgument, concat("a color is 0 or more, or NCCL_SPLIT_NOCOLOR; not ", color)));
  const std::shared_ptr<Gathering> gathering = gather_to_split(*comm, color, key);
  if (gathering == nullptr)
    return grouped(refuse(ncclInvalidUsage, concat("rank ", comm->rank, " splits its communicator twice at once")));
  const auto make_part = [comm, part](const Gathering& all) {
    const Gathering::Rank& own = all.ranks[static_cast<std::size_t>(comm->rank)];
    if (own.clique != nullptr) *part = new_comm(own.clique, own.rank, comm->device, comm->blocks);
  };
  if (!comm->blocks) {
    comm->gathering = gathering;
    return begin(comm, [=] { return look_at(comm, make_part); });
  }
  return wait_later([inside, gathering, make_part] {
    const std::string failure = wait_for_all(*gathering, "ncclCommSplit");
    if (!failure.empty()) return refuse(ncclSystemError, failure);
    make_part(*gathering);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Inside inside(comm);
  if (!inside) return unknown_comm();
  if (const ncclResult_t refusal = refusal_of(comm); refusal != ncclSuccess) return refusal;
  return begin(comm, [comm] {
    for (const auto& [launch, place] : comm->launches) {
      if (launch.expired()) continue;
      if (comm->blocks) Machine::get().wait_for(place->stream, place->position + 1);
      else if (!Machine::get().is_done(place->stream, place->position + 1)) return ncclInProgress;
    }
    comm->finalized = true;
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  {
    const Inside inside(comm);
    if (!inside) return unknown_comm();
    const std::lock_guard lock(comm->mutex);
    if (comm->result == ncclInProgress)
      return refuse(ncclInvalidUsage, concat("rank ", comm->rank, " destroys its communicator during a call"));
    for (const auto& [launch, place] : comm->launches)
      if (!launch.expired()) Machine::get().wait_for(place->stream, place->position + 1);
  }
  return forget(comm) ? ncclSuccess : refuse(ncclInvalidUsage, "another thread is inside a call with the communicator");
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!is_known(comm)) return unknown_comm();
  const std::shared_ptr<Clique> clique = comm->clique;
  const std::shared_ptr<Gathering> gathering = comm->gathering;
  const int rank = comm->rank;
  if (!forget(comm)) return refuse(ncclInvalidUsage, "another thread is inside a call with the communicator");
  if (gathering != nullptr && Machine::get().options().nccl_tells_aborts)
    fail(*gathering, concat("rank ", rank, " aborted what it was to form"));
  if (clique != nullptr) {
    const std::lock_guard lock(clique->mutex());
    clique->cancel(rank);
  }
  Machine::get().wake();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const Inside inside(comm);
  if (!inside) return unknown_comm();
  {
    const std::lock_guard lock(comm->mutex);
    if (comm->result == ncclInProgress && comm->questions > 0) --comm->questions;
    else if (comm->result == ncclInProgress) comm->result = comm->goes_on();
    if (comm->result != ncclInProgress) comm->goes_on = {};
    *error = comm->result;
  }
  if (*error != ncclSuccess) return ncclSuccess;
  const std::lock_guard lock(comm->clique->mutex());
  *error = comm->clique->error();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  const Inside inside(comm);
  if (!inside) return unknown_comm();
  if (const ncclResult_t refusal = refusal_of(comm); refusal != ncclSuccess) return refusal;
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
  Group ended = std::exchange(group, {});
  if (ended.result != ncclSuccess) return ended.result;
  if (!ended.calls.empty() && !ended.waits.empty())
    return refuse(ncclInvalidUsage, "a group either forms communicators or uses them");
  ncclResult_t result = ncclSuccess;
  for (const auto& wait : ended.waits)
    if (const ncclResult_t waited = wait(); result == ncclSuccess) result = waited;
  while (!ended.calls.empty()) {
    const ncclComm_t comm = ended.calls.front().comm;
    std::vector<Group::Queued> own;
    std::ranges::copy_if(ended.calls, std::back_inserter(own), [&](const auto& queued) { return queued.comm == comm; });
    std::erase_if(ended.calls, [&](const auto& queued) { return queued.comm == comm; });
    const Inside inside(comm);
    const ncclResult_t begun = inside ? begin_calls(comm, own) : unknown_comm();
    if (result == ncclSuccess || result == ncclInProgress) result = begun == ncclSuccess ? result : begun;
  }
  return result;
}
