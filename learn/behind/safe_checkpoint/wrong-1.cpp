// says: empties the old checkpoint before the new one is complete
#include <optional>
#include <string>
#include <vector>

#include "learn/given/disk.h"

static std::vector<std::string> checkpoints(learn::Disk& disk) {
  std::vector<std::string> names;
  for (const std::string& name : disk.list())
    if (name[0] == 'c') names.push_back(name);
  return names;
}

void save(learn::Disk& disk, int step, const std::string& data) {
  const std::string number = std::to_string(step), body = number + " " + data;
  disk.create("c");
  disk.write("c", std::to_string(learn::hash(body)) + " " + body);
  disk.sync("c");
  disk.sync_folder();
}

std::optional<learn::Checkpoint> load(learn::Disk& disk) {
  const std::vector<std::string> names = checkpoints(disk);
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    const std::string bytes = disk.read(*name);
    const std::size_t space = bytes.find(' ');
    if (space == std::string::npos) continue;
    const std::string body = bytes.substr(space + 1);
    if (bytes.substr(0, space) != std::to_string(learn::hash(body))) continue;
    return learn::Checkpoint{std::stoi(body), body.substr(body.find(' ') + 1)};
  }
  return {};
}
