#include "keel/trainer/signals.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <thread>

#include "keel/runtime/error.h"

namespace keel {
namespace {

// A program that a shell has started in the background ignores it, and a SignalScope leaves that so.
[[maybe_unused]] const auto kFormer = ::signal(SIGINT, SIG_DFL);

TEST(Signals, TheFirstSignalIsOnlyNoted) {
  for (const int signal_number : {SIGINT, SIGTERM}) {
    const SignalScope scope;
    EXPECT_EQ(scope.received(), 0);
    ::raise(signal_number);
    EXPECT_EQ(scope.received(), signal_number);
    ::raise(SIGTERM);  // repeated by a job system
    EXPECT_EQ(scope.received(), signal_number);
  }
}

TEST(Signals, AWarningOfAJobSystemCountsAsTermination) {
  const SignalScope scope;
  ::raise(SIGUSR1);
  EXPECT_EQ(scope.received(), SIGTERM);
  ::raise(SIGINT);  // the same warning, passed on
  EXPECT_EQ(scope.received(), SIGTERM);
}

TEST(Signals, AWishToSaveIsTakenOnceAndStopsNothing) {
  const SignalScope scope;
  EXPECT_FALSE(scope.takes_save_request());
  ::raise(SIGUSR2);
  EXPECT_TRUE(scope.takes_save_request());
  EXPECT_FALSE(scope.takes_save_request());
  EXPECT_EQ(scope.received(), 0);
}

TEST(Signals, OldHandlersComeBack) {
  static int calls = 0;
  const auto old = ::signal(SIGTERM, [](int) { ++calls; });
  {
    const SignalScope scope;
    ::raise(SIGTERM);
    EXPECT_EQ(calls, 0);
  }
  ::raise(SIGTERM);
  EXPECT_EQ(calls, 1);
  ::signal(SIGTERM, old);
}

TEST(Signals, AnIgnoredSignalStaysIgnored) {
  const auto old = ::signal(SIGINT, SIG_IGN);
  {
    const SignalScope scope;
    ::raise(SIGINT);
    EXPECT_EQ(scope.received(), 0);
  }
  ::signal(SIGINT, old);
}

TEST(Signals, WhatWasHeldBackIsTakenByTheScopeAndHeldBackAgainBehindIt) {
  sigset_t held, before, behind;
  sigemptyset(&held);
  sigaddset(&held, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &held, &before);
  ::raise(SIGUSR1);
  {
    const SignalScope scope;
    EXPECT_EQ(scope.received(), SIGTERM);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, &behind);
  EXPECT_EQ(sigismember(&behind, SIGUSR1), 1);
  EXPECT_EQ(sigismember(&behind, SIGTERM), 0);
}

TEST(Signals, ASecondScopeIsRefused) {
  const SignalScope scope;
  EXPECT_THROW(std::make_unique<SignalScope>(), Error);
}

TEST(SignalsDeathTest, ASecondInterruptEndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const int first : {SIGINT, SIGTERM})
    EXPECT_EXIT(
        {
          const SignalScope scope;
          ::raise(first);
          ::raise(SIGINT);
        },
        ::testing::KilledBySignal(SIGINT), "");
}

TEST(SignalsDeathTest, WhatIsToEndAtOnceEndsByTheFirstRequestWithItsCode) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const int number : {SIGINT, SIGTERM}) {
    const auto code = ::testing::ExitedWithCode(128 + number);
    EXPECT_EXIT(
        {
          const SignalScope scope;
          scope.end_at_once(true);
          ::raise(number);
        },
        code, "");
    EXPECT_EXIT(
        {
          const SignalScope scope;
          ::raise(number);
          scope.end_at_once(true);
        },
        code, "");
    EXPECT_EXIT(
        {
          const SignalScope scope;
          ::raise(SIGUSR1);
          ::raise(SIGINT);  // the same warning, passed on
          scope.end_at_once(true);
          ::raise(number);
        },
        code, "");
  }
}

TEST(Signals, WhatIsToEndAtOnceOnlyNotesAWarningAndAWishToSaveAndLaterEverything) {
  const SignalScope scope;
  scope.end_at_once(true);
  ::raise(SIGUSR1);
  ::raise(SIGUSR2);
  ::raise(SIGINT);  // the same warning, passed on
  EXPECT_EQ(scope.received(), SIGTERM);
  EXPECT_TRUE(scope.takes_save_request());
  scope.end_at_once(false);
  ::raise(SIGTERM);
  EXPECT_EQ(scope.received(), SIGTERM);
}

}  // namespace
}  // namespace keel
