#pragma once
// The numbers of a run as JSON lines, one record a line, that stay valid through stops and resumes.

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "keel/runtime/append_file.h"
#include "keel/runtime/json.h"
#include "keel/trainer/logged.h"

namespace keel {

class MetricsWriter {
 public:
  // Appends to `path`, which is made where there is none. Of an older file the records up to `last_step` stay; later
  // ones, and a last line that a crash cut short, are dropped in one step (the file is replaced, never half
  // written). Other lines that are no records are an Error that names the line.
  explicit MetricsWriter(std::string path, std::int64_t last_step = std::numeric_limits<std::int64_t>::max());

  // Writes {"step":12,"loss":2.5} and hands the line to the system before it returns. JSON has no word for infinities
  // and NaN: such a value is null, and "nonfinite" says which it was, as in
  // {"step":12,"loss":null,"nonfinite":{"loss":"nan"}}. A full disk is an Error of kind io.
  void write(std::int64_t step, std::span<const Logged> metrics);
  void write(std::int64_t step, std::initializer_list<Logged> metrics) {
    write(step, std::span(metrics.begin(), metrics.size()));
  }

 private:
  AppendFile file_;
};

// The records of such a file, in their order: objects with a whole "step". A last line that a crash cut short, or that
// is being written, does not count.
std::vector<Json> read_metrics(const std::string& path);

}  // namespace keel
