#pragma once
// Processes that save on a real disk, and are killed.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "learn/behind/safe_checkpoint/story.h"

void save(learn::Disk& disk, int step, const std::string& data);
std::optional<learn::Checkpoint> load(learn::Disk& disk);

namespace learn {

// In a process of its own: saves without end, and says each step that is saved.
[[noreturn]] inline void save_for_ever(const std::string& folder, int first, int said) {
  try {
    RealDisk disk(folder);
    for (int step = first;; ++step) {
      save(disk, step, data_of(step, 60000));
      if (write(said, &step, sizeof step) != sizeof step) _exit(4);
    }
  } catch (...) { _exit(3); }
}

inline void real_kills() {
  char folder[] = "checkpoints-XXXXXX";
  if (mkdtemp(folder) == nullptr) wrong("There is no folder for a real run.");
  std::mt19937_64 engine(23);
  RealDisk disk(folder);
  int newest = 0;
  for (int life = 0; life < 12; ++life) {
    int ends[2];
    if (pipe(ends) != 0) wrong("There is no pipe for a real run.");
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      save_for_ever(folder, newest + 1, ends[1]);
    }
    close(ends[1]);
    usleep(static_cast<useconds_t>(1000 + engine() % 12000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    int said = newest;
    for (int step = 0; read(ends[0], &step, sizeof step) == sizeof step;) said = step;
    close(ends[0]);
    if (!WIFSIGNALED(status)) wrong("On a real disk, save() fails: it throws.");
    const auto found = load(disk);
    const int step = found ? found->step : 0;
    if (step != said && step != said + 1)
      wrong(
          "A process saves on a real disk and is killed (SIGKILL) after its save() of step {} has returned. "
          "load() "
          "gives {}.",
          said, name_of(found));
    if (found && found->data != data_of(step, 60000))
      wrong(
          "A process that saves on a real disk is killed (SIGKILL). load() gives checkpoint {} with other "
          "data.",
          step);
    newest = step;
  }
}

}  // namespace learn
