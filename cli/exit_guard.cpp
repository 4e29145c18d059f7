#include "exit_guard.h"

#include <cstdlib>
#include <utility>

namespace keel::cli {
namespace {

// Never destroyed: exit() destroys what is static, too.
std::function<void()>& action_of_exit() {
  static auto* const action = new std::function<void()>;
  return *action;
}

void act() {
  if (const std::function<void()> action = std::exchange(action_of_exit(), nullptr)) action();
}

}  // namespace

ExitGuard::ExitGuard(std::function<void()> action) {
  static const int registered = std::atexit(act);
  static_cast<void>(registered);
  action_of_exit() = std::move(action);
}

ExitGuard::~ExitGuard() { action_of_exit() = nullptr; }

}  // namespace keel::cli
