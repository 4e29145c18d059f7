#include "keel/dist/comm/mpi_program.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>

#include "keel/dist/comm/mpi_call.h"

namespace keel {
namespace {

// What ranks tell each other, as tags.
enum News : int { failed, left, gone };

// Short enough for MPI to take it at once, whether or not anybody listens.
constexpr std::size_t kLongestReason = 1'000;

constexpr auto kTimeToPart = std::chrono::seconds(1);
constexpr auto kTimeToHear = std::chrono::milliseconds(100);

}  // namespace

bool MpiFlight::is_over() {
  for (; finished < requests.size(); ++finished) {
    int flag = 1;
    // A failure frees the request, too.
    if (MPI_Test(&requests[finished], &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag) return false;
  }
  return true;
}

MpiGroup::MpiGroup(std::uint64_t id, MPI_Comm comm, std::vector<int> members)
    : id(id), comm(comm), members(std::move(members)), peers(this->members.size()) {
  mpi_call("MPI_Comm_set_errhandler", ErrorKind::internal, MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  mpi_call("MPI_Comm_rank", ErrorKind::internal, MPI_Comm_rank(comm, &rank));
}

MpiProgram::MpiProgram(MPI_Comm callers) : exceptions_(std::uncaught_exceptions()) {
  mpi_call("MPI_Comm_dup", ErrorKind::internal, MPI_Comm_dup(callers, &control_));
  mpi_call("MPI_Comm_set_errhandler", ErrorKind::internal, MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN));
  mpi_call("MPI_Comm_rank", ErrorKind::internal, MPI_Comm_rank(control_, &rank_));
  mpi_call("MPI_Comm_size", ErrorKind::internal, MPI_Comm_size(control_, &size_));
}

MpiProgram::~MpiProgram() {
  if (mpi_runs()) {
    try {
      wait_for_the_others();
    } catch (const std::exception&) {}  // the communicators stay, as below
  }
  // MPI may yet touch the memory of what has not finished, so it stays until the process ends.
  for (auto& flight : flights_) static_cast<void>(flight.release());
}

// A communicator must not be freed with a message on its way in it: MPI may give its number to a new one, which would
// then receive that message. Once every rank has told that it is gone, none is.
void MpiProgram::wait_for_the_others() {
  const bool unwinds = std::uncaught_exceptions() > exceptions_;
  for (int r = 0; r < size_; ++r)
    if (r != rank_) tell(r, gone, {});
  const auto waits_since = Clock::now();
  for (;;) {
    look();
    const bool in_peace = !failure_ && !unwinds;
    const bool is_done = flights_.empty() && (!in_peace || gone_ == size_ - 1);
    if (is_done || Clock::now() - waits_since > (in_peace ? Clock::duration(kTimeToPart) : kTimeToHear)) break;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (failure_ || gone_ != size_ - 1) return;
  free_finished_groups();
  if (flights_.empty()) mpi_call("MPI_Comm_free", ErrorKind::internal, MPI_Comm_free(&control_));
}

void MpiProgram::tell(int rank, int what, const std::string& text) {
  const auto message = std::make_shared<const std::string>(text);
  auto flight = std::make_unique<MpiFlight>();
  flight->owner = message;
  flight->requests.push_back(MPI_REQUEST_NULL);
  mpi_call("MPI_Isend", ErrorKind::peer,
           MPI_Isend(message->data(), static_cast<int>(message->size()), MPI_BYTE, rank, what, control_,
                     &flight->requests.back()));
  if (!flight->is_over()) flights_.push_back(std::move(flight));
}

void MpiProgram::hear(int rank, int what, const std::string& text) {
  if (what == failed && !failure_) failure_ = text;
  if (what == gone) ++gone_;
  if (what != left) return;
  Left news;
  std::memcpy(static_cast<Departure*>(&news), text.data(), sizeof(Departure));
  news.when = Clock::now();
  departures_[{news.group, rank}] = news;
  free_finished_groups();
}

void MpiProgram::look() {
  if (!mpi_runs()) return;
  for (;;) {
    int is_there = 0, bytes = 0;
    MPI_Status status;
    mpi_call("MPI_Iprobe", ErrorKind::peer, MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, control_, &is_there, &status));
    if (!is_there) break;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::string text(static_cast<std::size_t>(bytes), '\0');
    mpi_call("MPI_Recv", ErrorKind::peer,
             MPI_Recv(text.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, control_, MPI_STATUS_IGNORE));
    hear(status.MPI_SOURCE, status.MPI_TAG, text);
    note_progress();
  }
  std::erase_if(flights_, [](const auto& flight) { return flight->is_over(); });
}

void MpiProgram::fail(const std::string& reason) noexcept {
  try {
    if (failure_ || !mpi_runs()) return;
    look();
    if (failure_) return;
    failure_ = reason.size() <= kLongestReason ? reason : reason.substr(0, kLongestReason) + " ...";
    for (int r = 0; r < size_; ++r)
      if (r != rank_) tell(r, failed, *failure_);
  } catch (const std::exception&) {}  // those who are not told run into their time-outs
}

void MpiProgram::throw_failure() const {
  if (failure_) throw Error(MessageLines{*failure_}, ErrorKind::peer);
}

const MpiProgram::Left* MpiProgram::departure(std::uint64_t group, int rank) const {
  if (departures_.empty()) return nullptr;
  const auto at = departures_.find({group, rank});
  return at == departures_.end() ? nullptr : &at->second;
}

void MpiProgram::leave(const std::shared_ptr<MpiGroup>& group, bool abruptly) {
  for (std::size_t i = 0; i < group->members.size(); ++i) {
    if (static_cast<int>(i) == group->rank) continue;
    const Departure departure{group->id, group->peers[i].sent, abruptly || group->gave_up || failure_};
    tell(group->members[i], left, std::string(reinterpret_cast<const char*>(&departure), sizeof(Departure)));
  }
  left_.push_back(group);
  free_finished_groups();
}

// Those in which everything that anybody has sent has been received.
void MpiProgram::free_finished_groups() {
  std::erase_if(left_, [&](const std::shared_ptr<MpiGroup>& group) {
    if (group->gave_up) return false;
    for (std::size_t i = 0; i < group->members.size(); ++i) {
      if (static_cast<int>(i) == group->rank) continue;
      const Left* news = departure(group->id, group->members[i]);
      if (news == nullptr || news->abruptly || news->sent != group->peers[i].received) return false;
    }
    for (const int member : group->members) departures_.erase({group->id, member});
    mpi_call("MPI_Comm_free", ErrorKind::internal, MPI_Comm_free(&group->comm));
    return true;
  });
}

}  // namespace keel
