#include "keel/runtime/emulation/call_fault.h"

#include "keel/runtime/error.h"

namespace keel::emulation {

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

}  // namespace keel::emulation
