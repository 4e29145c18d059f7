#include "keel/trainer/rank_log.h"

#include "keel/runtime/error.h"

namespace keel {

void RankLog::open(const std::string& path) {
  file_.open(path, std::ios::app);
  if (!file_) throw Error(concat("cannot write '", path, "'"), ErrorKind::io);
  file_ << early_.str() << std::flush;
  early_.basic_ios<char>::rdbuf(file_.rdbuf());
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
  lines_.on_checkpoint(report);
  observer_.on_checkpoint(report);
}

void RankLog::on_message(LogLevel level, std::string_view message) {
  lines_.on_message(level, message);
  observer_.on_message(level, message);
}

}  // namespace keel
