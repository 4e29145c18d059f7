#include "learn/behind/ranks.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>

namespace learn {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);

// Ends a rank because of another one's failure.
struct Stop {};

bool inside(const float* at, const Row<const float>& row) {
  return at >= row.data() && at < row.data() + row.size();
}

std::string_view name_of(Kind kind) {
  return kind == Kind::all_reduce       ? "all_reduce"
         : kind == Kind::reduce_scatter ? "reduce_scatter"
                                        : "all_gather";
}

}  // namespace

std::string names(const std::vector<int>& ranks) {
  std::string said = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    said += fmt::format("{}{}", i == 0 ? " " : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return said;
}

std::string Call::text() const {
  return fmt::format("{} of {} number{}", name_of(kind), count(), count() == 1 ? "" : "s");
}

void Work::wait() { call_->ranks->wait(*call_); }

class Ranks::Member : public Group {
 public:
  Member(Ranks& ranks, int rank) : ranks_(ranks), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return ranks_.size(); }

  Work all_reduce(Out x) override { return begin(Kind::all_reduce, x, x); }
  Work reduce_scatter(In whole, Out mine) override {
    check_shard("reduce_scatter", whole, mine);
    return begin(Kind::reduce_scatter, whole, mine);
  }
  Work all_gather(In mine, Out whole) override {
    check_shard("all_gather", whole, mine);
    return begin(Kind::all_gather, mine, whole);
  }

 private:
  Work begin(Kind kind, In input, Out output) {
    return ranks_.begin({.ranks = &ranks_, .rank = rank_, .kind = kind, .input = input, .output = output});
  }
  void check_shard(std::string_view name, In whole, In mine) const {
    const std::int64_t expected = shard(whole.size(), size(), rank_).size();
    if (mine.size() != expected)
      wrong("Rank {} of {} calls {} with {} numbers in `whole` and {} in `mine`. shard({}, {}, {}) has {}.",
            rank_, size(), name, whole.size(), mine.size(), whole.size(), size(), rank_, expected);
  }

  Ranks& ranks_;
  int rank_;
};

Work Ranks::begin(const Call& call) {
  auto shared = std::make_shared<Call>(call);
  shared->given.assign(call.input.begin(), call.input.end());
  const std::int64_t count = call.count(), n = size(), mine = shard(count, size(), call.rank).size();
  const std::int64_t scattered = count - mine, gathered = (n - 1) * mine;
  {
    const std::lock_guard lock(mutex_);
    Rank& rank = at(call.rank);
    shared->number = rank.calls.size();
    rank.calls.push_back(shared);
    rank.bytes += 4 * ((call.kind != Kind::all_gather ? scattered : 0) +
                       (call.kind != Kind::reduce_scatter ? gathered : 0));
  }
  changed_.notify_all();
  if (on_begin) on_begin(*shared);
  std::fill(call.output.begin(), call.output.end(), std::numeric_limits<float>::quiet_NaN());
  return Work(shared);
}

void Ranks::wait(Call& call) {
  if (on_wait) on_wait(call);
  if (call.finished) return;
  if (call.lost)
    wrong("Rank {} released the memory into which {} writes before wait().", call.rank, call.text());
  {
    std::unique_lock lock(mutex_);
    meet(lock, call);
  }
  check_untouched(call);
  finish(call);
}

void Ranks::released(int rank, const float* data, std::int64_t count) {
  for (const auto& call : at(rank).calls)
    if (!call->finished && inside(call->output.data(), {data, count})) call->lost = true;
}

// Ranks that have not made this call.
std::vector<int> Ranks::without(std::size_t number) const {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r)
    if (at(r).calls.size() <= number) ranks.push_back(r);
  return ranks;
}

// Until all ranks have made the call.
void Ranks::meet(std::unique_lock<std::mutex>& lock, const Call& call) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::vector<int> missing;
  const auto known = [&] {
    missing = without(call.number);
    return std::all_of(missing.begin(), missing.end(), [&](int r) { return at(r).ended; });
  };
  const bool in_time = changed_.wait_until(lock, deadline, known);
  std::vector<int> waiting;
  for (int r = 0; r < size(); ++r)
    if (at(r).calls.size() > call.number) waiting.push_back(r);
  const std::string waits =
      fmt::format("{} wait{} in {}", names(waiting), waiting.size() == 1 ? "s" : "", call.text());
  if (!in_time) {
    std::erase_if(missing, [&](int r) { return at(r).ended; });
    wrong("For {} s now {} while {} compute{}: does a loop end?", kPatience.count(), waits, names(missing),
          missing.size() == 1 ? "s" : "");
  }
  for (const int r : missing)
    if (at(r).failure) throw Stop{};
  if (!missing.empty()) {
    std::string said = names(missing);
    said[0] = 'R';
    wrong("{} ended while {}. All ranks must make the same calls.", said, waits);
  }
  for (int r = 0; r < size(); ++r) {
    const Call& other = *at(r).calls[call.number];
    if (other.kind != call.kind || other.count() != call.count())
      wrong(
          "As call {} (counted from 0) rank {} asks for {}, and rank {} for {}. All ranks must make the same "
          "calls in "
          "the same order.",
          call.number, call.rank, call.text(), r, other.text());
  }
}

// That nobody used the memory of a call before its wait().
void Ranks::check_untouched(const Call& call) const {
  for (std::int64_t i = 0; i < call.output.size(); ++i)
    if (!std::isnan(call.output[i]))
      wrong("Rank {} wrote to the result of {} before wait() returned.", call.rank, call.text());
  for (std::int64_t i = 0; i < call.input.size(); ++i)
    if (!inside(call.input.data() + i, call.output) &&
        std::memcmp(&call.input[i], &call.given[static_cast<std::size_t>(i)], sizeof(float)) != 0)
      wrong("Rank {} changed what {} sends before wait() returned.", call.rank, call.text());
}

void Ranks::finish(Call& call) const {
  const Shard mine = shard(call.count(), size(), call.rank);
  std::vector<std::shared_ptr<Call>> calls;
  {
    const std::lock_guard lock(mutex_);
    for (const Rank& rank : ranks_) calls.push_back(rank.calls[call.number]);
  }
  std::int64_t at = 0;
  if (call.kind == Kind::all_gather) {
    for (const auto& one : calls)
      for (const float value : one->given) call.output[at++] = value;
  } else {
    const Shard wanted = call.kind == Kind::all_reduce ? Shard{0, call.count()} : mine;
    for (std::int64_t i = wanted.begin; i < wanted.end; ++i) {
      float sum = 0;
      for (const auto& one : calls) sum += one->given[static_cast<std::size_t>(i)];
      call.output[at++] = sum;
    }
  }
  call.finished = true;
}

// Until all ranks have ended, or one failed a while ago: the others' loops may not end.
bool Ranks::await() {
  const auto count = [&](auto&& counts) { return std::count_if(ranks_.begin(), ranks_.end(), counts); };
  const auto ended = [&] { return count([](const Rank& rank) { return rank.ended; }) == size(); };
  const auto failed = [&] {
    return ended() || count([](const Rank& rank) { return rank.failure != nullptr; }) > 0;
  };
  std::unique_lock lock(mutex_);
  changed_.wait(lock, failed);
  return changed_.wait_for(lock, kPatience, ended);
}

void Ranks::run(const std::function<void(Group&)>& f) {
  std::vector<std::thread> threads;
  for (Rank& rank : ranks_) rank.ended = false;
  for (int r = 0; r < size(); ++r)
    threads.emplace_back([&, r] {
      std::exception_ptr failure;
      try {
        Member member(*this, r);
        const std::size_t first = at(r).calls.size();
        f(member);
        for (std::size_t c = first; c < at(r).calls.size(); ++c)
          if (!at(r).calls[c]->finished)
            wrong("Rank {} ended without wait() for its {}.", r, at(r).calls[c]->text());
      } catch (...) { failure = std::current_exception(); }
      {
        const std::lock_guard lock(mutex_);
        at(r).ended = true;
        at(r).failure = failure;
      }
      changed_.notify_all();
    });
  const bool all = await();
  for (std::thread& thread : threads) all ? thread.join() : thread.detach();
  for (const Rank& rank : ranks_) {
    if (!rank.failure) continue;
    try {
      std::rethrow_exception(rank.failure);
    } catch (const Stop&) {}
  }
}

}  // namespace learn
