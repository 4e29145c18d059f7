#pragma once
// Timing for the benchmarks: contestants run in turn, so that whatever else the machine does hits all of them.

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace keel::bench {

using Contestant = std::function<void()>;

inline double seconds_of(const Contestant& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Timing {
  double best, median;  // seconds of one run
};

// Runs all contestants in turn, again and again for about `seconds`, at least five rounds after a warm-up.
inline std::vector<Timing> race(const std::vector<Contestant>& contestants, double seconds) {
  std::vector<std::vector<double>> samples(contestants.size());
  for (const Contestant& run : contestants) run();
  double spent = 0;
  while (spent < seconds || samples.front().size() < 5) {
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      samples[i].push_back(seconds_of(contestants[i]));
      spent += samples[i].back();
    }
  }
  std::vector<Timing> timings;
  for (std::vector<double>& sample : samples) {
    std::sort(sample.begin(), sample.end());
    timings.push_back({sample.front(), sample[sample.size() / 2]});
  }
  return timings;
}

}  // namespace keel::bench
