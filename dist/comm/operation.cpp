#include "keel/dist/comm/operation.h"

#include <algorithm>
namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

// A rank that waits looks so often before it lets others have its core. Where the ranks of the node are more than the
// processors it does not, as another one needs the core for what this one waits for.
constexpr int kLooks = 64, kFewLooks = 10;  // few where each is a call of the system
// Beside collectives of groups that may share no transport, whose messages would not wake it.
// Launchers give a rank a second between asking it to end and ending it.
constexpr auto kTimeToWorry = std::chrono::milliseconds(400);
constexpr std::chrono::microseconds kIdle(1'000), kIdleBesideOthers(50);

inline void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void Progress::advance_all_but(const Group& group) noexcept {
  // By index: what a group does may end another one.
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i] == &group || groups_[i]->active.empty()) continue;
    try {
      groups_[i]->advance_all();
    } catch (...) {}  // the operation keeps it
  }
}

bool Progress::is_busy_beside(const Group& group) const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const Group* other) { return other != &group && !other->active.empty(); });
}

void Group::advance_all(const GroupOperation* but) {
  if (advances) return;
  advances = true;
  std::exception_ptr failure;
  for (std::size_t i = 0; i < active.size() && !failure; ++i) {
    const std::shared_ptr<GroupOperation> operation = active[i];
    try {
      if (operation.get() != but && !operation->is_over()) operation->advance();
    } catch (...) { failure = std::current_exception(); }
  }
  while (!active.empty() && active.front()->is_over()) active.pop_front();
  std::erase_if(active, [](const auto& operation) { return operation->is_over(); });
  advances = false;
  if (failure) std::rethrow_exception(failure);
}

void Group::fail(const std::string& reason) noexcept {
  if (transport) transport->fail(reason);
}

std::int64_t Group::count_sent(int peer, std::int64_t bytes) {
  const std::vector<int>& node = options.nodes;
  const bool near = node[static_cast<std::size_t>(peer)] == node[static_cast<std::size_t>(rank())];
  (near ? traffic.inside_node : traffic.between_nodes) += bytes;
  return bytes;
}

std::string Group::describe(const Collective& collective, std::uint32_t number) const {
  return concat(collective, describe_place(number));
}

std::string Group::describe_place(std::uint32_t number) const {
  return concat(" (collective number ", number, activity.empty() ? "" : ", ", activity, ')');
}

Error Group::heard(const Error& error, const std::string& where) const {
  if (error.kind() != ErrorKind::peer) return error;
  return Error("", error, concat("; rank ", name(), " was ", where));
}

GroupOperation::GroupOperation(std::shared_ptr<Group> group, const Collective& collective)
    : group_(std::move(group)), collective_(collective) {
  for (Tensor* tensor : {&collective_.input, &collective_.output})
    if (tensor->defined() && tensor->rank() != 1) *tensor = tensor->flatten();
}

bool GroupOperation::advance() {
  if (failure_) std::rethrow_exception(failure_);
  if (finished_ || advances_) return finished_;
  group_->transport->check_thread();
  return look();
}

bool GroupOperation::look() {
  if (finished_ || advances_) return finished_;
  advances_ = true;
  try {
    if (proceed()) finish();
  } catch (...) {
    advances_ = false;
    give_up(std::current_exception());
    std::rethrow_exception(failure_);
  }
  advances_ = false;
  return finished_;
}

void GroupOperation::wait() {
  if (advance()) return;
  const Clock::time_point began = Clock::now();
  int looks = kLooks;
  if (group_->transport->idles_until_news()) looks = kFewLooks;
  if (group_->shares_cores) looks = 0;
  for (;;) {
    if (group_->active.size() > 1) group_->advance_all(this);
    if (group_->progress->groups().size() > 1) group_->progress->advance_all_but(*group_);
    if (failure_) std::rethrow_exception(failure_);
    if (looks > 0) {
      --looks;
      pause_core();
      if (look()) return;
      continue;
    }
    const Clock::duration waited = Clock::now() - began;
    if (waited > group_->options.timeout) time_out();
    if (waited > kTimeToWorry && !has_worried_) worry();
    try {
      group_->transport->idle(group_->progress->is_busy_beside(*group_) ? kIdleBesideOthers : kIdle);
      if (look()) return;
      group_->transport->check();
    } catch (const Error&) {  // a rank is gone, or has failed
      if (!failure_) give_up(std::current_exception());
      std::rethrow_exception(failure_);
    }
  }
}

void GroupOperation::abandon() {
  if (is_over()) return;
  failure_ = std::make_exception_ptr(Error(concat(collective_, " was under way when its communicator went")));
  release();
  collective_.input = collective_.output = {};
}

void GroupOperation::finish() {
  finished_ = true;
  if (collective_.output.defined()) collective_.output.mark_written();
  release();
  collective_.input = collective_.output = {};
}

// What another rank has told explains that it, or one that has heard it, is gone.
std::exception_ptr GroupOperation::explained(std::exception_ptr failure) const {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::peer) return failure;
  } catch (...) { return failure; }
  try {
    group_->transport->check();
  } catch (const Error&) { return std::current_exception(); }
  return failure;
}

void GroupOperation::give_up(std::exception_ptr failure) {
  failure_ = explained(std::move(failure));
  try {
    std::rethrow_exception(failure_);
  } catch (const Error& error) {
    group_->fail(error.what());
    failure_ = std::make_exception_ptr(group_->heard(error, concat("in ", group_->describe(collective_, number_))));
  } catch (const std::exception& error) { group_->fail(error.what()); }
  release();
  collective_.input = collective_.output = {};
}

void GroupOperation::worry() {
  const CommunicatorOptions& options = group_->options;
  if (!options.is_worried || !options.tell || !options.is_worried()) return;
  has_worried_ = true;
  options.tell(group_->name(), concat("rank ", group_->name(), " waits in ", group_->describe(collective_, number_),
                                      ": nothing has come from ", awaited_ranks()));
}

std::string GroupOperation::awaited_ranks() const {
  std::vector<int> missing;
  for (const int rank : awaited()) missing.push_back(group_->names[static_cast<std::size_t>(rank)]);
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  std::string ranks;
  for (const int rank : missing) ranks += concat(ranks.empty() ? "" : ", ", rank);
  return ranks.empty() ? "its peers" : concat(missing.size() == 1 ? "rank " : "ranks ", ranks);
}

void GroupOperation::time_out() {
  const std::string text =
      concat("rank ", group_->name(), " gave up after ", group_->options.timeout.count(), " ms in ",
             group_->describe(collective_, number_), ": nothing came from ", awaited_ranks());
  group_->fail(text);
  release();
  failure_ = std::make_exception_ptr(Error(text, ErrorKind::peer));
  collective_.input = collective_.output = {};
  std::rethrow_exception(failure_);
}

}  // namespace keel
