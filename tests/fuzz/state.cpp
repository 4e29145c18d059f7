#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/trainer/checkpoint.h"
#include "tests/fuzz/manifest_laws.h"
#include "tests/fuzz/old_checkpoint.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/target.h"

bool keel::fuzz::state(std::string_view bytes) {
  static const std::string weights = write_scratch(std::string(kOldWeights.name), bytes_of(kOldWeights)),
                           numbers = write_scratch(std::string(kOldState.name), bytes_of(kOldState));
  write_scratch("state.json", bytes);
  return accepts([&] {
    const Checkpoint checkpoint = open_checkpoint(scratch().path());
    require(0 <= checkpoint.state.optimizer.steps && checkpoint.state.optimizer.steps <= checkpoint.state.step,
            "no more steps are taken than done");
    require_sound(checkpoint.manifest);
    ExtentReader(scratch().path(), checkpoint.manifest).verify();
  });
}
