#pragma once
// Collectives as calls of NCCL and kernels, one after the other in a stream.

#include <span>
#include <vector>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/cuda/nccl_handle.h"

namespace keel::cuda {

// One rank of an NCCL communicator and the stream that its work goes to, which is the context's current one.
struct NcclRank {
  NcclHandle& nccl;
  int rank = 0, size = 1;
  Context context;
};

// A schedule's messages, step by step: the transfers of a step are one operation, its combinations kernels of `op`.
void queue_schedule(const NcclRank& own, const Schedule& schedule, const Collective& collective, CombineOp op);

// What NCCL does by itself, but for the division of a mean. Shards may differ in length, also by counts; an output may
// lie in its place of the input, and an input in its place of the output.
void queue_all_reduce(const NcclRank& own, const Collective& collective);
void queue_reduce_scatter(const NcclRank& own, const Collective& collective);
void queue_reduce(const NcclRank& own, const Collective& collective);
void queue_all_gather(const NcclRank& own, const Tensor& shard, const Tensor& whole, const Counts& counts = {});
void queue_broadcast(const NcclRank& own, const Tensor& x, int root);
// Queues sends and receives that are under way together; between two ranks the k-th send meets the k-th receive.
void queue_messages(const NcclRank& own, std::span<const Collective> messages);

}  // namespace keel::cuda
