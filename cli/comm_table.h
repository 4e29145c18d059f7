#pragma once
// What `keel comm` prints, in the look of nccl-tests.

#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/lab/comparison.h"
#include "keel/dist/lab/report.h"

namespace keel::cli {

// The columns and factors, for --help and docs/comm.md: one list.
std::string explain_columns();
std::string explain_contestants();

// Rows as they are measured, in so many columns of a terminal. Where both do not fit, out of place is shown, or in
// place where that alone is offered.
class CommTable {
 public:
  // `shows_overlap`: that column is there in any width.
  explicit CommTable(int width, bool shows_overlap = false);
  std::string header(std::string_view asked, std::int64_t ranks, std::string_view where) const;
  std::string row(const lab::Record& record) const;

 private:
  std::string line_of(const std::vector<std::string>& cells) const;
  std::vector<bool> shown_;
};

// `first` and `second` are the names of the files.
std::string comparison_text(const lab::Comparison& comparison, const std::string& first, const std::string& second,
                            int width);

}  // namespace keel::cli
