#include "keel/dist/strategies/surviving_groups.h"

#include <algorithm>
#include <utility>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/replaceable_communicator.h"
#include "keel/runtime/error.h"

namespace keel {

class SurvivingGroups::Ranks : public ReplaceableCommunicator {
 public:
  Ranks(std::unique_ptr<Communicator> now, SurvivingGroups& groups)
      : ReplaceableCommunicator(std::move(now)), groups_(groups) {}
  Work begin(const Collective& collective) override {
    // The others have asked for it, if at all, before they heard of the loss: of groups that are not there any more.
    if (groups_.was_behind_ && groups_.depth_ == 0)
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

// One that ends by an exception, whose reason its caller tells, does not let the others wait for it. Any other one
// stays until its group has heard that it has passed.
SurvivingGroups::~SurvivingGroups() {
  const bool has_failed = std::uncaught_exceptions() > exceptions_;
  if (has_failed) ranks_->fail(concat("rank ", ranks_->rank(), " has failed"));
  try {
    if (outcomes_ && !has_failed) outcomes_->wait();
  } catch (const std::exception&) {}  // they have gone
}

Communicator& SurvivingGroups::ranks() { return *ranks_; }

Communicator& SurvivingGroups::axis() { return *axis_; }

void SurvivingGroups::attempt(const std::function<void()>& f) {
  const std::shared_ptr<void> leaves(nullptr, [this](void*) { --depth_; });
  if (++depth_ > 1) return attempt_inside(f);
  was_behind_ = false;
  for (;;) {
    group_knows_ = false;
    Thrown thrown = thrown_by(f);
    if (!thrown.broken) thrown.broken = thrown_by([&] { ranks_->barrier(); }).broken;
    const bool has_passed = has_group_passed(!thrown.broken);
    if (has_passed) ++ended_;
    if (!has_passed && !recover(thrown.broken)) continue;
    if (thrown.by_all) std::rethrow_exception(thrown.by_all);
    return;
  }
}

void SurvivingGroups::attempt_inside(const std::function<void()>& f) {
  if (own_ == nullptr || depth_ > 2) return f();
  const Thrown thrown = thrown_by(f);
  const std::vector<Outcome> all = gather_values(*own_, thrown.broken ? Outcome::broken : Outcome::well);
  group_knows_ = std::ranges::count(all, Outcome::broken) > 0;
  if (thrown.broken) std::rethrow_exception(thrown.broken);
  if (group_knows_) throw Error("another rank of the group has seen that a rank is gone", ErrorKind::peer);
  if (thrown.by_all) std::rethrow_exception(thrown.by_all);
}

// Whoever comes to the barrier has ended f. So where another one has passed, this one has what f gives, too.
bool SurvivingGroups::has_group_passed(bool has_passed) {
  if (own_ == nullptr || group_knows_) return has_passed;
  thrown_by([&] {
    if (outcomes_) std::exchange(outcomes_, std::nullopt)->wait();  // all have begun it long ago
    GatheringOf<Outcome> outcomes(*own_, has_passed ? Outcome::passed : Outcome::broken);
    if (has_passed) outcomes_.emplace(std::move(outcomes));
    else has_passed = std::ranges::count(outcomes.wait(), Outcome::passed) > 0;
  });
  return has_passed;
}

bool SurvivingGroups::have_all_in_group(bool done) {
  if (own_ == nullptr) return done;
  const Thrown thrown = thrown_by([&] {
    done = std::ranges::count(gather_values(*own_, done ? Outcome::well : Outcome::broken), Outcome::broken) == 0;
  });
  return done && !thrown.broken;
}

SurvivingGroups::Thrown SurvivingGroups::thrown_by(const std::function<void()>& f) {
  try {
    f();
  } catch (const AgreedError&) {
    return {.broken = {}, .by_all = std::current_exception()};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::peer) throw;
    ranks_->fail(concat("rank ", ranks_->rank(), " has seen that a rank is gone"));  // so that all come here
    return {.broken = std::current_exception(), .by_all = {}};
  }
  return {};
}

bool SurvivingGroups::recover(const std::exception_ptr& broken) {
  const std::int64_t losses = losses_;
  for (std::size_t left = 0;;) {
    const Survivors survivors = lifeline_->agree(ended_);
    const std::size_t left_before = std::exchange(left, survivors.ranks.size());
    if (!have_all_in_group(make_ranks())) {
      if (left == left_before) std::rethrow_exception(broken);  // it is no loss that keeps them apart
      continue;
    }
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
