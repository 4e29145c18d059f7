#pragma once
// Who is left of some ranks of which others have gone.

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/transport.h"

namespace keel {

// Those that are left, as ranks of the communicator that the lifeline is of, ascending, and what each has said.
struct Survivors {
  std::vector<int> ranks;
  std::vector<std::int64_t> words;
};

// One rank's part in agreeing who is left. It outlives failures of the communicators beside it.
class Lifeline {
 public:
  virtual ~Lifeline() = default;
  // Every rank that is there calls it; blocks until all agree, also where more ranks go meanwhile. Nobody that was
  // missing once comes back. An Error of kind peer where this rank is missing to the others, or where one of them
  // neither comes nor goes within the communicator's time-out.
  virtual Survivors agree(std::int64_t word) = 0;
  // A communicator of those that were agreed on last, in their order, with a failure of its own (split_apart()). Each
  // of them calls it then; an Error of kind peer where one has gone since.
  virtual std::unique_ptr<Communicator> ranks() = 0;
};

// The agreement by itself, among the ranks of a transport that Transport::lifeline() has made. Ranks of one group go
// together: groups[r] is that of rank r.
//
// In each round every rank sends a ballot, the ranks that are missing and the words, to all that are not missing, and
// waits for theirs or for their end. A rank that gets its own ballot from all of them in one round has the result, and
// says so; whoever hears that takes the result over. A round without a result has found a rank that is gone, so that
// there are at most as many rounds as ranks, and one more.
class Agreement {
 public:
  // `meanwhile` is called again and again while the rank waits: others may come only once it has gone on with what they
  // do together.
  Agreement(Transport& lifeline, std::vector<int> groups, std::chrono::milliseconds timeout,
            std::function<void()> meanwhile = {});
  Survivors agree(std::int64_t word);

 private:
  struct Ballot;
  // The message goes first, which reads the numbers.
  struct Sent {
    std::shared_ptr<const std::vector<std::int64_t>> numbers;
    std::unique_ptr<Message> message;
  };

  void send(const Ballot& ballot, std::uint64_t tag);
  // The rank's ballot; none where it is gone.
  std::optional<Ballot> receive(int from, std::uint64_t tag, std::chrono::steady_clock::time_point deadline) const;
  void mark_groups(Ballot& ballot) const;
  void check_own_group(const Ballot& ballot) const;
  Survivors take(const Ballot& result);

  Transport& lifeline_;
  std::vector<int> groups_;
  std::chrono::milliseconds timeout_;
  std::function<void()> meanwhile_;
  std::vector<std::int64_t> missing_;  // by rank: 1 or 0, as last agreed
  std::uint64_t number_ = 0;           // of agreements
  std::list<Sent> sent_;               // which may still be on their way; none is ever moved
};

}  // namespace keel
