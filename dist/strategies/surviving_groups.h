#pragma once
// Groups of ranks of which the others go on when one is lost.
//
// A group that loses a rank ends as a whole; the others agree who is left, repeat what they were about among them, and
// go on. What groups do together is cut into attempts, which all that are left have ended, or none: f, and then a
// barrier. Whoever has passed the barrier knows that all others have what f's collectives give. Where it breaks in the
// middle, the ranks tell each other how many attempts they have ended, and who is one behind has ended it, too.
//
// The ranks of one group pass together, or agree together: one that went on would wait in its group for one that waits
// for it to agree. So each tells its group how it came out of an attempt, and of attempts inside it; who has passed
// does not wait for what the others tell.

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/comm/lifeline.h"

namespace keel {

struct LostGroup {
  int number = 0;           // counted from 0, of those that there were in the beginning
  int first = 0, last = 0;  // its ranks
  int left = 0;             // groups that go on
};

class SurvivingGroups {
 public:
  // Every rank of `all`, which must outlive this, makes one; `group` ranks are a group. An Error of kind unsupported
  // where ranks end together (Communicator::split_apart()).
  SurvivingGroups(Communicator& all, int group);
  ~SurvivingGroups();
  SurvivingGroups(const SurvivingGroups&) = delete;
  SurvivingGroups& operator=(const SurvivingGroups&) = delete;

  // All ranks that are left, in their order. The object stays; rank(), size() and losses() change, in attempts alone.
  Communicator& ranks();
  // Of those the ones of this rank's place in their groups: one of each group. The same. Every rank calls it.
  Communicator& axis();
  int ranks_of_group() const { return of_group_; }

  // See Communicator::attempt(), which calls this for ranks() and axis(). What is begun there between two attempts may
  // fail on some ranks alone; it is waited for in an attempt, and begun again in it where losses() has changed. An
  // attempt inside another one is part of it; ranks of a group leave it together, so that f may go on with collectives
  // of the group. Throws where this rank's own group has lost a rank, where nobody was
  // lost, and what f throws otherwise; an AgreedError, which all ranks throw, once all have it.
  void attempt(const std::function<void()>& f);
  // Called on every rank that is left, for each group that is lost; asks for no collective.
  void when_lost(std::function<void(const LostGroup&)> tell) { tell_ = std::move(tell); }

 private:
  class Ranks;

  enum class Outcome : unsigned char { broken, well, passed };  // of what a rank was about; passed: of an attempt
  struct Thrown {
    std::exception_ptr broken;  // as a rank is gone
    std::exception_ptr by_all;  // an AgreedError
  };

  Thrown thrown_by(const std::function<void()>& f);
  void attempt_inside(const std::function<void()>& f);
  bool has_group_passed(bool has_passed);
  bool have_all_in_group(bool done);
  // Returns whether the others had ended the attempt that this rank is in, and that `broken` has broken.
  bool recover(const std::exception_ptr& broken);
  bool make_ranks();
  void note_lost(const std::vector<int>& ranks_left);

  int of_group_, groups_, group_, place_;
  std::unique_ptr<Lifeline> lifeline_;
  std::unique_ptr<Ranks> ranks_, axis_;
  std::vector<bool> is_there_;  // by group
  std::function<void(const LostGroup&)> tell_;
  int depth_ = 0;             // of attempts that the rank is inside
  bool group_knows_ = false;  // that one of its ranks cannot end the attempt
  bool was_behind_ = false;   // in the attempt before the one that comes next
  std::int64_t ended_ = 0;    // attempts
  std::int64_t losses_ = 0;
  const int exceptions_ = std::uncaught_exceptions();
  std::unique_ptr<Communicator> own_;             // the ranks of the group; null: it has one alone
  std::optional<GatheringOf<Outcome>> outcomes_;  // of the last attempt, which this rank has passed
};

}  // namespace keel
