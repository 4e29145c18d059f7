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

// The upper one of two in the middle; 0 without samples.
inline double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples.empty() ? 0 : samples[samples.size() / 2];
}

class Race {
 public:
  // Runs each contestant once to warm up.
  explicit Race(std::vector<Contestant> contestants)
      : contestants_(std::move(contestants)), samples_(contestants_.size()) {
    for (const Contestant& run : contestants_) run();
  }

  // Each contestant once more. Returns the seconds of the first one.
  double round() {
    for (std::size_t i = 0; i < contestants_.size(); ++i) samples_[i].push_back(seconds_of(contestants_[i]));
    return samples_.front().back();
  }
  // At least five rounds that take about so long together.
  void run_for(double seconds) {
    for (double spent = 0; spent < seconds || samples_.front().size() < 5;) {
      round();
      for (const std::vector<double>& samples : samples_) spent += samples.back();
    }
  }
  // Seconds of one run.
  double median(std::size_t contestant) const { return bench::median(samples_.at(contestant)); }
  // Of the quickest, where other programs hold the machine.
  double least(std::size_t contestant) const {
    const std::vector<double>& samples = samples_.at(contestant);
    return *std::min_element(samples.begin(), samples.end());
  }

 private:
  std::vector<Contestant> contestants_;
  std::vector<std::vector<double>> samples_;
};

}  // namespace keel::bench
