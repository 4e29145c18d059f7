#include "keel/dist/comm/tcp_meeting.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>

#include "keel/dist/comm/tcp_door.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestRefusal = 4'000;
constexpr int kMostRanks = 1 << 20;
constexpr std::size_t kMostRefusals = 8;  // that are told
// Rank 0 gives up first, as it knows who did not come.
constexpr auto kGrace = std::chrono::seconds(2);

// What rank 0 tells each rank of each, in its answer.
struct Seat {
  std::uint64_t host = 0;
  std::int32_t port = 0;
  char address[52] = "";
};

std::uint64_t hash_of(const std::string& text) {  // FNV-1a
  std::uint64_t hash = 14'695'981'039'346'656'037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1'099'511'628'211U;
  return hash;
}

// The name alone may be one of many machines; the number that the system draws when it starts is not.
std::uint64_t this_host() {
  std::string name(256, '\0'), boot;
  ::gethostname(name.data(), name.size() - 1);
  name.resize(name.find('\0'));
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return hash_of(name + "/" + boot);
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += concat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return text;
}

std::string duration_text(std::chrono::milliseconds duration) {
  const auto count = duration.count();
  return count % 1'000 == 0 ? concat(count / 1'000, " s") : concat(count, " ms");
}

class Meeting {
 public:
  explicit Meeting(const TcpOptions& options)
      : options_(options),
        address_(options.listener ? options.listener->address() : TcpAddress::parse(options.address)),
        deadline_(Clock::now() + options.timeout) {
    mine_ = {.hello = {.token = hash_of(options.token)}, .rank = options.rank, .size = options.size};
    mine_.host = this_host();
    peers_.sockets.resize(static_cast<std::size_t>(options.size));
    peers_.hosts.assign(static_cast<std::size_t>(options.size), mine_.host);
  }

  TcpPeers run() {
    options_.rank == 0 ? host() : visit();
    return std::move(peers_);
  }

 private:
  Socket& socket(int rank) { return peers_.sockets.at(static_cast<std::size_t>(rank)); }

  // What may have kept ranks out.
  std::string why_not(const TcpDoor& door) const {
    std::string text;
    for (const std::string& refusal : refusals_) text += "; was sent away: " + refusal;
    return door.is_full() ? text + "; rank 0 can open no more files, see ulimit -n" : text;
  }

  // Ranks from `first` on that have not come.
  std::vector<int> missing(int first) {
    std::vector<int> ranks;
    for (int r = first; r < options_.size; ++r)
      if (!socket(r).is_open()) ranks.push_back(r);
    return ranks;
  }

  void host() {
    const auto listener = options_.listener ? options_.listener : std::make_shared<const TcpListener>(address_);
    try {
      std::vector<Seat> places = receive_guests(listener);
      const TcpAnswer answer{.bytes = places.size() * sizeof(Seat)};
      for (int r = 1; r < options_.size; ++r)
        if (!write_all(socket(r), &answer, sizeof(answer), deadline_ + kGrace) ||
            !write_all(socket(r), places.data(), answer.bytes, deadline_ + kGrace))
          throw Error(concat("rank ", r, " is gone"), ErrorKind::peer);
    } catch (const Error& error) {
      for (const Socket& peer : peers_.sockets)
        if (peer.is_open())
          refuse(peer, error.what(),
                 error.kind() == ErrorKind::peer ? TcpVerdict::others_failed : TcpVerdict::wrong_input);
      throw;
    }
  }

  std::vector<Seat> receive_guests(const std::shared_ptr<const TcpListener>& listener) {
    TcpDoor door(listener, mine_.hello.token, options_.patience);
    std::vector<Seat> places(peers_.sockets.size());
    for (;;) {
      const std::vector<int> absent = missing(1);
      if (absent.empty()) return places;
      std::optional<TcpGuest> guest = door.next(deadline_, peers_.sockets);
      if (guest) {
        seat(*guest, places);
        continue;
      }
      char any = 0;
      for (int r = 1; r < options_.size; ++r)  // who has been let in waits silently
        if (socket(r).is_open() && socket(r).receive_some(&any, 1) != 0)
          throw Error(concat("rank ", r, " is gone before all ranks had come"), ErrorKind::peer);
      if (Clock::now() >= deadline_)
        throw Error(concat(ranks_text(absent), " of ", options_.size, " did not come to ", to_string(address_),
                           " within ", duration_text(options_.timeout), why_not(door)),
                    ErrorKind::peer);
    }
  }

  // Why the guest gets no seat; empty where it does.
  std::string problem_of(const TcpIntroduction& who) {
    if (who.size != options_.size)
      return concat("rank ", who.rank, " was started as one of ", who.size, " ranks, rank 0 as one of ", options_.size);
    if (who.rank == 0) return "two processes say that they are rank 0 of " + std::to_string(options_.size);
    if (who.rank < 0 || who.rank >= options_.size) return concat("there is no rank ", who.rank, " of ", options_.size);
    if (who.port < 1 || who.port > 65'535) return concat("rank ", who.rank, " cannot listen at port ", who.port);
    if (socket(who.rank).is_open())
      return concat("two processes say that they are rank ", who.rank, " of ", options_.size);
    return "";
  }

  // Who brings the token of a run is of it, and a mistake there is one of the run. Anybody else may be a stranger, whom
  // the ranks of this run do not answer for.
  void turn_away(const TcpGuest& guest, const std::string& problem) {
    refuse(guest.socket, problem);
    if (!options_.token.empty()) throw Error(problem);
    const std::string said = concat(problem, " (from ", address_of_peer(guest.socket).host, ")");
    if (std::find(refusals_.begin(), refusals_.end(), said) != refusals_.end() || refusals_.size() == kMostRefusals)
      return;
    refusals_.push_back(said);
    if (options_.tell) options_.tell(concat("sent a process away: ", said));
  }

  void seat(TcpGuest& guest, std::vector<Seat>& places) {
    const TcpIntroduction& who = guest.introduction;
    if (const std::string problem = problem_of(who); !problem.empty()) return turn_away(guest, problem);
    const TcpAddress from = address_of_peer(guest.socket);
    Seat& place = places[static_cast<std::size_t>(who.rank)];
    place.host = who.host;
    place.port = who.port;
    std::strncpy(place.address, from.host.c_str(), sizeof(place.address) - 1);
    places[0].host = mine_.host;
    peers_.hosts[static_cast<std::size_t>(who.rank)] = who.host;
    socket(who.rank) = std::move(guest.socket);
  }

  void visit() {
    const auto listener = std::make_shared<const TcpListener>(TcpAddress{address_.host, 0});
    mine_.port = listener->address().port;
    introduce(0, address_);
    const std::vector<Seat> places = read_answer();
    const std::string host = address_of_peer(socket(0)).host;
    for (int r = 0; r < options_.size; ++r) {
      const Seat& place = places[static_cast<std::size_t>(r)];
      peers_.hosts[static_cast<std::size_t>(r)] = place.host;
      TcpAddress at{place.address, place.port};
      if (at.is_loopback()) at.host = host;  // it is on rank 0's machine
      if (r > 0 && r < options_.rank) introduce(r, at);
    }
    TcpDoor door(listener, mine_.hello.token, options_.patience);
    for (;;) {
      const std::vector<int> absent = missing(options_.rank + 1);
      if (absent.empty()) return;
      std::optional<TcpGuest> guest = door.next(deadline_, {});
      if (!guest)
        throw Error(concat(ranks_text(absent), " did not connect to rank ", options_.rank, " within ",
                           duration_text(options_.timeout)),
                    ErrorKind::peer);
      const int r = guest->introduction.rank;
      const bool is_right =
          guest->introduction.size == options_.size && r > options_.rank && r < options_.size && !socket(r).is_open();
      if (is_right) socket(r) = std::move(guest->socket);
    }
  }

  void introduce(int to, const TcpAddress& at) {
    Socket made = connect_to(at, concat("rank ", to), deadline_);
    if (!write_all(made, &mine_, sizeof(mine_), deadline_))
      throw Error(concat("rank ", to, " is gone"), ErrorKind::peer);
    socket(to) = std::move(made);
  }

  std::vector<Seat> read_answer() {
    deadline_ = Clock::now() + options_.timeout;  // rank 0 may have been started later
    const Clock::time_point until = deadline_ + kGrace;
    TcpAnswer answer;
    if (!read_all(socket(0), &answer, sizeof(answer), until) || answer.magic != kTcpMagic) throw no_answer();
    if (answer.verdict != TcpVerdict::welcome) {
      std::string reason(std::min<std::uint64_t>(answer.bytes, kLongestRefusal), '\0');
      if (!read_all(socket(0), reason.data(), reason.size(), until)) throw no_answer();
      throw Error(MessageLines{reason}, answer.verdict == TcpVerdict::wrong_input ? ErrorKind::input : ErrorKind::peer);
    }
    std::vector<Seat> places(peers_.sockets.size());
    if (answer.bytes != places.size() * sizeof(Seat) || !read_all(socket(0), places.data(), answer.bytes, until))
      throw no_answer();
    for (Seat& place : places) place.address[sizeof(place.address) - 1] = '\0';
    return places;
  }
  Error no_answer() const {
    return Error(concat("rank 0 at ", to_string(address_), " ended before all ranks had come, or is no keel"),
                 ErrorKind::peer);
  }

  const TcpOptions& options_;
  TcpAddress address_;
  Clock::time_point deadline_;
  TcpIntroduction mine_;
  TcpPeers peers_;
  std::vector<std::string> refusals_;  // the first of them, each once
};

// Each rank has a connection to each other one.
void check_size(int size) {
  KEEL_CHECK(size >= 1, "a group of ranks needs one at least, got ", size);
  KEEL_CHECK(size <= kMostRanks, "at most ", kMostRanks, " ranks can find each other by an address, got ", size);
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return;
  KEEL_CHECK(static_cast<rlim_t>(size) < files.rlim_cur, size,
             " ranks need a connection each, and this process may open ", files.rlim_cur,
             " files; raise that by ulimit -n, or start the ranks by MPI");
}

}  // namespace

TcpPeers meet(const TcpOptions& options) {
  check_size(options.size);
  KEEL_CHECK(options.rank >= 0 && options.rank < options.size, "there is no rank ", options.rank, " of ", options.size);
  if (options.size == 1) return {std::vector<Socket>(1), {this_host()}};
  return Meeting(options).run();
}

}  // namespace keel
