#pragma once
// Notices that something ends the process by exit() where it should not.

#include <functional>

namespace keel::cli {

// While it lives, exit() calls `action` before it does anything else that was registered earlier. One at a time.
class ExitGuard {
 public:
  explicit ExitGuard(std::function<void()> action);
  ~ExitGuard();
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;
};

}  // namespace keel::cli
