#pragma once
// Lines in the ranks' logs that do not come from training.

#include <mutex>
#include <string>

namespace keel::cli {

// May be called from several threads.
class RankLogs {
 public:
  // The folder of the run; before it is known, and where it has no logs, nothing is written.
  void set_run(const std::string& path);
  void write(int rank, const std::string& line);

 private:
  std::mutex mutex_;
  std::string run_;
};

}  // namespace keel::cli
