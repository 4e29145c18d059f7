#include "keel/dist/comm/lifeline.h"

#include <algorithm>
#include <utility>

#include "keel/runtime/error.h"

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kIdleForBallots(1'000);

}  // namespace

// As it travels: whether it is the result, and for each rank whether it is missing, whether its word is known, and the
// word.
struct Agreement::Ballot {
  explicit Ballot(std::size_t ranks) : numbers(1 + 3 * ranks) {}

  std::size_t ranks() const { return numbers.size() / 3; }
  bool is_result() const { return numbers[0] != 0; }
  std::int64_t& missing(std::size_t rank) { return numbers[1 + rank]; }
  bool is_missing(std::size_t rank) const { return numbers[1 + rank] != 0; }
  bool misses_the_same(const Ballot& other) const {
    return std::equal(numbers.begin() + 1, numbers.begin() + 1 + static_cast<std::ptrdiff_t>(ranks()),
                      other.numbers.begin() + 1);
  }
  void say(std::size_t rank, std::int64_t word) {
    numbers[1 + ranks() + rank] = 1;
    numbers[1 + 2 * ranks() + rank] = word;
  }
  std::int64_t word(std::size_t rank) const { return numbers[1 + 2 * ranks() + rank]; }
  void add(const Ballot& other) {
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (other.is_missing(r)) missing(r) = 1;
      if (other.numbers[1 + ranks() + r] != 0) say(r, other.word(r));
    }
  }

  std::vector<std::int64_t> numbers;
};

Agreement::Agreement(Transport& lifeline, std::vector<int> groups, std::chrono::milliseconds timeout,
                     std::function<void()> meanwhile)
    : lifeline_(lifeline),
      groups_(std::move(groups)),
      timeout_(timeout),
      meanwhile_(std::move(meanwhile)),
      missing_(groups_.size()) {
  KEEL_CHECK(std::ssize(groups_) == lifeline.size(), "groups of ", groups_.size(), " ranks were given for ",
             lifeline.size());
}

Survivors Agreement::agree(std::int64_t word) {
  const auto own = static_cast<std::size_t>(lifeline_.rank());
  const Clock::time_point deadline = Clock::now() + timeout_;
  Ballot mine(groups_.size());
  std::ranges::copy(missing_, mine.numbers.begin() + 1);
  mine.say(own, word);
  ++number_;
  for (std::uint64_t round = 0;; ++round) {
    const std::uint64_t tag = number_ << 32 | round;
    const Ballot before = mine;
    send(before, tag);
    bool is_unanimous = true;
    std::optional<Ballot> result;
    for (std::size_t r = 0; r < groups_.size(); ++r) {
      if (r == own || before.is_missing(r)) continue;
      const std::optional<Ballot> theirs = receive(static_cast<int>(r), tag, deadline);
      if (theirs && theirs->is_result()) result = theirs;
      is_unanimous = is_unanimous && theirs && theirs->misses_the_same(before);
      if (theirs) mine.add(*theirs);
      else mine.missing(r) = 1;
    }
    if (!result && is_unanimous) {
      result = mine;
      result->numbers[0] = 1;
    }
    if (result) {
      send(*result, tag + 1);
      return take(*result);
    }
    mark_groups(mine);
    check_own_group(mine);
  }
}

void Agreement::mark_groups(Ballot& ballot) const {
  const Ballot given = ballot;
  for (std::size_t r = 0; r < groups_.size(); ++r)
    for (std::size_t other = 0; given.is_missing(r) && other < groups_.size(); ++other)
      if (groups_[other] == groups_[r]) ballot.missing(other) = 1;
}

void Agreement::check_own_group(const Ballot& ballot) const {
  const auto own = static_cast<std::size_t>(lifeline_.rank());
  if (!ballot.is_missing(own)) return;
  throw Error(concat("rank ", own, " ends with group ", groups_[own], ", of which a rank is gone"), ErrorKind::peer);
}

Survivors Agreement::take(const Ballot& result) {
  check_own_group(result);
  missing_.assign(result.numbers.begin() + 1, result.numbers.begin() + 1 + std::ssize(groups_));
  Survivors survivors;
  for (std::size_t r = 0; r < groups_.size(); ++r) {
    if (result.is_missing(r)) continue;
    survivors.ranks.push_back(static_cast<int>(r));
    survivors.words.push_back(result.word(r));
  }
  return survivors;
}

void Agreement::send(const Ballot& ballot, std::uint64_t tag) {
  std::erase_if(sent_, [](const Sent& each) {
    try {
      return each.message->has_finished();
    } catch (const Error&) { return true; }  // nobody is there who would read it
  });
  const auto numbers = std::make_shared<const std::vector<std::int64_t>>(ballot.numbers);
  for (std::size_t r = 0; r < groups_.size(); ++r) {
    const auto to = static_cast<int>(r);
    if (to == lifeline_.rank() || ballot.is_missing(r)) continue;
    sent_.push_back({numbers, lifeline_.send(to, tag, numbers->data(), numbers->size() * sizeof(std::int64_t))});
  }
}

std::optional<Agreement::Ballot> Agreement::receive(int from, std::uint64_t tag, Clock::time_point deadline) const {
  Ballot ballot(groups_.size());
  try {
    const auto message =
        lifeline_.receive(from, tag, ballot.numbers.data(), ballot.numbers.size() * sizeof(std::int64_t));
    while (!message->has_finished() && Clock::now() < deadline) {
      if (meanwhile_) meanwhile_();
      lifeline_.idle(kIdleForBallots);
    }
    if (message->has_finished()) return ballot;
  } catch (const Error&) { return std::nullopt; }
  throw Error(concat("rank ", from, " neither came within ", timeout_.count(),
                     " ms to say that it is there, nor has it ended; the others go on without one whose end they see"),
              ErrorKind::peer);
}

}  // namespace keel
