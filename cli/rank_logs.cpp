#include "rank_logs.h"

#include <fstream>

#include "keel/runtime/printable.h"
#include "keel/trainer/run_folder.h"

namespace keel::cli {

void RankLogs::set_run(const std::string& path) {
  const std::lock_guard lock(mutex_);
  run_ = path;
}

void RankLogs::write(int rank, const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (run_.empty()) return;
  // The run itself makes the folder, so where there is none the run had not begun.
  std::ofstream(RunFolder(run_).log(rank), std::ios::app) << printable_lines(line) + '\n';
}

}  // namespace keel::cli
