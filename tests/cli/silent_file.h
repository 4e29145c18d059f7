#pragma once
// A file that does not answer, as on a disk that hangs: a pipe with a name.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "keel/runtime/error.h"

namespace keel::testing {

class SilentFile {
 public:
  explicit SilentFile(std::string path) : path_(std::move(path)) {
    KEEL_CHECK(::mkfifo(path_.c_str(), 0600) == 0, "cannot make the pipe '", path_, "'");
  }
  ~SilentFile() { close(); }
  SilentFile(const SilentFile&) = delete;
  SilentFile& operator=(const SilentFile&) = delete;

  // Waits until some process opens it; that one then waits for the text. False after half a minute.
  bool is_awaited() {
    for (int i = 0; i < 6000 && end_ < 0; ++i) {
      end_ = ::open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
      if (end_ < 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return end_ >= 0;
  }
  // It answers after all.
  void answer(std::string_view text) {
    KEEL_CHECK(::write(end_, text.data(), text.size()) == static_cast<ssize_t>(text.size()), "cannot write");
    close();
  }

 private:
  void close() {
    if (end_ >= 0) ::close(end_);
    end_ = -1;
  }

  std::string path_;
  int end_ = -1;
};

}  // namespace keel::testing
