#pragma once
// Options of other trainers' launchers that `keel launch` has, too: those of `accelerate launch`, `torchrun` and
// `accmt`.
//
// Most are keys of Accelerate's configuration file, so they are read by its table (keel/trainer/foreign/kind.h), and
// become values of the configuration and numbers of ranks and machines.

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "keel/trainer/foreign/translation.h"
#include "launched.h"

namespace keel::cli {

class LaunchFlags {
 public:
  LaunchFlags();
  LaunchFlags(const LaunchFlags&) = delete;
  LaunchFlags& operator=(const LaunchFlags&) = delete;

  // Of which few have a help: the others are for those who know them.
  std::vector<Option> options();

  struct Said {
    Words values = {};          // for `keel train`, before the user's own
    Words notes = {};           // for the user: what has no effect here
    ForeignLaunch launch = {};  // of the options, then of --config_file, then of the configuration
  };
  // `command`: the configuration and what stands behind it, or a program. An Error names the option that is wrong.
  // NODE_RANK, MASTER_ADDR and MASTER_PORT count where no option says otherwise.
  Said read(const Words& command, int ranks, const Environment& environment) const;

  std::string accelerate_file = {}, deepspeed_file = {};
  int threads = 0;  // of each process; 0: not said

 private:
  struct Flag {
    std::string key;  // of Accelerate's file
    Words words = {};
  };
  struct Switch {
    std::string_view names, key, value;
    bool is_on = false;
  };

  // An option that keel reads and does nothing with, and why.
  struct Idle {
    std::string_view names, why;
    bool has_value = true;
    Words words = {};
    bool is_on = false;  // of a switch; one that clears is on before
  };

  YamlNode root() const;
  int ranks_of_a_machine_ = 0;
  std::deque<Flag> flags_;
  std::deque<Switch> switches_;
  std::deque<Idle> idle_;
};

}  // namespace keel::cli
