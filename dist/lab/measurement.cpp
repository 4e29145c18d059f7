#include "keel/dist/lab/measurement.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "keel/dist/comm/exchange.h"
#include "keel/dist/lab/known_numbers.h"

namespace keel::lab {
namespace {

constexpr int kFewestCalls = 20, kMostCalls = 1000;
constexpr int kMostWarmup = 10'000;

std::int64_t now() {  // nanoseconds
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool is_of_device(const Call& call) { return call.output.device().type != DeviceType::cpu; }

// Makes the call and returns when it has happened, on a device, too.
void make_whole(Communicator& measured, const Call& call) {
  make(measured, call);
  if (is_of_device(call)) call.output.context().synchronize();
}

double largest(Communicator& ranks, double mine) {
  const std::vector<double> all = gather_values(ranks, mine);
  return *std::max_element(all.begin(), all.end());
}

// When this rank asked, and when it had the result, in nanoseconds.
struct Stamps {
  std::vector<std::int64_t> asked, done;

  void run(Communicator& measured, const Call& call, int calls, const std::function<void()>& before) {
    asked.resize(static_cast<std::size_t>(calls));
    done.resize(static_cast<std::size_t>(calls));
    for (std::size_t i = 0; i < asked.size(); ++i) {
      if (before) before();
      asked[i] = now();
      make_whole(measured, call);
      done[i] = now();
    }
  }
  double mean_us() const {
    double sum = 0;
    for (std::size_t i = 0; i < asked.size(); ++i) sum += static_cast<double>(done[i] - asked[i]);
    return asked.empty() ? 0 : sum / 1e3 / static_cast<double>(asked.size());
  }
};

// Devices take a queue of calls, and the host waits once: what a program that overlaps them sees.
double mean_of_queue_us(Communicator& measured, const Call& call, int calls) {
  const std::int64_t begin = now();
  for (int i = 0; i < calls; ++i) make(measured, call);
  call.output.context().synchronize();
  return static_cast<double>(now() - begin) / 1e3 / calls;
}

// Connections are made, pages touched and caches warm; ranks agree on how many calls fit into the time. Returns the
// slowest rank's first call.
double warm_up(Communicator& measured, Communicator& ranks, const Call& call, const MeasureOptions& options,
               int& calls) {
  ranks.barrier();
  const std::int64_t begin = now();
  make_whole(measured, call);
  const double first = largest(ranks, static_cast<double>(now() - begin) / 1e3);
  const double limit = options.seconds * 1e6 / 10;
  double each = first, spent = first;
  for (int made = 1; made < options.warmup || (spent < limit && made < kMostWarmup);) {
    const int batch = made < options.warmup
                          ? options.warmup - made
                          : std::clamp(static_cast<int>((limit - spent) / std::max(each, 0.1)), 1, kMostWarmup - made);
    const std::int64_t start = now();
    for (int i = 0; i < batch; ++i) make_whole(measured, call);
    each = largest(ranks, static_cast<double>(now() - start) / 1e3 / batch);
    spent += each * batch;
    made += batch;
  }
  calls = options.calls;
  if (calls == 0)
    calls = static_cast<int>(
        std::clamp(options.seconds * 1e6 / std::max(each, 0.1), double{kFewestCalls}, double{kMostCalls}));
  return first;
}

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const double rest = at - static_cast<double>(below);
  return below + 1 < sorted.size() ? sorted[below] * (1 - rest) + sorted[below + 1] * rest : sorted[below];
}

std::vector<std::vector<std::int64_t>> gather_times(Communicator& ranks, const std::vector<std::int64_t>& mine) {
  const auto* const begin = reinterpret_cast<const std::byte*>(mine.data());
  std::vector<std::vector<std::int64_t>> all;
  for (const std::vector<std::byte>& bytes : gather_bytes(ranks, {begin, begin + mine.size() * sizeof(std::int64_t)})) {
    std::vector<std::int64_t> times(bytes.size() / sizeof(std::int64_t));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(times.data()));
    all.push_back(std::move(times));
  }
  return all;
}

// How each call went, from all ranks' stamps.
void summarise_calls(const std::vector<std::vector<std::int64_t>>& asked,
                     const std::vector<std::vector<std::int64_t>>& done, const std::vector<double>& clocks,
                     Timing& timing) {
  const std::size_t n = asked.size(), calls = asked.front().size();
  std::vector<double> slowest(calls), skews(calls);
  std::vector<std::int64_t> last_of(n);
  for (std::size_t i = 0; i < calls; ++i) {
    double first = INFINITY, last = -INFINITY;
    std::size_t straggler = 0;
    for (std::size_t r = 0; r < n; ++r) {
      slowest[i] = std::max(slowest[i], static_cast<double>(done[r][i] - asked[r][i]) / 1e3);
      const double at = static_cast<double>(asked[r][i] - asked[0][0]) / 1e3 - clocks[r];
      first = std::min(first, at);
      if (at > last) straggler = r;
      last = std::max(last, at);
    }
    skews[i] = last - first;
    ++last_of[straggler];
  }
  std::sort(slowest.begin(), slowest.end());
  std::sort(skews.begin(), skews.end());
  timing.p25_us = quantile(slowest, 0.25);
  timing.p50_us = quantile(slowest, 0.5);
  timing.p75_us = quantile(slowest, 0.75);
  timing.p95_us = quantile(slowest, 0.95);
  timing.skew_us = quantile(skews, 0.5);
  if (n == 1 || calls == 0) return;
  const auto most = std::max_element(last_of.begin(), last_of.end());
  timing.straggler = most - last_of.begin();
  timing.straggler_share = static_cast<double>(*most) / static_cast<double>(calls);
}

std::int64_t check_result(Communicator& measured, Communicator& ranks, const Call& call, std::uint32_t salt) {
  const KnownNumbers numbers(call.output.dtype(), call.size, salt);
  prepare(call, numbers);
  make_whole(measured, call);
  std::int64_t wrong = 0;
  for (const std::int64_t theirs : gather_values(ranks, count_wrong(call, numbers))) wrong += theirs;
  return wrong;
}

}  // namespace

std::vector<double> clock_offsets(Communicator& ranks) {
  constexpr int kRounds = 15;
  std::string host(256, '\0');
  ::gethostname(host.data(), host.size() - 1);
  const std::vector<std::string> hosts = gather_texts(ranks, host);
  std::vector<double> offsets(hosts.size());
  if (std::all_of(hosts.begin(), hosts.end(), [&](const std::string& other) { return other == hosts[0]; }))
    return offsets;
  std::vector<std::vector<double>> ahead(hosts.size());
  for (int round = 0; round < kRounds; ++round) {
    ranks.barrier();
    const std::vector<std::int64_t> clocks = gather_values(ranks, now());
    for (std::size_t r = 0; r < clocks.size(); ++r)
      ahead[r].push_back(static_cast<double>(clocks[r] - clocks[0]) / 1e3);
  }
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    std::sort(ahead[r].begin(), ahead[r].end());
    if (hosts[r] != hosts[0]) offsets[r] = quantile(ahead[r], 0.5);
  }
  return offsets;
}

Timing measure(Communicator& measured, Communicator& ranks, const Call& call, const MeasureOptions& options,
               const std::vector<double>& clocks) {
  clear(call);  // sums of zeros stay what they are, however often
  Timing timing;
  int calls = 0;
  timing.first_us = warm_up(measured, ranks, call, options, calls);
  Stamps stamps;
  ranks.barrier();
  stamps.run(measured, call, calls, options.before_call);
  double mean = stamps.mean_us();
  if (is_of_device(call)) {
    ranks.barrier();
    mean = mean_of_queue_us(measured, call, calls);
  }
  timing.calls = calls;
  const std::vector<double> means = gather_values(ranks, mean);
  for (const double each : means) timing.time_us += each / static_cast<double>(means.size());
  const auto [fastest, slowest] = std::minmax_element(means.begin(), means.end());
  timing.min_us = *fastest;
  timing.max_us = *slowest;
  timing.algbw = algorithm_bandwidth(call.bytes(), timing.time_us);
  timing.busbw = timing.algbw * call.exercise->bus_factor(call.size);
  summarise_calls(gather_times(ranks, stamps.asked), gather_times(ranks, stamps.done), clocks, timing);
  if (options.check) timing.wrong = check_result(measured, ranks, call, options.salt);
  return timing;
}

Wire count_wire(Communicator& measured, Communicator& ranks, const Call& call) {
  const Traffic before = measured.traffic();
  make_whole(measured, call);
  const Traffic after = measured.traffic();
  const std::array<std::int64_t, 2> mine = {after.inside_node - before.inside_node,
                                            after.between_nodes - before.between_nodes};
  Wire wire;
  for (const auto& [inside, between] : gather_values(ranks, mine)) {
    wire.inside = std::max(wire.inside, inside);
    wire.between = std::max(wire.between, between);
    wire.total += inside + between;
  }
  return wire;
}

}  // namespace keel::lab
