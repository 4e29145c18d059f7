#pragma once
// How far long work has come: a line on the standard error that is drawn anew, where a terminal shows it.

#include <cstdint>
#include <iostream>
#include <string>

#include "keel/trainer/progress.h"

namespace keel::cli {

class Bar {
 public:
  // `work`: "tokenizing". Nothing is drawn before so many seconds.
  explicit Bar(std::string work, double patience = 0);
  // `out` outlives the bar.
  Bar(std::string work, double patience, ConsoleOptions console, std::ostream& out);
  ~Bar();  // clears the line
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;

  void show(std::uint64_t done, std::uint64_t total);

 private:
  double now() const;

  std::string work_;
  double patience_;
  ConsoleOptions console_;
  std::ostream& out_;
  double begun_;
  std::uint64_t percent_ = kNothing;

  static constexpr std::uint64_t kNothing = 101;  // has been drawn
};

}  // namespace keel::cli
