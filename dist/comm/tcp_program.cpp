#include "keel/dist/comm/tcp_program.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <exception>
#include <thread>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::size_t kLongestReason = 1'000;

std::string reason_of(int rank, const std::string& text) {
  return text.empty() ? concat("rank ", rank, " failed and gave no reason") : text;
}

// How long a rank that goes waits until the others go, too: in peace, and otherwise for the reason to reach them.
constexpr auto kTimeToPart = std::chrono::seconds(1);
constexpr auto kTimeToHear = std::chrono::milliseconds(100);

std::uint64_t without_internal(std::uint64_t group) { return group & ~(std::uint64_t{1} << 63); }

}  // namespace

TcpProgram::TcpProgram(int rank, TcpPeers peers)
    : rank_(rank),
      hosts_(std::move(peers.hosts)),
      goodbyes_(peers.sockets.size()),
      exceptions_(std::uncaught_exceptions()) {
  for (Socket& socket : peers.sockets)
    connections_.emplace_back(static_cast<int>(connections_.size()), std::move(socket));
}

TcpProgram::~TcpProgram() {
  try {
    part();
  } catch (const std::exception&) {}  // the others see that the connections end
}

bool TcpProgram::has_failed() const { return failures_.size() > survived_ || std::uncaught_exceptions() > exceptions_; }

// A connection that is closed with something unread may take along what was sent last, so ranks wait for each other.
void TcpProgram::part() {
  is_parting_ = true;
  const bool failed = has_failed();
  const Clock::time_point until = Clock::now() + (failed ? kTimeToHear : Clock::duration(kTimeToPart));
  for (int r = 0; r < size(); ++r)
    if (r != rank_) tell(r, {.kind = TcpHeader::goodbye, .tag = failed ? 1U : 0U}, {}, false);
  const auto is_done = [&](const TcpConnection& peer) {
    const auto r = static_cast<std::size_t>(&peer - connections_.data());
    return !peer.is_open() || (goodbyes_[r] && !peer.wants_to_send());
  };
  while (!std::all_of(connections_.begin(), connections_.end(), is_done) && Clock::now() < until)
    idle(std::chrono::milliseconds(5));
}

std::shared_ptr<TcpOutgoing> TcpProgram::send(int to, std::uint64_t group, std::uint64_t tag, const void* data,
                                              std::size_t bytes) {
  auto frame = std::make_shared<TcpOutgoing>();
  frame->header = {.group = group, .tag = tag, .bytes = bytes};
  frame->data = static_cast<const std::byte*>(data);
  connection(to).push(frame);
  if (holds_ == 0) connection(to).flush();
  return frame;
}

void TcpProgram::let_go() {
  if (--holds_ > 0) return;
  for (TcpConnection& each : connections_) each.flush();
}

std::shared_ptr<TcpIncoming> TcpProgram::receive(int from, std::uint64_t group, std::uint64_t tag, void* data,
                                                 std::size_t bytes) {
  const Channel channel{group, from, tag};
  auto* const memory = static_cast<std::byte*>(data);
  if (const auto at = arrived_.find(channel); at != arrived_.end()) {
    std::shared_ptr<TcpIncoming> arrived = std::move(at->second.front());
    at->second.pop_front();
    if (at->second.empty()) arrived_.erase(at);
    const bool fits = arrived->bytes == bytes;
    if (fits) std::copy_n(arrived->memory, arrived->received, memory);
    arrived->memory = fits ? memory : nullptr;  // what is missing goes there
    arrived->has_own = false;
    arrived->own.reset();
    return arrived;
  }
  auto incoming = std::make_shared<TcpIncoming>();
  incoming->memory = memory;
  incoming->bytes = bytes;
  posted_[channel].push_back(incoming);
  return incoming;
}

void TcpProgram::give_up_send(int to, const std::shared_ptr<TcpOutgoing>& frame) { connection(to).give_up(frame); }

void TcpProgram::give_up_receive(int from, std::uint64_t group, std::uint64_t tag,
                                 const std::shared_ptr<TcpIncoming>& incoming) {
  incoming->memory = nullptr;
  const auto at = posted_.find({group, from, tag});
  if (at == posted_.end()) return;
  std::erase(at->second, incoming);
  if (at->second.empty()) posted_.erase(at);
}

std::shared_ptr<TcpIncoming> TcpProgram::place_for(int from, const TcpHeader& header) {
  const Channel channel{header.group, from, header.tag};
  if (const auto at = posted_.find(channel); at != posted_.end()) {
    std::shared_ptr<TcpIncoming> incoming = std::move(at->second.front());
    at->second.pop_front();
    if (at->second.empty()) posted_.erase(at);
    if (incoming->bytes != header.bytes) incoming->memory = nullptr;  // who waits for it sees that
    return incoming;
  }
  auto incoming = std::make_shared<TcpIncoming>();
  if (left_.contains(without_internal(header.group))) return incoming;  // it is lost
  incoming->has_own = true;
  arrived_[channel].push_back(incoming);
  return incoming;
}

void TcpProgram::hear(int from, const TcpHeader& header, const std::string& text) {
  switch (header.kind) {
    case TcpHeader::failed: failures_.try_emplace(header.group, reason_of(from, text)); break;
    case TcpHeader::left: departures_[{header.group, from}] = {Clock::now(), header.tag == 1}; break;
    case TcpHeader::goodbye: goodbyes_[static_cast<std::size_t>(from)] = {Clock::now(), header.tag == 1}; break;
    default: return;
  }
  if (header.kind != TcpHeader::failed) forget_finished_groups();
}

std::optional<TcpProgram::Left> TcpProgram::departure(std::uint64_t group, int rank) const {
  if (const auto& goodbye = goodbyes_[static_cast<std::size_t>(rank)]) return goodbye;
  const auto at = departures_.find({without_internal(group), rank});
  return at == departures_.end() ? std::nullopt : std::optional(at->second);
}

void TcpProgram::leave(std::uint64_t group, const std::vector<int>& members) {
  const bool abruptly = has_failed();
  for (const int member : members)
    if (member != rank_) tell(member, {.kind = TcpHeader::left, .group = group, .tag = abruptly ? 1U : 0U}, {}, false);
  left_[group] = members;
  for (const std::uint64_t lost : {group, internal(group)})
    arrived_.erase(arrived_.lower_bound({lost, 0, 0}), arrived_.lower_bound({lost + 1, 0, 0}));
  forget_finished_groups();
}

// Those that all ranks have left: nothing more can come.
void TcpProgram::forget_finished_groups() {
  std::erase_if(left_, [&](const auto& group) {
    const bool is_over = std::all_of(group.second.begin(), group.second.end(), [&](int member) {
      return member == rank_ || departure(group.first, member).has_value();
    });
    if (is_over)
      for (const int member : group.second) departures_.erase({group.first, member});
    return is_over;
  });
}

void TcpProgram::tell(int rank, const TcpHeader& header, const std::string& text, bool first) {
  if (!connection(rank).is_open()) return;
  auto frame = std::make_shared<TcpOutgoing>();
  frame->header = header;
  frame->header.bytes = text.size();
  frame->own.resize(text.size());
  std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), frame->own.begin());
  frame->data = frame->own.data();
  first ? connection(rank).push_first(std::move(frame)) : connection(rank).push(std::move(frame));
  connection(rank).flush();
}

void TcpProgram::tell_failure(std::uint64_t family, const std::string& reason) {
  if (!failures_.try_emplace(family, reason).second) return;
  const auto joined = families_.find(family);
  for (int r = 0; r < size(); ++r)
    if (r != rank_ && (joined == families_.end() || std::ranges::count(joined->second.members, r) > 0))
      tell(r, {.kind = TcpHeader::failed, .group = family}, reason, true);
}

void TcpProgram::fail(std::uint64_t family, const std::string& reason) noexcept {
  if (family == kNoFamily) return;
  try {
    look();
    const std::string said = reason_of(rank_, reason);
    tell_failure(family, said.size() <= kLongestReason ? said : said.substr(0, kLongestReason) + " ...");
  } catch (const std::exception&) {}  // those who are not told run into their time-outs
}

std::string TcpProgram::failure(std::uint64_t family) const {
  const auto at = failures_.find(family);
  return at == failures_.end() ? std::string() : at->second;
}

void TcpProgram::throw_failure(std::uint64_t family) const {
  if (failures_.empty()) return;
  if (const std::string reason = failure(family); !reason.empty()) throw Error(MessageLines{reason}, ErrorKind::peer);
}

void TcpProgram::join_family(std::uint64_t family, const std::vector<int>& members) {
  Family& joined = families_[family];
  if (joined.groups++ > 0) return;
  joined.members = members;
  for (const int member : members) check_end(member, family, members);
}

void TcpProgram::leave_family(std::uint64_t family) {
  const auto at = families_.find(family);
  if (--at->second.groups == 0) families_.erase(at);
}

bool TcpProgram::is_gone(int rank) const {
  return rank != rank_ && !connections_[static_cast<std::size_t>(rank)].is_open() && !is_parting_ &&
         !goodbyes_[static_cast<std::size_t>(rank)];
}

// A rank whose connection has ended without a goodbye is gone, whatever became of it.
void TcpProgram::check_end(int rank) {
  if (!is_gone(rank)) return;
  for (const auto& [family, joined] : families_) check_end(rank, family, joined.members);
}

void TcpProgram::check_end(int rank, std::uint64_t family, const std::vector<int>& members) {
  if (family != kNoFamily && is_gone(rank) && std::ranges::find(members, rank) != members.end())
    tell_failure(family, concat("rank ", rank, " is gone"));
}

void TcpProgram::look_at(int rank) {
  TcpConnection& peer = connection(rank);
  if (!peer.is_open()) return;
  peer.flush();
  if (peer.read(*this)) note_progress();
  check_end(rank);
}

struct TcpProgram::Files {
  std::vector<pollfd> waits = {};
  std::vector<int> ranks = {};  // of each

  // Blocks until something can be moved, for `limit` at most.
  void wait(std::chrono::microseconds limit) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
    const timespec pause{seconds.count(), static_cast<long>((limit - seconds).count()) * 1'000};
    if (::ppoll(waits.data(), waits.size(), &pause, nullptr) < 0)
      for (pollfd& each : waits) each.revents = 0;
  }
};

TcpProgram::Files TcpProgram::files() const {
  Files files;
  for (int r = 0; r < size(); ++r) {
    const TcpConnection& peer = connections_[static_cast<std::size_t>(r)];
    if (!peer.is_open()) continue;
    files.waits.push_back({peer.file(), static_cast<short>(POLLIN | (peer.wants_to_send() ? POLLOUT : 0)), 0});
    files.ranks.push_back(r);
  }
  return files;
}

void TcpProgram::look_at(const Files& files) {
  for (std::size_t i = 0; i < files.waits.size(); ++i)
    if (files.waits[i].revents != 0) look_at(files.ranks[i]);
}

void TcpProgram::look() {
  Files now = files();
  now.wait(std::chrono::microseconds(0));
  look_at(now);
}

// Another thread may move the same meanwhile, or close a connection: then there is nothing to be done.
void TcpProgram::idle(std::chrono::microseconds limit) {
  auto own = turn();
  Files now = files();
  own.unlock();
  now.wait(limit);
  own.lock();
  look_at(now);
}

}  // namespace keel
