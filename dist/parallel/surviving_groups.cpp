#include "keel/dist/parallel/surviving_groups.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/comm/replaceable_communicator.h"
#include "keel/runtime/error.h"

namespace keel {

class SurvivingGroups::Ranks : public ReplaceableCommunicator {
 public:
  Ranks(std::unique_ptr<Communicator> now, SurvivingGroups& groups)
      : ReplaceableCommunicator(std::move(now)), groups_(groups) {}
  Work begin(const Collective& collective) override {
    // The others have asked for it, if at all, before they heard of the loss: of groups that are not there any more.
    if (groups_.was_behind_ && !groups_.is_inside_)
      throw Error(concat(collective, " was begun before a group was lost"), ErrorKind::peer);
    return ReplaceableCommunicator::begin(collective);
  }
  void attempt(const std::function<void()>& f) override { groups_.attempt(f); }
  std::int64_t losses() const override { return groups_.losses_; }

 private:
  SurvivingGroups& groups_;
};

SurvivingGroups::SurvivingGroups(Communicator& all, int group)
    : of_group_(group),
      groups_(all.size() / group),
      group_(all.rank() / group),
      place_(all.rank() % group),
      is_there_(static_cast<std::size_t>(groups_), true) {
  KEEL_CHECK(all.size() % group == 0, "groups of ", group, " ranks do not divide the ", all.size(), " that there are");
  std::vector<int> groups;
  for (int r = 0; r < all.size(); ++r) groups.push_back(r / group);
  lifeline_ = all.lifeline(groups);
  ranks_ = std::make_unique<Ranks>(all.split_apart(0, all.rank()), *this);
  axis_ = std::make_unique<Ranks>(ranks_->split(place_, group_), *this);
  if (group > 1) own_ = all.split_apart(group_, place_);
  attempt([] {});  // who is here may go; the others are here, too
}

// One that ends by an exception, whose reason its caller tells, does not let the others wait for it.
SurvivingGroups::~SurvivingGroups() {
  if (std::uncaught_exceptions() > exceptions_) ranks_->fail(concat("rank ", ranks_->rank(), " has failed"));
}

Communicator& SurvivingGroups::ranks() { return *ranks_; }

Communicator& SurvivingGroups::axis() { return *axis_; }

void SurvivingGroups::attempt(const std::function<void()>& f) {
  if (is_inside_) return f();
  is_inside_ = true;
  was_behind_ = false;
  const std::shared_ptr<void> leaves(nullptr, [this](void*) { is_inside_ = false; });
  std::exception_ptr thrown_by_all;
  for (bool has_ended = false; !has_ended;) {
    thrown_by_all = nullptr;
    std::exception_ptr broken = failure_of([&] {
      try {
        f();
      } catch (const AgreedError&) { thrown_by_all = std::current_exception(); }
    });
    if (!broken) broken = failure_of([&] { end_together(true); });
    else failure_of([&] { end_together(false); });
    if (broken) has_ended = recover(broken);
    else has_ended = ++ended_ > 0;
  }
  if (thrown_by_all) std::rethrow_exception(thrown_by_all);
}

// What f throws where a rank is gone; null: it returns.
std::exception_ptr SurvivingGroups::failure_of(const std::function<void()>& f) {
  try {
    f();
    return nullptr;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::peer) throw;
    ranks_->fail(concat("rank ", ranks_->rank(), " has seen that a rank is gone"));  // so that all come here
    return std::current_exception();
  }
}

// Among ranks of one group the first speaks for all: if one of them went on, and another one had to agree with it first
// who is left, each would wait for the other.
void SurvivingGroups::end_together(bool is_well) {
  if (own_ == nullptr) {
    if (is_well) axis_->barrier();
    return;
  }
  const std::vector<int> well = gather_values(*own_, is_well ? 1 : 0);
  bool have_all_come = std::ranges::count(well, 0) == 0;
  std::exception_ptr broken;
  if (have_all_come && place_ == 0) broken = failure_of([&] { axis_->barrier(); });
  have_all_come = gather_values(*own_, have_all_come && !broken ? 1 : 0).front() == 1;
  if (broken) std::rethrow_exception(broken);
  if (!have_all_come) throw Error("a rank of the group has seen that a rank is gone", ErrorKind::peer);
}

bool SurvivingGroups::recover(const std::exception_ptr& broken) {
  const std::int64_t losses = losses_;
  for (;;) {
    const Survivors survivors = lifeline_->agree(ended_);
    if (!make_ranks()) continue;
    note_lost(survivors.ranks);
    was_behind_ = std::ranges::max(survivors.words) > ended_;
    if (was_behind_) ++ended_;
    else if (losses == losses_) std::rethrow_exception(broken);  // what broke it would break it again
    return was_behind_;
  }
}

// False: one more has gone meanwhile.
bool SurvivingGroups::make_ranks() {
  try {
    ranks_->replace(lifeline_->ranks());
    axis_->replace(ranks_->split(place_, group_));
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::peer) throw;
    return false;
  }
}

void SurvivingGroups::note_lost(const std::vector<int>& ranks_left) {
  std::vector<int> lost;
  for (int each = 0; each < groups_; ++each) {
    const auto at = static_cast<std::size_t>(each);
    if (!is_there_[at] || std::ranges::find(ranks_left, each * of_group_) != ranks_left.end()) continue;
    is_there_[at] = false;
    lost.push_back(each);
  }
  losses_ += std::ssize(lost);
  for (const int each : lost)
    if (tell_)
      tell_(
          {each, each * of_group_, (each + 1) * of_group_ - 1, static_cast<int>(std::ranges::count(is_there_, true))});
}

}  // namespace keel
