#pragma once
// How far long work has come: a line on the standard error that is drawn anew, where a terminal shows it.

#include <cstdint>
#include <string>

#include "keel/trainer/progress.h"

namespace keel::cli {

class Bar {
 public:
  // `work`: "tokenizing".
  explicit Bar(std::string work);
  ~Bar();  // clears the line
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;

  void show(std::uint64_t done, std::uint64_t total);

 private:
  std::string work_;
  ConsoleOptions console_;
  std::uint64_t percent_ = 101;
};

}  // namespace keel::cli
