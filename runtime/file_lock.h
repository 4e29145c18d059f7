#pragma once
// A lock that processes hold on a file, and that the system takes back when they end in whatever way.

#include <string>

#include "keel/runtime/language.h"

namespace keel {

// Tries to take the lock of the file, which is made where there is none and goes with the lock. Whoever holds it is
// named in the file. The lock is advisory (flock): it binds those who ask for it.
class FileLock {
 public:
  enum class State : unsigned char {
    held,
    taken,        // by another FileLock, of this process or another one
    unsupported,  // the file system has no locks
  };

  // An Error of kind io where the file cannot be made.
  explicit FileLock(std::string path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  State state() const { return state_; }
  // Who has the lock that is taken: "process 17 on host a".
  const std::string& holder() const { return holder_; }
  // Whether the file is still the one that was locked. It is not where somebody removed it, or its folder.
  bool is_in_place() const;

 private:
  std::string path_;
  std::string holder_;
  int descriptor_ = -1;
  State state_ = State::held;
};

}  // namespace keel
