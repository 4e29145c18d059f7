#pragma once
// A program that is fed by its standard input.

#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

class FedProgram {
 public:
  // Starts a command, found in PATH, in a process group of its own, so that signals from a terminal reach this process
  // alone. Its outputs are appended to the file `log`. Every failure is an Error of kind io. Threads that use it hold
  // SIGPIPE back.
  FedProgram(std::vector<std::string> command, std::string log);
  ~FedProgram();  // a program that still runs is killed
  FedProgram(const FedProgram&) = delete;
  FedProgram& operator=(const FedProgram&) = delete;

  // Waits while the program does not read; for longer than so many seconds is an Error, and so is a program that has
  // ended.
  void write(std::string_view text, double patience);
  // Closes its input and waits for its end. One that takes longer than so many seconds is killed and an Error; so is an
  // exit code other than 0.
  void finish(double patience);

 private:
  bool has_ended();
  bool waited(double seconds);  // for the end
  void kill();
  std::string how_it_ended() const;
  [[noreturn]] void fail(const std::string& what) const;

  static constexpr int kNone = -1;

  std::vector<std::string> command_;
  std::string log_;
  int id_ = kNone;  // none: it does not run
  int status_ = 0;
  int input_ = kNone;
};

}  // namespace keel
