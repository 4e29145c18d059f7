#include <functional>
#include <optional>
#include <random>

#include "learn/behind/safe_checkpoint/real_kills.h"
#include "learn/behind/safe_checkpoint/story.h"

void save(learn::Disk& disk, int step, const std::string& data);
std::optional<learn::Checkpoint> load(learn::Disk& disk);

namespace {

using learn::data_of;
using learn::DiskState;
using learn::name_of;
using learn::SimulatedDisk;
using learn::Story;
using learn::why;

void save_to(DiskState& state, int step) {
  SimulatedDisk disk(state);
  save(disk, step, data_of(step));
}

// load() must give `newest`, or `begun` where it is not 0; 0 for newest: there is none.
void expect_loaded(DiskState state, int newest, int begun, const Story& story, const std::string& reason) {
  SimulatedDisk disk(state);
  const std::optional<learn::Checkpoint> found = load(disk);
  const int step = found ? found->step : 0;
  if (step != newest && (begun == 0 || step != begun))
    learn::wrong("{} load() then gives {}, and {} was expected{}.{}", story.text(), name_of(found),
                 newest == 0 ? "nothing" : fmt::format("checkpoint {}", newest),
                 begun == 0 ? "" : fmt::format(", or checkpoint {}", begun), reason);
  if (found && found->data != data_of(step))
    learn::wrong(
        "{} load() then gives checkpoint {} with other data than was saved: {} bytes instead of {}, or "
        "another "
        "content. It must notice by the hash that a file is not complete.{}",
        story.text(), step, found->data.size(), data_of(step).size(), reason);
}

std::string saved_before(int saved, int next) {
  std::string said = saved == 0   ? "Nothing is saved before."
                     : saved == 1 ? "Checkpoint 1 is saved."
                                  : fmt::format("Checkpoints 1 to {} are saved.", saved);
  return fmt::format("{} save() of step {} calls", said, next);
}

void loads_what_was_saved() {
  DiskState state;
  SimulatedDisk empty(state);
  if (load(empty)) learn::wrong("The folder is empty, and load() gives {}.", name_of(load(empty)));
  for (int step = 1; step <= 3; ++step) {
    save_to(state, step);
    if (state.names().empty()) learn::wrong("save() ended, and there is no file. Is it written?");
    SimulatedDisk disk(state);
    const auto found = load(disk);
    if (!found || found->step != step)
      learn::wrong("After save() of step {} load() gives {}.", step, name_of(found));
    if (found->data != data_of(step))
      learn::wrong(
          "After save() of step {} load() gives other data: {} bytes, and {} were saved. They have spaces, "
          "ends of "
          "lines and zeros.",
          step, found->data.size(), data_of(step).size());
  }
  save(empty, 4, "");
  const auto found = load(empty);
  if (!found || found->step != 4 || !found->data.empty())
    learn::wrong("A checkpoint of step 4 without data was saved, and load() gives {}{}.", name_of(found),
                 found ? fmt::format(" with {} bytes", found->data.size()) : "");
}

void newest_by_number() {
  DiskState state;
  std::string saved;
  for (const int step : {8, 9, 10, 11, 99, 100, 1000}) {
    save_to(state, step);
    saved += fmt::format("{}{}", saved.empty() ? "" : ", ", step);
    SimulatedDisk disk(state);
    const auto found = load(disk);
    if (!found || found->step != step)
      learn::wrong(
          "Steps {} are saved, and load() gives {}. Names are sorted by characters, and \"10\" comes before "
          "\"9\": "
          "step numbers need leading zeros, or are compared as numbers.",
          saved, name_of(found));
  }
}

// Every point of the save() that follows `saved` others. What happens there is for `at_point`: the state, the
// calls done, and whether save() has returned.
void at_each_point(int saved, bool in_the_middle,
                   const std::function<void(const DiskState& before, const DiskState& state,
                                            const Story& story, bool returned)>& at_point) {
  DiskState before;
  for (int step = 1; step <= saved; ++step) save_to(before, step);
  for (int point = 0; point < 1000; ++point)
    for (int half = 0; half <= (in_the_middle ? 1 : 0); ++half) {
      DiskState state = before;
      SimulatedDisk disk(state);
      disk.stop_before = point;
      disk.in_the_middle = half == 1;
      bool returned = false;
      try {
        save(disk, saved + 1, data_of(saved + 1));
        returned = true;
      } catch (const learn::Killed&) {}
      at_point(before, state, {saved_before(saved, saved + 1), disk.calls, {}}, returned);
      if (returned) return;
    }
}

void go_on(DiskState state, int step, const Story& story) {
  SimulatedDisk disk(state);
  save(disk, step, data_of(step));
  Story whole = story;
  whole.end += fmt::format(" The next process saves step {}.", step);
  expect_loaded(state, step, 0, whole,
                "\nWhat an interrupted save() has left must not be in the way of the next.");
}

void survives_kills() {
  for (int saved = 0; saved <= 3; ++saved)
    at_each_point(saved, true,
                  [&](const DiskState& before, const DiskState& state, Story story, bool returned) {
                    story.end = returned ? "and returns." : "and is killed there.";
                    expect_loaded(state, returned ? saved + 1 : saved, returned ? 0 : saved + 1, story,
                                  why(story.calls, before));
                    go_on(state, saved + 2, story);
                  });
}

constexpr std::uint64_t kAllLosses = 400;

// All states that loss of power can leave, or many of them.
void for_losses(const DiskState& state, const std::function<void(const DiskState&)>& f) {
  const std::uint64_t all = state.losses();
  std::mt19937_64 engine(all);
  for (std::uint64_t i = 0; i < std::min(all, kAllLosses); ++i)
    f(state.after_loss(all <= kAllLosses ? i : i == 0 ? 0 : i == 1 ? all - 1 : engine() % all));
}

void survives_power_loss() {
  for (int saved = 0; saved <= 3; ++saved)
    at_each_point(saved, false,
                  [&](const DiskState& before, const DiskState& state, Story story, bool returned) {
                    story.end = returned ? "and returns. Then power fails." : "and power fails there.";
                    for_losses(state, [&](const DiskState& after) {
                      expect_loaded(after, returned ? saved + 1 : saved, returned ? 0 : saved + 1, story,
                                    why(story.calls, before));
                      go_on(after, saved + 2, story);
                    });
                  });
}

// Processes that are killed, or lose power, one after the other.
void survives_one_after_the_other() {
  std::mt19937_64 engine(17);
  for (int trial = 0; trial < 400; ++trial) {
    DiskState state;
    int safe = 0, begun = 0;  // the last step whose save() has returned, and the last one that was begun
    for (int life = 0; life < 6; ++life) {
      const DiskState before = state;
      SimulatedDisk reading(state);
      const auto found = load(reading);
      int step = found ? found->step : 0;  // what this process goes on from
      Story story{"Several processes go on from each other. The last save() calls", {}, {}};
      bool returned = true;
      for (int count = static_cast<int>(engine() % 3); returned && count >= 0; --count) {
        SimulatedDisk disk(state);
        disk.stop_before = count > 0 ? -1 : static_cast<int>(engine() % 12);
        disk.in_the_middle = engine() % 2 == 0;
        begun = std::max(begun, ++step);
        try {
          save(disk, step, data_of(step));
          safe = step;
        } catch (const learn::Killed&) { returned = false; }
        story.calls = disk.calls;
      }
      const bool power = engine() % 2 == 0;
      story.end = fmt::format("{} {}.", returned ? "and returns. Then" : "and there",
                              power ? "power fails" : "the process is killed");
      if (power) state = state.after_loss(engine() % state.losses());
      SimulatedDisk after(state);
      const auto left = load(after);
      expect_loaded(state, left && left->step > safe && left->step <= begun ? left->step : safe, 0, story,
                    why(story.calls, before));
    }
  }
}

void notices_damage() {
  DiskState state;
  for (int step = 1; step <= 3; ++step) save_to(state, step);
  for (const auto& [name, file] : state.names()) {
    const std::size_t bits = 8 * state.bytes(file).size();
    for (std::size_t bit = 0; bit < bits; ++bit) {
      DiskState damaged = state.with_bit(name, bit);
      SimulatedDisk disk(damaged);
      std::optional<learn::Checkpoint> found;
      const std::string what =
          fmt::format("Steps 1, 2 and 3 are saved. Then bit {} of byte {} of the file {} changes.", bit % 8,
                      bit / 8, name);
      try {
        found = load(disk);
      } catch (const std::exception& error) {
        learn::wrong("{} load() throws {}: what is no number must count as damage, too.", what, error.what());
      }
      if (!found)
        learn::wrong("{} load() gives nothing. Keep the checkpoint before the newest, and go back to it.",
                     what);
      for (int step = 1; step <= 3; ++step)
        if (found->step != step && found->data == data_of(step))
          learn::wrong(
              "{} load() gives the data of step {} as checkpoint {}. Keep a hash of all that the file says, "
              "of the "
              "step as well, and compare.",
              what, step, found->step);
      if (found->step != 2 && found->step != 3)
        learn::wrong("{} load() gives checkpoint {}, which is not the newest and not the one before.", what,
                     found->step);
      if (found->data != data_of(found->step))
        learn::wrong(
            "{} load() gives checkpoint {} with damaged data. Keep a hash of all that the file says, of the "
            "step as "
            "well, and compare.",
            what, found->step);
    }
  }
  // A file that has lost its end.
  for (const auto& [name, file] : state.names()) {
    const std::string bytes = state.bytes(file);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      DiskState cut = state;
      cut.create(name);
      cut.write(name, bytes.substr(0, size));
      expect_loaded(
          cut, 3, 2,
          {"Steps 1, 2 and 3 are saved.",
           {},
           fmt::format("Then the file {} loses all but {} of its {} bytes.", name, size, bytes.size())},
          "");
    }
  }
}

void keeps_two() {
  DiskState state;
  for (int step = 1; step <= 20; ++step) {
    save_to(state, step);
    if (state.names().size() > 3)
      learn::wrong(
          "After {} saves there are {} files. Checkpoints that are older than the last two are to be "
          "removed.",
          step, state.names().size());
  }
  at_each_point(3, true, [](const DiskState&, const DiskState& state, const Story& story, bool) {
    DiskState later = state;
    for (int step = 5; step <= 8; ++step) save_to(later, step);
    if (later.names().size() > 3)
      learn::wrong(
          "{}\nand is killed there. After four more saves there are {} files: what was left is never "
          "removed.",
          story.text(), later.names().size());
  });
}

}  // namespace

int main() {
  return learn::run({
      {"load() gives what was saved last", loads_what_was_saved},
      {"the newest is the one with the largest step", newest_by_number},
      {"killed at any point of save(), there is a complete checkpoint", survives_kills},
      {"when power fails at any point, too", survives_power_loss},
      {"a damaged bit is noticed, and the checkpoint before is there", notices_damage},
      {"two checkpoints are kept, and no more", keeps_two},
      {"process after process", survives_one_after_the_other},
      {"a real process is killed on a real disk", learn::real_kills},
  });
}
