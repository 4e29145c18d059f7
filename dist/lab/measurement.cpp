#include "keel/dist/lab/measurement.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>

#include "keel/dist/comm/exchange.h"
#include "keel/dist/lab/busy_work.h"
#include "keel/dist/lab/known_numbers.h"

namespace keel::lab {
namespace {

constexpr int kFewestCalls = 20, kMostCalls = 1000;
constexpr int kMostWarmup = 10'000;

std::int64_t now() {  // nanoseconds
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

using Calls = std::span<const Call>;

bool is_of_device(Calls calls) { return calls.front().output.device().type != DeviceType::cpu; }

void finish_on_device(Calls calls) {
  if (is_of_device(calls)) calls.front().output.context().synchronize();
}
// Makes the calls and returns when they have happened, on a device, too.
void make_whole(Communicator& measured, Calls calls) {
  make(measured, calls);
  finish_on_device(calls);
}

double largest(Communicator& ranks, double mine) {
  const std::vector<double> all = gather_values(ranks, mine);
  return *std::max_element(all.begin(), all.end());
}

// When this rank asked, and when it had the result, in nanoseconds.
struct Stamps {
  std::vector<std::int64_t> asked, done;

  void run(int times, const std::function<void()>& before, const std::function<void()>& call) {
    asked.resize(static_cast<std::size_t>(times));
    done.resize(static_cast<std::size_t>(times));
    for (std::size_t i = 0; i < asked.size(); ++i) {
      before();
      asked[i] = now();
      call();
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
double mean_of_queue_us(Communicator& measured, Calls calls, int times) {
  const std::int64_t begin = now();
  for (int i = 0; i < times; ++i) make(measured, calls);
  finish_on_device(calls);
  return static_cast<double>(now() - begin) / 1e3 / times;
}

// Connections are made, pages touched and caches warm; ranks agree on how many calls fit into the time. Returns the
// slowest rank's first call.
double warm_up(Communicator& measured, Communicator& ranks, Calls calls, const MeasureOptions& options, int& times) {
  ranks.barrier();
  const std::int64_t begin = now();
  make_whole(measured, calls);
  const double first = largest(ranks, static_cast<double>(now() - begin) / 1e3);
  const double limit = options.seconds * 1e6 / 10;
  double each = first, spent = first;
  for (int made = 1; made < options.warmup || (spent < limit && made < kMostWarmup);) {
    const int batch = made < options.warmup
                          ? options.warmup - made
                          : std::clamp(static_cast<int>((limit - spent) / std::max(each, 0.1)), 1, kMostWarmup - made);
    const std::int64_t start = now();
    for (int i = 0; i < batch; ++i) make_whole(measured, calls);
    each = largest(ranks, static_cast<double>(now() - start) / 1e3 / batch);
    spent += each * batch;
    made += batch;
  }
  times = options.calls;
  if (times == 0)
    times = static_cast<int>(
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

std::int64_t check_result(Communicator& measured, Communicator& ranks, Calls calls, std::uint32_t salt) {
  const Call& first = calls.front();
  const KnownNumbers numbers(first.output.dtype(), first.size, salt, first.collective().op);
  for (const Call& call : calls) prepare(call, numbers);
  make_whole(measured, calls);
  std::int64_t mine = 0, wrong = 0;
  for (const Call& call : calls) mine += count_wrong(call, numbers);
  for (const std::int64_t theirs : gather_values(ranks, mine)) wrong += theirs;
  return wrong;
}

double mean_of(Communicator& ranks, double mine) {
  const std::vector<double> all = gather_values(ranks, mine);
  return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
}

// What a rank can compute while the calls, which by themselves take it `call_us`, are under way.
void measure_overlap(Communicator& measured, Communicator& ranks, Calls calls, double call_us, int times,
                     const MeasureOptions& options, const std::function<void()>& before, Timing& timing) {
  const BusyWork work(call_us / (*options.polls + 1));
  const auto compute = [&](bool polls) {
    for (int i = 0; i < *options.polls; ++i) {
      work.run();
      if (polls) measured.poll();
    }
    work.run();
  };
  Stamps alone, both;
  alone.run(
      times, [] {}, [&] { compute(false); });
  ranks.barrier();
  both.run(times, before, [&] {
    const std::vector<Work> works = begin(measured, calls);
    compute(true);
    for (const Work& each : works) each.wait();
    finish_on_device(calls);
  });
  const double computing = alone.mean_us(), together = both.mean_us();
  timing.computing_us = mean_of(ranks, computing);
  timing.together_us = mean_of(ranks, together);
  timing.overlap = 100 * mean_of(ranks, overlap_of(call_us, computing, together));
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

double overlap_of(double call_us, double computing_us, double together_us) {
  return call_us > 0 ? std::clamp(1 - (together_us - computing_us) / call_us, 0.0, 1.0) : 0;
}

Timing measure(Communicator& measured, Communicator& ranks, Calls calls, const MeasureOptions& options,
               const std::vector<double>& clocks) {
  for (const Call& call : calls) clear(call);  // sums of zeros stay what they are, however often
  Timing timing;
  int times = 0;
  timing.first_us = warm_up(measured, ranks, calls, options, times);
  const auto before = [&] {
    if (options.barrier) ranks.barrier();
    if (options.before_call) options.before_call();
  };
  Stamps stamps;
  ranks.barrier();
  stamps.run(times, before, [&] { make_whole(measured, calls); });
  const double whole = stamps.mean_us();
  double mean = whole;
  if (is_of_device(calls) && !options.barrier) {
    ranks.barrier();
    mean = mean_of_queue_us(measured, calls, times);
  }
  const auto together = static_cast<double>(calls.size());
  timing.calls = times;
  const std::vector<double> means = gather_values(ranks, mean / together);
  for (const double each : means) timing.time_us += each / static_cast<double>(means.size());
  const auto [fastest, slowest] = std::minmax_element(means.begin(), means.end());
  timing.min_us = *fastest;
  timing.max_us = *slowest;
  timing.algbw = algorithm_bandwidth(calls.front().bytes(), timing.time_us);
  timing.busbw = timing.algbw * calls.front().exercise->bus_factor(calls.front().size);
  summarise_calls(gather_times(ranks, stamps.asked), gather_times(ranks, stamps.done), clocks, timing);
  for (double* const each : {&timing.p25_us, &timing.p50_us, &timing.p75_us, &timing.p95_us}) *each /= together;
  if (options.polls) measure_overlap(measured, ranks, calls, whole, times, options, before, timing);
  if (options.check) timing.wrong = check_result(measured, ranks, calls, options.salt);
  return timing;
}

Wire count_wire(Communicator& measured, Communicator& ranks, const Call& call) {
  const Traffic before = measured.traffic();
  make_whole(measured, {&call, 1});
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
