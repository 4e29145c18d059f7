#include "keel/dist/comm/cuda/nccl_collectives.h"

#include <algorithm>

#include "keel/runtime/device_api.h"

namespace keel::cuda {
namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    case DType::f64: return ncclFloat64;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    case DType::u8: return ncclUint8;
  }
  throw Error(concat("NCCL has no type for ", dtype), ErrorKind::unsupported);
}

ncclRedOp_t op_of(CombineOp op) {
  switch (op) {
    case CombineOp::maximum: return ncclMax;
    case CombineOp::minimum: return ncclMin;
    case CombineOp::product: return ncclProd;
    case CombineOp::sum:
    case CombineOp::pairwise_sum:  // which NCCL is not asked for
    case CombineOp::mean: break;   // finish_mean() divides the sum
  }
  return ncclSum;
}

cudaStream_t stream_of(const NcclRank& own) { return static_cast<cudaStream_t>(own.context.stream().native()); }
std::size_t count_of(const Tensor& x) { return static_cast<std::size_t>(x.numel()); }

// Inside a group.
void send(const NcclRank& own, ncclComm_t comm, const Tensor& x, int to) {
  check_nccl(ncclSend(x.raw(), count_of(x), type_of(x.dtype()), to, comm, stream_of(own)), "ncclSend");
}
void receive(const NcclRank& own, ncclComm_t comm, const Tensor& x, int from) {
  check_nccl(ncclRecv(x.raw(), count_of(x), type_of(x.dtype()), from, comm, stream_of(own)), "ncclRecv");
}

// The shards of a tensor, by rank.
std::vector<Tensor> shards_of(const NcclRank& own, const Tensor& whole, const Counts& counts) {
  const Cut cut(whole.numel(), own.size, counts);
  std::vector<Tensor> shards;
  for (int r = 0; r < own.size; ++r) shards.push_back(whole.flatten().slice(0, cut.of(r).begin, cut.of(r).end));
  return shards;
}
bool has_equal_shards(const NcclRank& own, const Tensor& whole, const Counts& counts) {
  if (counts.empty()) return whole.numel() % own.size == 0;
  return std::count(counts.begin(), counts.end(), counts.front()) == own.size;
}

void copy(const Tensor& from, const Tensor& to) {
  if (from.numel() != 0 && from.raw() != to.raw())
    to.context().api().copy(to.raw(), from.raw(), from.bytes(), to.context().stream().native());
}

}  // namespace

void queue_schedule(const NcclRank& own, const Schedule& schedule, const Collective& collective, CombineOp op) {
  const Tensor scratch =
      schedule.scratch == 0 ? Tensor() : empty(own.context, {schedule.scratch}, collective.dtype(), Purpose::workspace);
  const auto at = [&](const Piece& piece) {
    const Tensor& all = piece.place == Place::input    ? collective.input
                        : piece.place == Place::output ? collective.output
                                                       : scratch;
    return all.slice(0, piece.span.begin, piece.span.end);
  };
  for (const Step& step : schedule.steps) {
    if (!step.sends.empty() || !step.receives.empty())
      own.nccl.group([&](ncclComm_t comm) {
        for (const Transfer& transfer : step.receives) receive(own, comm, at(transfer.piece), transfer.peer);
        for (const Transfer& transfer : step.sends) send(own, comm, at(transfer.piece), transfer.peer);
      });
    for (const Combination& combination : step.combinations) {
      std::vector<Tensor> terms;
      for (const Piece& term : combination.terms) terms.push_back(at(term));
      if (terms.size() == 1) copy(terms.front(), at(combination.result));
      else kernels::combine({terms, at(combination.result), op});
    }
  }
}

void queue_all_reduce(const NcclRank& own, const Collective& c) {
  if (c.input.numel() == 0) return;
  own.nccl.call("ncclAllReduce", [&](ncclComm_t comm) {
    return ncclAllReduce(c.input.raw(), c.output.raw(), count_of(c.input), type_of(c.dtype()), op_of(c.op), comm,
                         stream_of(own));
  });
}

void queue_reduce_scatter(const NcclRank& own, const Collective& c) {
  if (c.input.numel() == 0) return;
  if (has_equal_shards(own, c.input, c.counts)) {
    own.nccl.call("ncclReduceScatter", [&](ncclComm_t comm) {
      return ncclReduceScatter(c.input.raw(), c.output.raw(), count_of(c.output), type_of(c.dtype()), op_of(c.op), comm,
                               stream_of(own));
    });
    return;
  }
  const std::vector<Tensor> shards = shards_of(own, c.input, c.counts);
  own.nccl.group([&](ncclComm_t comm) {
    for (int owner = 0; owner < own.size; ++owner) {
      const Tensor& shard = shards[static_cast<std::size_t>(owner)];
      if (shard.numel() == 0) continue;
      // Elsewhere than at the owner nothing is received.
      std::byte* const result = owner == own.rank ? c.output.raw() : shard.raw();
      check_nccl(ncclReduce(shard.raw(), result, count_of(shard), type_of(c.dtype()), op_of(c.op), owner, comm,
                            stream_of(own)),
                 "ncclReduce");
    }
  });
}

void queue_reduce(const NcclRank& own, const Collective& c) {
  if (c.input.numel() == 0) return;
  // Elsewhere than at the root nothing is received.
  std::byte* const result = c.output.defined() ? c.output.raw() : c.input.raw();
  own.nccl.call("ncclReduce", [&](ncclComm_t comm) {
    return ncclReduce(c.input.raw(), result, count_of(c.input), type_of(c.dtype()), op_of(c.op), c.peer, comm,
                      stream_of(own));
  });
}

void queue_all_gather(const NcclRank& own, const Tensor& shard, const Tensor& whole, const Counts& counts) {
  if (whole.numel() == 0) return;
  if (has_equal_shards(own, whole, counts)) {
    own.nccl.call("ncclAllGather", [&](ncclComm_t comm) {
      return ncclAllGather(shard.raw(), whole.raw(), count_of(shard), type_of(whole.dtype()), comm, stream_of(own));
    });
    return;
  }
  const std::vector<Tensor> places = shards_of(own, whole, counts);
  own.nccl.group([&](ncclComm_t comm) {
    for (int owner = 0; owner < own.size; ++owner) {
      const Tensor& place = places[static_cast<std::size_t>(owner)];
      if (place.numel() == 0) continue;
      check_nccl(ncclBroadcast(owner == own.rank ? shard.raw() : place.raw(), place.raw(), count_of(place),
                               type_of(whole.dtype()), owner, comm, stream_of(own)),
                 "ncclBroadcast");
    }
  });
}

void queue_broadcast(const NcclRank& own, const Tensor& x, int root) {
  if (x.numel() == 0) return;
  own.nccl.call("ncclBroadcast", [&](ncclComm_t comm) {
    return ncclBroadcast(x.raw(), x.raw(), count_of(x), type_of(x.dtype()), root, comm, stream_of(own));
  });
}

void queue_messages(const NcclRank& own, std::span<const Collective> messages) {
  own.nccl.group([&](ncclComm_t comm) {
    for (const Collective& message : messages) {
      if (message.count() == 0) continue;
      if (message.kind == CollectiveKind::send) send(own, comm, message.input, message.peer);
      else receive(own, comm, message.output, message.peer);
    }
  });
}

}  // namespace keel::cuda
