#pragma once
// What may befall a run: the rows of the fault law's table.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "keel/trainer/run_folder.h"
#include "tests/cli/faults/session.h"

namespace keel::testing {

// Where a fault strikes. The run's folder is `made`; it reads `data.tokens`.
struct Scene {
  Scene(Way the_way, int ranks);

  Way way;
  int n;
  Sandbox sandbox;
  RunFolder folder;
  std::unique_ptr<Session> session = {};
  // How the session after the fault begins. Ranks at an address start in a tenth of a launcher's time.
  std::string next = "resume=auto";
  Way next_way = Way::tcp;

  void write_tokens(const std::string& path, std::uint32_t factor = 1) const;
  void start(const std::string& arguments, const Session::Options& options = {}) {
    // Saves beside the training as well as those at once.
    const std::string saves = way == Way::tcp ? " checkpoint.async=true" : "";
    session = std::make_unique<Session>(sandbox, way, n, arguments + saves, options);
  }
  // Steps 6 and 12 are saved.
  void train_twelve_steps() const;
  void wait_until_it_trains() const;
  std::string checkpoint(std::int64_t step, const std::string& file = "") const {
    return folder.checkpoint(step) + file;
  }
};

struct Fault {
  std::string name;
  std::function<void(Scene&)> before = {};  // the session
  std::string session = {};                 // its arguments
  Session::Options options = {};
  std::function<void(Scene&)> during = {};
  std::vector<int> codes;                  // an exit code of each process is one of them
  std::vector<std::string> says = {};      // patterns, as of first_match(), in what the session says
  bool each_says = false;                  // as ranks do where one is gone, whom they cannot ask
  bool all_logs_say = false;               // the first pattern, in the log of each rank
  std::function<void(Scene&)> after = {};  // the session, before the next one
  bool of_launcher = false;                // needs one
};

// That ends by a signal alone, and saves nothing before.
inline const std::string kEndless = "steps=100000000 checkpoint.every=0 eval.every=0 ";

std::vector<Fault> checkpoint_faults();
std::vector<Fault> data_faults();
std::vector<Fault> folder_faults();
std::vector<Fault> signal_faults();

}  // namespace keel::testing
