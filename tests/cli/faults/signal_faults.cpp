// Requests to end: to one rank, to all of them, to the launcher, twice, and while ranks still look for each other.

#include <gtest/gtest.h>

#include "tests/cli/faults/fault.h"

namespace keel::testing {
namespace {

int code_of(int signal_number) { return signal_number == SIGINT ? 128 + SIGINT : 128 + SIGTERM; }

Fault asked(const std::string& name, int signal_number, const std::function<void(const Session&, int)>& send,
            bool of_launcher = false) {
  return {.name = name,
          .session = kEndless,
          .during =
              [=](Scene& scene) {
                scene.wait_until_it_trains();
                send(*scene.session, signal_number);
              },
          .codes = {code_of(signal_number)},
          .says = {"stopped by (Ctrl-C|SIGTERM); to go on: keel launch -N [23] made/config.yaml resume=auto"},
          .after = [](Scene& scene) { EXPECT_FALSE(scene.folder.checkpoint_steps().empty()); },
          .of_launcher = of_launcher};
}

// The second request may come before, in or after the save that the first one asks for. Where it is sent to ranks one
// by one, one of them may hear of another's end before (2).
Fault hurried(const std::string& name, int first, int second, std::chrono::milliseconds apart, bool of_launcher) {
  const auto send = [=](const Session& session, int number) {
    of_launcher ? session.send_to_launcher(number) : session.send_to_all_ranks(number);
  };
  return {.name = name,
          .session = kEndless + "checkpoint.every=5",
          .during =
              [=](Scene& scene) {
                scene.wait_until_it_trains();
                send(*scene.session, first);
                std::this_thread::sleep_for(apart);
                send(*scene.session, second);
              },
          .codes = of_launcher ? std::vector{code_of(first), code_of(second)}
                               : std::vector{code_of(first), code_of(second), 2},
          .each_says = !of_launcher,
          .of_launcher = of_launcher};
}

// While ranks look for each other; by TCP rank 0 is alone then, and the others come later.
Fault asked_at_the_meeting(const std::string& name, int signal_number) {
  return {.name = name,
          .session = kEndless,
          .options = {.first_alone = true},
          .during =
              [=](Scene& scene) {
                EXPECT_TRUE(comes_true([&] { return scene.session->launcher_hears(signal_number); }));
                std::this_thread::sleep_for(std::chrono::milliseconds(150));
                scene.session->send_to_launcher(signal_number);
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                scene.session->start_others();
              },
          .codes = {code_of(signal_number)}};
}

// The one who ends the run is told what it waits for.
Fault asked_long_before_the_meeting() {
  return {.name = "TermLongBeforeTheMeeting",
          .session = kEndless,
          .options = {.first_alone = true},
          .during =
              [](Scene& scene) {
                EXPECT_TRUE(comes_true([&] { return scene.session->launcher_hears(SIGTERM); }));
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                scene.session->send_to_launcher(SIGTERM);
                if (scene.way == Way::mpi) return;  // a launcher brings all
                const std::string said = "this run was asked to end, but rank 0 waits for the others of ";
                EXPECT_TRUE(comes_true([&] { return scene.session->has_said(said); }));
                scene.session->start_others();
              },
          .codes = {128 + SIGTERM}};
}

}  // namespace

std::vector<Fault> signal_faults() {
  using namespace std::chrono_literals;
  std::vector<Fault> faults;
  const auto to_last = [](const Session& session, int number) { session.send_to_rank(1, number); };
  const auto to_first = [](const Session& session, int number) { session.send_to_rank(0, number); };
  const auto to_all = [](const Session& session, int number) { session.send_to_all_ranks(number); };
  const auto to_launcher = [](const Session& session, int number) { session.send_to_launcher(number); };
  for (const auto& [name, number] :
       std::vector<std::pair<std::string, int>>{{"Int", SIGINT}, {"Term", SIGTERM}, {"Usr1", SIGUSR1}}) {
    faults.push_back(asked(name + "ToTheFirstRank", number, to_first));
    faults.push_back(asked(name + "ToAnotherRank", number, to_last));
    faults.push_back(asked(name + "ToAllRanks", number, to_all));
    faults.push_back(asked(name + "ToTheLauncher", number, to_launcher, true));
    faults.push_back(asked_at_the_meeting(name + "AtTheMeeting", number));
  }
  faults.push_back(asked_long_before_the_meeting());
  faults.push_back(hurried("TwoInterruptsToAllRanks", SIGINT, SIGINT, 20ms, false));
  faults.push_back(hurried("TwoInterruptsToTheLauncher", SIGINT, SIGINT, 20ms, true));
  faults.push_back(hurried("TermThenInterruptToTheLauncher", SIGTERM, SIGINT, 20ms, true));
  faults.push_back(hurried("TwoTermsToTheLauncher", SIGTERM, SIGTERM, 20ms, true));
  return faults;
}

}  // namespace keel::testing
