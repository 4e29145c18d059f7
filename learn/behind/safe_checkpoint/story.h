#pragma once
// What is saved, and how messages tell what became of it.

#include <algorithm>
#include <optional>
#include <random>

#include "learn/behind/disk.h"

namespace learn {

// The data of a step: any bytes, spaces, ends of lines and zeros among them.
inline std::string data_of(int step, std::size_t size = 40) {
  std::mt19937_64 engine(static_cast<std::uint64_t>(step));
  std::string data = fmt::format("weights of step {} \n", step);
  while (data.size() < size) data += static_cast<char>(engine() & 0xff);
  return data;
}

inline std::string name_of(const std::optional<learn::Checkpoint>& found) {
  return found ? fmt::format("checkpoint {}", found->step) : "nothing";
}

// What happened, for messages.
struct Story {
  std::string before;  // "Checkpoints 1 and 2 are saved. Then, in save() of step 3,"
  std::vector<std::string> calls = {};
  std::string end;  // "the process is killed"

  std::string text() const {
    std::string said = before;
    for (const std::string& call : calls) said += "\n  " + call;
    return said + "\n" + end;
  }
};

// Which habit explains it, as the calls of a save() show it. `complete`: names that had a complete checkpoint
// before.
inline std::string why(const std::vector<std::string>& calls, const DiskState& before) {
  std::vector<std::string> unsynced;
  bool name_is_safe = true, renamed = false;
  const auto quoted = [](const std::string& call) {
    const std::size_t first = call.find('"');
    return first == std::string::npos ? "" : call.substr(first + 1, call.find('"', first + 1) - first - 1);
  };
  for (const std::string& call : calls) {
    const std::string name = quoted(call);
    if (call.starts_with("create") && before.names().count(name) != 0 && !renamed) {
      bool moves = false;
      for (const std::string& later : calls)
        moves = moves || (later.starts_with("rename") && quoted(later) == name);
      if (!moves)
        return fmt::format(
            "\ncreate(\"{}\") empties the old checkpoint before the new one is complete. Write to a file of "
            "another name, and rename() it when it is complete.",
            name);
    }
    if (call.starts_with("write")) unsynced.push_back(name);
    if (call.starts_with("sync(")) std::erase(unsynced, name);
    if (call.starts_with("rename")) {
      if (std::find(unsynced.begin(), unsynced.end(), name) != unsynced.end())
        return fmt::format(
            "\nA name can be safe before the bytes are: sync(\"{}\") belongs in front of its rename().",
            name);
      name_is_safe = false, renamed = true;
    }
    if (call.starts_with("sync_folder")) name_is_safe = true;
    if (call.starts_with("remove") && !name_is_safe)
      return "\nThe older checkpoint is removed while the new name may still be lost: sync_folder() belongs "
             "between.";
  }
  if (!unsynced.empty())
    return fmt::format("\nNobody has called sync(\"{}\"), so its bytes are in memory.", unsynced[0]);
  if (!name_is_safe) return "\nBehind rename() the new name is in memory. sync_folder() makes it safe.";
  return "";
}

}  // namespace learn
