#include "keel/dist/comm/tcp_meeting.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <list>
#include <optional>

#include "keel/runtime/error.h"

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMagic = 0x6c65656b;  // "keel"
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kLongestRefusal = 4'000;
// Rank 0 gives up first, as it knows who did not come.
constexpr auto kGrace = std::chrono::seconds(2);

// What a connection begins with.
struct Hello {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion, unused = 0;
  std::uint64_t token = 0;
};
struct Introduction {
  Hello hello = {};
  std::int32_t rank = 0, size = 0, port = 0, unused = 0;  // port: where the rank listens
  std::uint64_t host = 0;
};
static_assert(sizeof(Hello) == 16 && sizeof(Introduction) == 40);

// What rank 0 answers: a Seat for each rank, or why there is none.
enum class Verdict : std::uint32_t { welcome, wrong_input, others_failed };
struct Answer {
  std::uint32_t magic = kMagic;
  Verdict verdict = Verdict::welcome;
  std::uint64_t bytes = 0;
};
struct Seat {
  std::uint64_t host = 0;
  std::int32_t port = 0;
  char address[52] = "";
};

struct Guest {
  Socket socket;
  Introduction introduction = {};
  std::size_t received = 0;  // bytes of it
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

// Whether it could be done by then; not at the end of a connection.
bool transfer(const Socket& socket, std::byte* data, std::size_t bytes, bool is_send, Clock::time_point deadline) {
  while (bytes > 0) {
    const std::ptrdiff_t moved = is_send ? socket.send_some(data, bytes) : socket.receive_some(data, bytes);
    if (moved < 0) return false;
    data += moved;
    bytes -= static_cast<std::size_t>(moved);
    if (moved > 0) continue;
    if (Clock::now() >= deadline) return false;
    pollfd wait{socket.file(), static_cast<short>(is_send ? POLLOUT : POLLIN), 0};
    ::poll(&wait, 1, 10);
  }
  return true;
}
bool write_all(const Socket& socket, const void* data, std::size_t bytes, Clock::time_point deadline) {
  return transfer(socket, const_cast<std::byte*>(static_cast<const std::byte*>(data)), bytes, true, deadline);
}
bool read_all(const Socket& socket, void* data, std::size_t bytes, Clock::time_point deadline) {
  return transfer(socket, static_cast<std::byte*>(data), bytes, false, deadline);
}

void refuse(const Socket& socket, const std::string& reason, Verdict verdict = Verdict::wrong_input) {
  const Answer answer{.verdict = verdict, .bytes = reason.size()};
  const Clock::time_point soon = Clock::now() + std::chrono::milliseconds(100);
  if (write_all(socket, &answer, sizeof(answer), soon)) write_all(socket, reason.data(), reason.size(), soon);
}

// Lets in who says the right things; strays are sent away, and one that says nothing keeps nobody waiting.
class Door {
 public:
  Door(std::shared_ptr<const TcpListener> listener, std::uint64_t token)
      : listener_(std::move(listener)), token_(token) {}

  // The next guest; none at the deadline. `seated` are those let in: returns early when one of them moves.
  std::optional<Guest> next(Clock::time_point deadline, const std::vector<Socket>& seated) {
    while (Clock::now() < deadline) {
      std::vector<pollfd> waits = {{listener_->file(), POLLIN, 0}};
      for (const Guest& guest : guests_) waits.push_back({guest.socket.file(), POLLIN, 0});
      for (const Socket& socket : seated) waits.push_back({socket.file(), POLLIN, 0});
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      if (::poll(waits.data(), waits.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000))) <= 0) continue;
      if (waits[0].revents != 0)
        for (Socket socket = listener_->accept(); socket.is_open(); socket = listener_->accept())
          guests_.push_back({std::move(socket)});
      if (auto guest = listen_to_guests()) return guest;
      for (std::size_t i = waits.size() - seated.size(); i < waits.size(); ++i)
        if (waits[i].revents != 0) return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  std::optional<Guest> listen_to_guests() {
    for (auto at = guests_.begin(); at != guests_.end();) {
      const std::ptrdiff_t received = at->socket.receive_some(
          reinterpret_cast<std::byte*>(&at->introduction) + at->received, sizeof(Introduction) - at->received);
      if (received > 0) at->received += static_cast<std::size_t>(received);
      const Hello& hello = at->introduction.hello;
      const bool is_stray = at->received >= sizeof(Hello) && hello.magic != kMagic;
      if (received < 0 || is_stray) {
        at = guests_.erase(at);
      } else if (at->received < sizeof(Introduction)) {
        ++at;
      } else if (hello.version != kVersion || hello.token != token_) {
        refuse(at->socket, hello.version != kVersion ? "rank 0 runs another version of keel"
                                                     : "rank 0 belongs to another run: its token differs");
        at = guests_.erase(at);
      } else {
        Guest guest = std::move(*at);
        guests_.erase(at);
        return guest;
      }
    }
    return std::nullopt;
  }

  std::shared_ptr<const TcpListener> listener_;
  std::uint64_t token_;
  std::list<Guest> guests_;
};

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
  Socket& socket(int rank) { return peers_.sockets[static_cast<std::size_t>(rank)]; }

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
      const Answer answer{.bytes = places.size() * sizeof(Seat)};
      for (int r = 1; r < options_.size; ++r)
        if (!write_all(socket(r), &answer, sizeof(answer), deadline_ + kGrace) ||
            !write_all(socket(r), places.data(), answer.bytes, deadline_ + kGrace))
          throw Error(concat("rank ", r, " is gone"), ErrorKind::peer);
    } catch (const Error& error) {
      for (const Socket& peer : peers_.sockets)
        if (peer.is_open())
          refuse(peer, error.what(), error.kind() == ErrorKind::peer ? Verdict::others_failed : Verdict::wrong_input);
      throw;
    }
  }

  std::vector<Seat> receive_guests(const std::shared_ptr<const TcpListener>& listener) {
    Door door(listener, mine_.hello.token);
    std::vector<Seat> places(peers_.sockets.size());
    for (;;) {
      const std::vector<int> absent = missing(1);
      if (absent.empty()) return places;
      std::optional<Guest> guest = door.next(deadline_, peers_.sockets);
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
                           " within ", duration_text(options_.timeout)),
                    ErrorKind::peer);
    }
  }

  void seat(Guest& guest, std::vector<Seat>& places) {
    const Introduction& who = guest.introduction;
    const TcpAddress from = address_of_peer(guest.socket);
    std::string problem;
    if (who.size != options_.size)
      problem =
          concat("rank ", who.rank, " was started as one of ", who.size, " ranks, rank 0 as one of ", options_.size);
    else if (who.rank < 1 || who.rank >= options_.size || socket(who.rank).is_open())
      problem = concat("two processes say that they are rank ", who.rank, " of ", options_.size);
    if (!problem.empty()) {
      refuse(guest.socket, problem);
      throw Error(problem);
    }
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
    Door door(listener, mine_.hello.token);
    for (;;) {
      const std::vector<int> absent = missing(options_.rank + 1);
      if (absent.empty()) return;
      std::optional<Guest> guest = door.next(deadline_, {});
      if (!guest)
        throw Error(concat(ranks_text(absent), " did not connect to rank ", options_.rank, " within ",
                           duration_text(options_.timeout)),
                    ErrorKind::peer);
      const int r = guest->introduction.rank;
      const bool is_right = r > options_.rank && r < options_.size && !socket(r).is_open();
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
    Answer answer;
    if (!read_all(socket(0), &answer, sizeof(answer), until) || answer.magic != kMagic) throw no_answer();
    if (answer.verdict != Verdict::welcome) {
      std::string reason(std::min<std::uint64_t>(answer.bytes, kLongestRefusal), '\0');
      if (!read_all(socket(0), reason.data(), reason.size(), until)) throw no_answer();
      throw Error(reason, answer.verdict == Verdict::wrong_input ? ErrorKind::input : ErrorKind::peer);
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
  Introduction mine_;
  TcpPeers peers_;
};

}  // namespace

TcpPeers meet(const TcpOptions& options) {
  KEEL_CHECK(options.size >= 1, "a group of ranks needs one at least, got ", options.size);
  KEEL_CHECK(options.rank >= 0 && options.rank < options.size, "there is no rank ", options.rank, " of ", options.size);
  if (options.size == 1) return {std::vector<Socket>(1), {this_host()}};
  return Meeting(options).run();
}

}  // namespace keel
