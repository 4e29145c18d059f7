#include "keel/trainer/checkpoint.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/target.h"

bool keel::fuzz::state(std::string_view bytes) {
  // What the files of the corpus name, so that their hashes are compared, too.
  static const std::string weights = write_scratch("model.safetensors", "weights"),
                           numbers = write_scratch("optimizer.safetensors", "numbers");
  write_scratch("state.json", bytes);
  return accepts([&] {
    const TrainState state = read_state(scratch().path());
    require(0 <= state.optimizer.steps && state.optimizer.steps <= state.step, "no more steps are taken than done");
    read_checkpoint(scratch().path());
  });
}
