#include "keel/runtime/emulation/clique.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/half.h"

namespace keel::emulation {
namespace {

const char* name_of(CallKind kind) {
  switch (kind) {
    case CallKind::all_reduce: return "all_reduce";
    case CallKind::reduce_scatter: return "reduce_scatter";
    case CallKind::all_gather: return "all_gather";
    case CallKind::broadcast: return "broadcast";
    case CallKind::reduce: return "reduce";
    case CallKind::send: return "send";
    case CallKind::receive: return "receive";
  }
  return "?";
}

const char* name_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return "uint8";
    case ncclInt32: return "int32";
    case ncclInt64: return "int64";
    case ncclFloat16: return "float16";
    case ncclFloat32: return "float32";
    case ncclFloat64: return "float64";
    case ncclBfloat16: return "bfloat16";
  }
  return "?";
}

const char* name_of(ncclRedOp_t op) {
  constexpr const char* kNames[] = {"sum", "prod", "max", "min", "avg"};
  return kNames[op];
}

// The arithmetic of one type: half precision in fp32, rounded after each step; integers wrap around.
template <class T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class T>
T combine(ncclRedOp_t op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    const auto x = static_cast<std::uint64_t>(static_cast<U>(a)), y = static_cast<std::uint64_t>(static_cast<U>(b));
    switch (op) {
      case ncclProd: return static_cast<T>(static_cast<U>(x * y));
      case ncclMax: return std::max(a, b);
      case ncclMin: return std::min(a, b);
      default: return static_cast<T>(static_cast<U>(x + y));
    }
  } else {
    const auto x = static_cast<Wide<T>>(a), y = static_cast<Wide<T>>(b);
    switch (op) {
      case ncclProd: return T(x * y);
      case ncclMax: return T(std::fmax(x, y));
      case ncclMin: return T(std::fmin(x, y));
      default: return T(x + y);
    }
  }
}

template <class T>
std::vector<T> reduced(const std::vector<const T*>& inputs, std::size_t count, ncclRedOp_t op) {
  const auto ranks = static_cast<Wide<T>>(inputs.size());
  const bool scaled = op == ncclAvg && !std::is_integral_v<T>;
  const T factor = T(scaled ? 1 / ranks : Wide<T>(1));
  const auto read = [&](const T* from, std::size_t i) { return scaled ? combine(ncclProd, from[i], factor) : from[i]; };
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    T value = read(inputs[0], i);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) value = combine(op, value, read(inputs[rank], i));
    if constexpr (std::is_integral_v<T>)
      if (op == ncclAvg) value = static_cast<T>(value / static_cast<T>(inputs.size()));
    result[i] = value;
  }
  return result;
}

using Parts = std::vector<std::optional<Meeting::Part>>;

template <class T>
void reduce_parts(const Parts& parts) {
  const Call& first = parts[0]->call;
  const std::size_t ranks = parts.size();
  const std::size_t count = first.kind == CallKind::reduce_scatter ? first.count * ranks : first.count;
  std::vector<const T*> inputs;
  for (const auto& part : parts) inputs.push_back(static_cast<const T*>(part->call.send));
  const std::vector<T> result = reduced(inputs, count, first.op);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (first.kind == CallKind::reduce && static_cast<int>(rank) != first.peer) continue;
    const T* from = result.data() + (first.kind == CallKind::reduce_scatter ? rank * first.count : 0);
    std::copy_n(from, first.count, static_cast<T*>(parts[rank]->call.receive));
  }
}

void reduce_parts(const Parts& parts) {
  switch (parts[0]->call.type) {
    case ncclUint8: return reduce_parts<std::uint8_t>(parts);
    case ncclInt32: return reduce_parts<std::int32_t>(parts);
    case ncclInt64: return reduce_parts<std::int64_t>(parts);
    case ncclFloat16: return reduce_parts<f16>(parts);
    case ncclFloat32: return reduce_parts<float>(parts);
    case ncclFloat64: return reduce_parts<double>(parts);
    case ncclBfloat16: return reduce_parts<bf16>(parts);
  }
}

// What is read is read before anything is written, so that calls may work in place.
void move_parts(const Parts& parts, CallKind kind) {
  std::vector<std::byte> bytes;
  const auto read = [&](const Call& call) {
    const auto* from = static_cast<const std::byte*>(call.send);
    bytes.insert(bytes.end(), from, from + call.count * size_of(call.type));
  };
  if (kind == CallKind::all_gather)
    for (const auto& part : parts) read(part->call);
  else if (kind == CallKind::broadcast) read(parts[static_cast<std::size_t>(parts[0]->call.peer)]->call);
  else read(parts[0]->call);
  if (bytes.empty()) return;
  for (const auto& part : parts)
    if (part->call.kind != CallKind::send) std::memcpy(part->call.receive, bytes.data(), bytes.size());
}

// "" when the calls of a meeting fit together.
std::string mismatch(const Meeting& meeting) {
  const Call& first = meeting.parts[0]->call;
  if (first.kind == CallKind::send) {
    const Call& other = meeting.parts[1]->call;
    if (first.count == other.count && first.type == other.type) return {};
  }
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (std::size_t i = 0; i < meeting.parts.size(); ++i) {
    const std::string text = to_string(meeting.parts[i]->call);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& known) { return known.first == text; });
    if (group == groups.end()) group = groups.insert(groups.end(), {text, {}});
    group->second.push_back(meeting.ranks[i]);
  }
  if (groups.size() == 1) return {};
  std::string text;
  for (const auto& [call, ranks] : groups) text += concat(text.empty() ? "" : "; ", name_of_ranks(ranks), ": ", call);
  return text;
}

}  // namespace

bool is_reduction(CallKind kind) {
  return kind == CallKind::all_reduce || kind == CallKind::reduce_scatter || kind == CallKind::reduce;
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclFloat64: return 8;
  }
  return 0;
}

std::string to_string(const Call& call) {
  std::string text = concat(name_of(call.kind), " of ", call.count, ' ', name_of(call.type));
  if (is_reduction(call.kind)) text += concat(", ", name_of(call.op));
  if (call.kind == CallKind::broadcast || call.kind == CallKind::receive) text += concat(", from rank ", call.peer);
  if (call.kind == CallKind::reduce || call.kind == CallKind::send) text += concat(", to rank ", call.peer);
  return text;
}

std::size_t bytes_sent(const Call& call, int rank, int ranks) {
  const std::size_t bytes = call.count * size_of(call.type);
  switch (call.kind) {
    case CallKind::reduce_scatter: return bytes * static_cast<std::size_t>(ranks);
    case CallKind::broadcast: return rank == call.peer ? bytes : 0;
    case CallKind::receive: return 0;
    default: return bytes;
  }
}

std::size_t bytes_received(const Call& call, int rank, int ranks) {
  const std::size_t bytes = call.count * size_of(call.type);
  switch (call.kind) {
    case CallKind::all_gather: return bytes * static_cast<std::size_t>(ranks);
    case CallKind::reduce: return rank == call.peer ? bytes : 0;
    case CallKind::send: return 0;
    default: return bytes;
  }
}

std::string name_of_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += concat(i == 0 ? "" : ", ", ranks[i]);
  return text;
}

std::shared_ptr<Meeting> Clique::join(int rank, const Call& call, std::shared_ptr<const Place> place) {
  int from = -1, to = -1;
  std::uint64_t number = 0;
  std::size_t part = static_cast<std::size_t>(rank);
  std::vector<int> ranks;
  if (call.kind == CallKind::send || call.kind == CallKind::receive) {
    const bool sends = call.kind == CallKind::send;
    from = sends ? rank : call.peer;
    to = sends ? call.peer : rank;
    number = ++moves_[{from, to, call.kind}];
    part = sends ? 0 : 1;
    ranks = {from, to};
  } else {
    number = ++collectives_[part];
    for (int i = 0; i < size_; ++i) ranks.push_back(i);
  }
  std::shared_ptr<Meeting>& meeting = waiting_[{from, to, number}];
  if (meeting == nullptr) {
    meeting = std::make_shared<Meeting>();
    meeting->number = number;
    meeting->ranks = ranks;
    meeting->parts.resize(ranks.size());
  }
  meeting->parts[part] = Meeting::Part{call, std::move(place)};
  const std::shared_ptr<Meeting> joined = meeting;
  if (std::ranges::all_of(joined->parts, [](const auto& p) { return p.has_value(); }))
    waiting_.erase({from, to, number});
  return joined;
}

void Clique::perform(Meeting& meeting) {
  if (const std::string text = mismatch(meeting); !text.empty()) {
    const CallKind kind = meeting.parts[0]->call.kind;
    fail(ncclInvalidUsage, concat("the ranks of a communicator of ", size_, " do not agree on its ",
                                  kind == CallKind::send ? "transfer " : "collective ", meeting.number, ": ", text));
    throw Error(failure_, ErrorKind::internal);
  }
  const CallKind kind = meeting.parts[0]->call.kind;
  if (is_reduction(kind)) reduce_parts(meeting.parts);
  else move_parts(meeting.parts, kind);
  meeting.done = true;
}

void Clique::fail(ncclResult_t error, const std::string& what) {
  if (error_ != ncclSuccess) return;
  error_ = error;
  failure_ = what;
}

void Clique::cancel(int rank) {
  aborted_[static_cast<std::size_t>(rank)] = true;
  if (Machine::get().options().nccl_tells_aborts)
    fail(ncclRemoteError, concat("rank ", rank, " aborted its communicator of ", size_, " ranks"));
}

Launch::~Launch() {
  const std::lock_guard lock(clique_->mutex());
  if (is_undone() && !clique_->has_aborted(rank_))
    clique_->fail(ncclRemoteError,
                  concat("rank ", rank_, " of ", clique_->size(), " gave up its ", to_string(calls_[0])));
}

void Launch::add(const Call& call) {
  const std::lock_guard lock(clique_->mutex());
  meetings_.push_back(clique_->join(rank_, call, place_));
  calls_.push_back(call);
}

bool Launch::is_undone() const {
  return std::ranges::any_of(meetings_, [](const auto& meeting) { return !meeting->done; });
}

bool Launch::is_open() const {
  const std::lock_guard lock(clique_->mutex());
  if (clique_->error() != ncclSuccess || clique_->has_aborted(rank_)) return true;
  return std::ranges::all_of(meetings_, [&](const auto& meeting) {
    if (meeting->done) return true;
    if (std::ranges::any_of(meeting->ranks, [&](int rank) { return clique_->has_aborted(rank); })) return false;
    return std::ranges::all_of(meeting->parts, [](const auto& part) { return part && part->place->is_reached(); });
  });
}

std::vector<CUstream_st*> Launch::blockers() const {
  const std::lock_guard lock(clique_->mutex());
  std::vector<CUstream_st*> streams;
  for (const auto& meeting : meetings_) {
    if (meeting->done) continue;
    for (const auto& part : meeting->parts)
      if (part && part->place->stream != nullptr && !part->place->is_reached()) streams.push_back(part->place->stream);
  }
  return streams;
}

std::string Launch::describe() const {
  const std::lock_guard lock(clique_->mutex());
  for (std::size_t i = 0; i < meetings_.size(); ++i) {
    const Meeting& meeting = *meetings_[i];
    if (meeting.done) continue;
    std::vector<int> missing, late;
    for (std::size_t p = 0; p < meeting.parts.size(); ++p) {
      const auto& part = meeting.parts[p];
      if (!part || part->place->stream == nullptr) missing.push_back(meeting.ranks[p]);
      else if (!part->place->is_reached()) late.push_back(meeting.ranks[p]);
    }
    std::string text = concat(to_string(calls_[i]), ", number ", meeting.number, " of rank ", rank_, " of ",
                              clique_->size(), ", waits");
    if (!missing.empty()) text += concat(" for ", name_of_ranks(missing), " to call it");
    if (!late.empty()) text += concat(missing.empty() ? "" : " and", " for the streams of ", name_of_ranks(late));
    return text;
  }
  return "a collective that is done";
}

void Launch::run() {
  const std::lock_guard lock(clique_->mutex());
  if (clique_->has_aborted(rank_)) return;
  if (clique_->error() != ncclSuccess && is_undone()) throw Error(clique_->failure(), ErrorKind::internal);
  for (const auto& meeting : meetings_)
    if (!meeting->done) clique_->perform(*meeting);
}

}  // namespace keel::emulation
