#pragma once
// What is in memory for a while, counted by hand: where a model computes, and beside a device in the processor's
// memory.

#include <algorithm>
#include <cstdint>

#include "keel/runtime/language.h"

namespace keel {

// Bytes that come and go, and the most of them at a time.
struct PeakCount {
  std::int64_t now = 0, peak = 0;
  void add(std::int64_t bytes) { peak = std::max(peak, now += bytes); }
};

// Its functions do what those of Page (keel/dist/parallel/page.h) of the same names do.
class TierCounts {
 public:
  // A page, which lies in a file, or for a device in the processor's memory.
  struct PlannedBytes {
    std::int64_t bytes = 0;
    bool in_file = true;
  };

  explicit TierCounts(bool on_device) : on_device_(on_device) {}

  PeakCount here;  // in the memory where the model computes
  std::int64_t host_peak() const { return host_.peak; }
  void add_on_host(std::int64_t bytes) { (on_device_ ? host_ : here).add(bytes); }

  void fetch(const PlannedBytes& page) { on_device_ ? stage(page, 1) : here.add(page.bytes); }
  void wait(const PlannedBytes& page) {
    if (!on_device_) return;
    here.add(page.bytes);
    stage(page, -1);
  }
  void make(const PlannedBytes& page) { here.add(page.bytes); }
  void drop(const PlannedBytes& page) { here.add(-page.bytes); }
  void store(const PlannedBytes& page) { stage(page, 1); }
  void settle(const PlannedBytes& page) {
    here.add(-page.bytes);
    stage(page, -1);
  }

 private:
  // Between a device and a file numbers pass through the processor's memory.
  void stage(const PlannedBytes& page, int sign) {
    if (on_device_ && page.in_file) host_.add(sign * page.bytes);
  }

  bool on_device_;
  PeakCount host_;
};

}  // namespace keel
