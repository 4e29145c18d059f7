#include "keel/trainer/signals.h"

#include <unistd.h>

#include <atomic>
#include <iterator>

#include "keel/runtime/error.h"

namespace keel {
namespace {

// A handler has no other way to reach anything. Lock-free, hence allowed in one.
std::atomic<int> received_signal = 0;
std::atomic<bool> was_warned = false, is_to_save = false;
std::atomic<bool> installed = false;
std::atomic<int> request = 0;  // SIGINT or SIGTERM, where one of them has come
std::atomic<bool> ends = false;
static_assert(std::atomic<int>::is_always_lock_free);

constexpr std::size_t kSignalCount = std::size(SignalScope::kTaken);
struct sigaction previous[kSignalCount];
sigset_t previous_mask;

void handle(int signal_number) {
  if (signal_number == SIGUSR2) {
    is_to_save = true;
    return;
  }
  int none = 0;
  if (signal_number == SIGUSR1) {
    was_warned = true;
    received_signal.compare_exchange_strong(none, SIGTERM);
    return;
  }
  if (signal_number == SIGINT && was_warned.exchange(false)) return;
  request = signal_number;
  if (ends) ::_exit(128 + signal_number);
  if (received_signal.compare_exchange_strong(none, signal_number) || signal_number != SIGINT) return;
  // The signal is blocked while its handler runs, so this takes effect on return.
  ::signal(SIGINT, SIG_DFL);
  ::raise(SIGINT);
}

}  // namespace

SignalScope::SignalScope() {
  if (installed.exchange(true)) throw Error("a SignalScope is active already; a process has one", ErrorKind::internal);
  received_signal = request = 0;
  ends = false;
  was_warned = is_to_save = false;
  sigset_t taken;
  sigemptyset(&taken);
  struct sigaction action = {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;  // an interrupted write goes on
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignalCount; ++i) {
    sigaddset(&taken, kTaken[i]);
    ::sigaction(kTaken[i], nullptr, &previous[i]);
    if (previous[i].sa_handler != SIG_IGN) ::sigaction(kTaken[i], &action, nullptr);
  }
  ::pthread_sigmask(SIG_UNBLOCK, &taken, &previous_mask);
}

SignalScope::~SignalScope() {
  ::pthread_sigmask(SIG_SETMASK, &previous_mask, nullptr);
  for (std::size_t i = 0; i < kSignalCount; ++i) ::sigaction(kTaken[i], &previous[i], nullptr);
  installed = false;
}

int SignalScope::received() const noexcept { return received_signal; }

void SignalScope::end_at_once(bool does) const noexcept {
  ends = does;
  if (const int number = request; does && number != 0) ::_exit(128 + number);
}

bool SignalScope::takes_save_request() const noexcept { return is_to_save.exchange(false); }

}  // namespace keel
