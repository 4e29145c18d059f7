// A training in whose fourth step one of the ranks does something bad, in the middle of the backward pass.
// usage: training_fault FAULT RANK THREADS CONFIG.yaml KEY=VALUE...
// With THREADS 0 it is one rank of several processes. Writes the time of the fault into the file `fault`, in
// milliseconds since 1970.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <new>
#include <stdexcept>

#include "cli/rank_logs.h"
#include "cli/ranks.h"
#include "cli/report.h"
#include "keel/dist/comm/decorators.h"
#include "keel/trainer/config.h"
#include "keel/trainer/signals.h"
#include "keel/trainer/trainer.h"

namespace keel::cli {
namespace {

void fault(const std::string& kind) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::ofstream("fault") << std::chrono::duration_cast<std::chrono::milliseconds>(now).count() << '\n';
  if (kind == "killed") ::raise(SIGKILL);
  if (kind == "stopped") ::raise(SIGSTOP);
  if (kind == "exits") std::exit(0);
  if (kind == "exits_at_once") ::_exit(0);
  if (kind == "throws") throw std::runtime_error("the sky is falling");
  if (kind == "out_of_memory") throw std::bad_alloc();
}

// Knows the step, and where in its backward pass the rank is.
class FaultyCommunicator : public WatchedCommunicator {
 public:
  FaultyCommunicator(Communicator& inner, std::string kind)
      : WatchedCommunicator(inner, [this](std::int64_t, const Collective& collective) { watch(collective); }),
        kind_(std::move(kind)) {}
  void set_activity(const std::string& activity) override {
    is_time_ = activity == "step 4";
    gradients_ = 0;
    WatchedCommunicator::set_activity(activity);
  }

 private:
  void watch(const Collective& collective) {
    const bool sums =
        collective.kind == CollectiveKind::all_reduce || collective.kind == CollectiveKind::reduce_scatter;
    if (is_time_ && sums && ++gradients_ == 2) fault(kind_);
  }

  std::string kind_;
  bool is_time_ = false;
  int gradients_ = 0;  // sums of this step
};

class Silent : public TrainObserver {
 public:
  explicit Silent(const SignalScope& signals) : signals_(signals) {}
  bool stop_requested() override { return signals_.received() != 0; }

 private:
  const SignalScope& signals_;
};

int run(const std::string& kind, int rank, int threads, const Config& config) {
  const SignalScope signals;
  RankLogs logs;
  logs.set_run(config.run);
  return on_ranks(threads,
                  [&](Communicator& ranks) {
                    FaultyCommunicator faulty(ranks, ranks.rank() == rank ? kind : "");
                    Silent silent(signals);
                    train(config, silent, faulty);
                    return 0;
                  },
                  {.is_worried = [&] { return signals.received() == SIGTERM; },
                   .log = [&](int of, const std::string& line) { logs.write(of, line); }});
}

}  // namespace
}  // namespace keel::cli

int main(int count, char** words) {
  if (count < 5) return 64;
  try {
    return keel::cli::run(words[1], std::atoi(words[2]), std::atoi(words[3]),
                          keel::load_config(words[4], {words + 5, words + count}));
  } catch (const std::exception&) {
    const auto failure = keel::cli::current_failure();
    return keel::cli::report(failure.message, failure.code);
  }
}
