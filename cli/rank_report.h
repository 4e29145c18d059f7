#pragma once
// What ranks tell the launcher that watches over them: that they began, and how they ended. Reports travel on the
// standard error, which every launcher brings from every host, and the launcher takes them out of it.

#include <string>
#include <string_view>
#include <vector>

namespace keel::cli {

struct RankReport {
  enum class What : unsigned char {
    started,  // its process runs
    killed,   // by signal `number`
    ended,    // its process, with exit code `number`
    failed,   // it began what ended the run; `number` is the exit code that it stands for
    heard,    // it ended because another rank did, or did not come
  };
  What what = What::started;
  int rank = 0;
  int number = 0;
  std::string text = {};  // for people, one line
  bool operator==(const RankReport&) const = default;
};

// In the environment of ranks whose launcher wants reports.
constexpr const char* kReportsVariable = "KEEL_LAUNCH_REPORTS";

// One line, with a mark in front that no other line has.
std::string to_line(const RankReport& report);
// Nothing happens where no launcher wants it.
void tell_launcher(const RankReport& report);

// Takes reports out of a text that comes in pieces.
class ReportReader {
 public:
  // Returns the part of the text that is for people. What may become a report waits for its end.
  std::string pass(std::string_view piece);
  // In the order in which they came. What is marked as one and makes no sense is left out.
  const std::vector<RankReport>& reports() const { return reports_; }

 private:
  std::string waiting_;  // from a mark on
  std::vector<RankReport> reports_;
};

}  // namespace keel::cli
