// safe_checkpoint: a checkpoint that survives kill -9, power loss and a damaged bit
//
// A training that runs for weeks may end at any moment, and goes on from its newest checkpoint:
//
//   Killed in the middle of save(), it finds the checkpoint before, or the new one, and never a mix.
//   When save() has returned, the new one stays, even if power fails in the next microsecond.
//   Disks damage bits. load() notices that, and gives the checkpoint before. So two are kept, and no more:
//     checkpoints are large.
//
// given/disk.h says what a disk promises. The usual way: write a file under another name, sync it, rename it,
// sync the folder. Remove what is too old after that. learn::hash() tells whether bytes are what they were.
//
// Write save() and load(). Steps grow from save to save, but an interrupted step may be saved again. `data`
// is any bytes, or none. load() gives nothing where no checkpoint is complete. The folder has files of save()
// alone, also what it left when it was killed. To read afterwards: docs/checkpoints.md.

#include <optional>
#include <string>

#include "learn/given/disk.h"

void save(learn::Disk& disk, int step, const std::string& data) {
  // Your code.
}

std::optional<learn::Checkpoint> load(learn::Disk& disk) {
  return {};  // Your code.
}
