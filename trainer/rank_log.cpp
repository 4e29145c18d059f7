#include "keel/trainer/rank_log.h"

#include <filesystem>
#include <system_error>

#include "keel/runtime/error.h"

namespace keel {

void RankLog::open(const std::string& path) {
  path_ = path;
  file_.open(path, std::ios::app);
  if (!file_) throw Error(concat("cannot write '", path, "'"), ErrorKind::io);
  file_ << early_.str() << std::flush;
  early_.basic_ios<char>::rdbuf(file_.rdbuf());
}

// Where it was removed, the lines to come go to a new file.
void RankLog::keep() {
  std::error_code ignored;
  if (path_.empty() || std::filesystem::exists(path_, ignored)) return;
  file_.close();
  file_.clear();
  file_.open(path_, std::ios::app);
}

void RankLog::on_step(const StepReport& report) {
  lines_.on_step(report);
  observer_.on_step(report);
}

void RankLog::on_eval(const EvalReport& report) {
  lines_.on_eval(report);
  observer_.on_eval(report);
}

void RankLog::on_checkpoint(const CheckpointReport& report) {
  keep();
  lines_.on_checkpoint(report);
  observer_.on_checkpoint(report);
}

void RankLog::on_message(LogLevel level, std::string_view message) {
  lines_.on_message(level, message);
  observer_.on_message(level, message);
}

}  // namespace keel
