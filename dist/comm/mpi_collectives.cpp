#include "keel/dist/comm/mpi_collectives.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>

#include "keel/dist/comm/collective_table.h"
#include "keel/dist/comm/mpi_call.h"
#include "keel/dist/comm/schedule.h"

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

// MPI's type of the numbers; of what is only moved, one of the same size.
MPI_Datatype type_of(DType dtype, bool adds) {
  switch (dtype) {
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::i32: return MPI_INT32_T;
    case DType::i64: return MPI_INT64_T;
    case DType::u8: return MPI_UINT8_T;
    default: break;
  }
  if (adds) throw Error(concat("MPI has no sum of ", dtype), ErrorKind::unsupported);
  return MPI_UINT16_T;
}

MPI_Op op_of(CombineOp op) {
  switch (op) {
    case CombineOp::maximum: return MPI_MAX;
    case CombineOp::minimum: return MPI_MIN;
    case CombineOp::product: return MPI_PROD;
    case CombineOp::sum:
    case CombineOp::pairwise_sum:  // which run() refuses
    case CombineOp::mean: break;   // the sum is divided behind it
  }
  return MPI_SUM;
}

int count_of(std::int64_t count) {
  if (count > std::numeric_limits<int>::max())
    throw Error(concat("MPI's collectives take ", std::numeric_limits<int>::max(), " elements, got ", count),
                ErrorKind::unsupported);
  return static_cast<int>(count);
}

void check(const char* name, int code) { mpi_call(name, ErrorKind::peer, code); }

// Tells of a call that does not come back.
class Watch {
 public:
  Watch(std::chrono::milliseconds limit, std::function<void(const std::string&)> stuck)
      : limit_(limit), stuck_(std::move(stuck)) {
    if (stuck_) thread_ = std::jthread([this](const std::stop_token& stop) { look(stop); });
  }

  void enter(const Collective& collective, std::int64_t number) {
    inside_.store(collective.kind, std::memory_order_relaxed);
    number_.store(number, std::memory_order_release);
  }
  void leave() { number_.store(kOutside, std::memory_order_release); }

 private:
  static constexpr std::int64_t kOutside = -1;

  // A call is stuck when it was there at two looks that lie so far apart.
  void look(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    std::int64_t seen = kOutside;
    Clock::time_point since = Clock::now();
    const auto pause = std::max<std::chrono::milliseconds>(limit_ / 8, std::chrono::milliseconds(1));
    while (!wake_.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); })) {
      if (stop.stop_requested()) return;
      const std::int64_t number = number_.load(std::memory_order_acquire);
      if (number != seen) {
        seen = number;
        since = Clock::now();
      } else if (seen != kOutside && Clock::now() - since > limit_) {
        stuck_(concat("MPI's own ", name_of(inside_.load()), " (collective number ", seen, ") has not come back in ",
                      limit_.count(), " ms: a rank did not come, or asked for something else"));
        return;
      }
    }
  }

  std::chrono::milliseconds limit_;
  std::function<void(const std::string&)> stuck_;
  std::atomic<std::int64_t> number_ = kOutside;
  std::atomic<CollectiveKind> inside_ = CollectiveKind::barrier;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: the others outlive it
};

// A message between two ranks that MPI has in its hands.
class MpiRequest : public Operation {
 public:
  MpiRequest(Tensor memory, const std::function<void(MPI_Request*)>& begin) : memory_(std::move(memory)) {
    begin(&request_);
  }
  ~MpiRequest() override {
    if (request_ != MPI_REQUEST_NULL && mpi_runs()) MPI_Wait(&request_, MPI_STATUS_IGNORE);
  }
  MpiRequest(const MpiRequest&) = delete;
  MpiRequest& operator=(const MpiRequest&) = delete;
  bool advance() override {
    int finished = 0;
    check("MPI_Test", MPI_Test(&request_, &finished, MPI_STATUS_IGNORE));
    return finished != 0;
  }
  void wait() override { check("MPI_Wait", MPI_Wait(&request_, MPI_STATUS_IGNORE)); }

 private:
  Tensor memory_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiCollectives : public Communicator {
 public:
  // Takes the duplicate.
  MpiCollectives(MPI_Comm comm, const MpiCollectiveOptions& options, std::vector<int> nodes)
      : comm_(comm), options_(options), nodes_(std::move(nodes)), watch_(options.timeout, options.stuck) {
    check("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    check("MPI_Comm_rank", MPI_Comm_rank(comm_, &rank_));
    check("MPI_Comm_size", MPI_Comm_size(comm_, &size_));
  }
  ~MpiCollectives() override {
    if (mpi_runs()) MPI_Comm_free(&comm_);
  }
  MpiCollectives(const MpiCollectives&) = delete;
  MpiCollectives& operator=(const MpiCollectives&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::vector<int>& nodes() const override { return nodes_; }

  Work begin(const Collective& c) override {
    if (failed_) throw Error(MessageLines{reason_}, ErrorKind::peer);
    check_thread();
    for (const Tensor* tensor : {&c.input, &c.output})
      if (tensor->defined() && tensor->device().type != DeviceType::cpu)
        throw Error(concat(c, ": MPI's collectives take the processor's memory, got ", *tensor),
                    ErrorKind::unsupported);
    ++traffic_.collectives;
    if (c.kind == CollectiveKind::send || c.kind == CollectiveKind::receive) return begin_message(c);
    watch_.enter(c, traffic_.collectives);
    try {
      run(c);
    } catch (...) {
      watch_.leave();
      throw;
    }
    watch_.leave();
    if (c.output.defined()) c.output.mark_written();
    if (c.op == CombineOp::mean && c.output.defined()) kernels::combine({{&c.output, 1}, c.output, c.op, size_});
    return {};
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    KEEL_CHECK(color >= 0, "a colour of MPI's groups is 0 or more, got ", color);
    MPI_Comm part = MPI_COMM_NULL;
    check("MPI_Comm_split", MPI_Comm_split(comm_, color, key, &part));
    int members = 0, rank = 0;
    MPI_Comm_size(part, &members);
    MPI_Comm_rank(part, &rank);
    std::vector<int> nodes(static_cast<std::size_t>(members));
    const int own = nodes_[static_cast<std::size_t>(rank_)];
    check("MPI_Allgather", MPI_Allgather(&own, 1, MPI_INT, nodes.data(), 1, MPI_INT, part));
    return std::make_unique<MpiCollectives>(part, options_, std::move(nodes));
  }
  Traffic traffic() const override { return traffic_; }
  std::chrono::milliseconds timeout() const override { return options_.timeout; }
  void fail(const std::string& reason) noexcept override {
    failed_ = true;
    reason_ = reason;
  }
  void set_activity(const std::string&) override {}
  void check_thread() const override { check_mpi_thread(may_call_mpi()); }

 private:
  Work begin_message(const Collective& c) {
    const bool sends = c.kind == CollectiveKind::send;
    const Tensor& x = sends ? c.input : c.output;
    const MPI_Datatype type = type_of(c.dtype(), false);
    const int count = count_of(x.numel());
    if (!sends) x.mark_written();
    return Work(std::make_shared<MpiRequest>(x, [&](MPI_Request* request) {
      if (sends) check("MPI_Isend", MPI_Isend(x.raw(), count, type, c.peer, 0, comm_, request));
      else check("MPI_Irecv", MPI_Irecv(x.raw(), count, type, c.peer, 0, comm_, request));
    }));
  }

  void run(const Collective& c) {
    const bool adds = traits_of(c.kind).adds;
    if (adds && c.op == CombineOp::mean && !is_floating(c.dtype()))
      throw Error(concat("MPI adds ", c.dtype(), " in itself, and has no mean of it"), ErrorKind::unsupported);
    if (adds && c.op == CombineOp::pairwise_sum)
      throw Error(concat(c, ": MPI adds in an order of its own"), ErrorKind::unsupported);
    const MPI_Datatype type = type_of(c.dtype(), adds);
    const int count = count_of(c.count());
    void* const from = c.input.defined() ? c.input.raw() : nullptr;
    void* const to = c.output.defined() ? c.output.raw() : nullptr;
    switch (c.kind) {
      case CollectiveKind::all_reduce:
        return check("MPI_Allreduce",
                     MPI_Allreduce(from == to ? MPI_IN_PLACE : from, to, count, type, op_of(c.op), comm_));
      case CollectiveKind::reduce_scatter: return reduce_scatter(c, type);
      case CollectiveKind::all_gather: return all_gather(c, type);
      case CollectiveKind::reduce:
        return check("MPI_Reduce", MPI_Reduce(rank_ == c.peer && from == to ? MPI_IN_PLACE : from, to, count, type,
                                              op_of(c.op), c.peer, comm_));
      case CollectiveKind::gather: return gather(c, type);
      case CollectiveKind::scatter: return scatter(c, type);
      case CollectiveKind::broadcast: return check("MPI_Bcast", MPI_Bcast(to, count, type, c.peer, comm_));
      case CollectiveKind::all_to_all:
        if (c.has_counts()) return all_to_all_v(c, type);
        return check("MPI_Alltoall", MPI_Alltoall(from, count / size_, type, to, count / size_, type, comm_));
      default: return check("MPI_Barrier", MPI_Barrier(comm_));
    }
  }

  // How many elements each rank's part has, and where it begins.
  struct Layout {
    std::vector<int> counts, places;
    bool is_equal = true;

    void set(const Cut& cut, int ranks) {
      counts.clear();
      places.clear();
      for (int r = 0; r < ranks; ++r) {
        counts.push_back(static_cast<int>(cut.of(r).count()));
        places.push_back(static_cast<int>(cut.of(r).begin));
      }
      is_equal = std::count(counts.begin(), counts.end(), counts.front()) == ranks;
    }
  };

  void all_to_all_v(const Collective& c, MPI_Datatype type) {
    count_of(c.output.numel());
    layout_.set(Cut(0, size_, c.counts), size_);
    incoming_.set(Cut(0, size_, c.incoming), size_);
    check("MPI_Alltoallv",
          MPI_Alltoallv(c.input.raw(), layout_.counts.data(), layout_.places.data(), type, c.output.raw(),
                        incoming_.counts.data(), incoming_.places.data(), type, comm_));
  }

  // Where the rank's own part lies in a tensor of all.
  std::byte* own_place(const Tensor& whole) const {
    return whole.raw() +
           static_cast<std::size_t>(layout_.places[static_cast<std::size_t>(rank_)]) * size_of(whole.dtype());
  }
  void gather(const Collective& c, MPI_Datatype type) {
    layout_.set(Cut(0, size_, c.counts), size_);
    const bool is_root = rank_ == c.peer;
    void* const to = is_root ? c.output.raw() : nullptr;
    const void* const from = is_root && c.input.raw() == own_place(c.output) ? MPI_IN_PLACE : c.input.raw();
    const auto count = static_cast<int>(c.input.numel());
    if (layout_.is_equal) check("MPI_Gather", MPI_Gather(from, count, type, to, count, type, c.peer, comm_));
    else
      check("MPI_Gatherv",
            MPI_Gatherv(from, count, type, to, layout_.counts.data(), layout_.places.data(), type, c.peer, comm_));
  }
  void scatter(const Collective& c, MPI_Datatype type) {
    layout_.set(Cut(0, size_, c.counts), size_);
    const bool is_root = rank_ == c.peer;
    const void* const from = is_root ? c.input.raw() : nullptr;
    void* const to = is_root && c.output.raw() == own_place(c.input) ? MPI_IN_PLACE : c.output.raw();
    const auto count = static_cast<int>(c.output.numel());
    if (layout_.is_equal) check("MPI_Scatter", MPI_Scatter(from, count, type, to, count, type, c.peer, comm_));
    else
      check("MPI_Scatterv",
            MPI_Scatterv(from, layout_.counts.data(), layout_.places.data(), type, to, count, type, c.peer, comm_));
  }

  // MPI forbids a result that lies in what was given, and its own way in place writes to the beginning.
  void reduce_scatter(const Collective& c, MPI_Datatype type) {
    const std::byte* const given = c.input.raw();
    const bool overlaps = c.output.raw() < given + c.input.bytes() && given < c.output.raw() + c.output.bytes();
    std::byte* to = c.output.raw();
    if (overlaps) {
      scratch_.resize(c.output.bytes());
      to = scratch_.data();
    }
    layout_.set(Cut(c.input.numel(), size_, c.counts), size_);
    if (layout_.is_equal) {
      check("MPI_Reduce_scatter_block",
            MPI_Reduce_scatter_block(given, to, static_cast<int>(c.output.numel()), type, op_of(c.op), comm_));
    } else {
      check("MPI_Reduce_scatter", MPI_Reduce_scatter(given, to, layout_.counts.data(), type, op_of(c.op), comm_));
    }
    if (overlaps && !scratch_.empty()) std::memcpy(c.output.raw(), scratch_.data(), scratch_.size());
  }

  void all_gather(const Collective& c, MPI_Datatype type) {
    layout_.set(Cut(c.output.numel(), size_, c.counts), size_);
    const void* const from = c.input.raw() == own_place(c.output) ? MPI_IN_PLACE : c.input.raw();
    const auto count = static_cast<int>(c.input.numel());
    if (layout_.is_equal) {
      check("MPI_Allgather", MPI_Allgather(from, count, type, c.output.raw(), count, type, comm_));
      return;
    }
    check("MPI_Allgatherv",
          MPI_Allgatherv(from, count, type, c.output.raw(), layout_.counts.data(), layout_.places.data(), type, comm_));
  }

  MPI_Comm comm_;
  MpiCollectiveOptions options_;
  std::vector<int> nodes_;
  int rank_ = 0, size_ = 1;
  Traffic traffic_;
  bool failed_ = false;
  std::string reason_;
  Layout layout_, incoming_;
  std::vector<std::byte> scratch_;
  Watch watch_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_collectives(MPI_Comm communicator, const MpiCollectiveOptions& options,
                                                   std::vector<int> nodes) {
  check_callers(communicator);
  if (nodes.empty()) nodes = make_mpi_transport(communicator)->nodes();
  MPI_Comm comm = MPI_COMM_NULL;
  check("MPI_Comm_dup", MPI_Comm_dup(communicator, &comm));
  return std::make_unique<MpiCollectives>(comm, options, std::move(nodes));
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  // An MPI may count the zero at the end.
  const std::string_view all(text, static_cast<std::size_t>(length)), ends("\n\0", 2);
  return std::string(all.substr(0, all.find_first_of(ends)));
}

}  // namespace keel
