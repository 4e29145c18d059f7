#include "learn/behind/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace learn {

std::vector<std::string> DiskState::File::versions() const {
  std::vector<std::string> found;
  std::string before = safe;
  for (std::size_t c = 0; c < changes.size(); ++c) {
    found.push_back(before);
    if (changes[c].empties) {
      before.clear();
      continue;
    }
    const std::string& bytes = changes[c].bytes;
    found.push_back(before + bytes.substr(0, bytes.size() / 2));
    const std::string hole =
        before + std::string(bytes.size(), '\0');  // its length is there, its bytes are not
    found.push_back(hole);
    std::string rest;
    for (std::size_t later = c + 1; later < changes.size() && !changes[later].empties; ++later)
      rest += changes[later].bytes;
    if (!rest.empty()) found.push_back(hole + rest);
    before += bytes;
  }
  found.push_back(before);
  return found;
}

std::string DiskState::bytes(int file) const {
  return files_[static_cast<std::size_t>(file)].versions().back();
}

void DiskState::apply(const Renaming& renaming) {
  for (const auto& [name, file] : renaming) {
    if (file < 0) names_.erase(name);
    else names_[name] = file;
  }
}

void DiskState::create(const std::string& name) {
  if (const auto found = names_.find(name); found != names_.end()) {
    files_[static_cast<std::size_t>(found->second)].changes.push_back({.empties = true});
    return;
  }
  files_.emplace_back();
  renamings_.push_back({{name, static_cast<int>(files_.size()) - 1}});
  apply(renamings_.back());
}
void DiskState::write(const std::string& name, std::string_view bytes) {
  files_[static_cast<std::size_t>(names_.at(name))].changes.push_back({.bytes = std::string(bytes)});
}
void DiskState::sync(const std::string& name) {
  File& file = files_[static_cast<std::size_t>(names_.at(name))];
  file.safe = file.versions().back();
  file.changes.clear();
}
void DiskState::rename(const std::string& from, const std::string& to) {
  if (from == to) return;
  renamings_.push_back({{to, names_.at(from)}, {from, -1}});
  apply(renamings_.back());
}
void DiskState::remove(const std::string& name) {
  renamings_.push_back({{name, -1}});
  apply(renamings_.back());
}
void DiskState::sync_folder() {
  safe_names_ = names_;
  renamings_.clear();
}

std::uint64_t DiskState::losses() const {
  std::uint64_t all = 1;
  const auto times = [&](std::uint64_t choices) { all = std::min(all * choices, std::uint64_t{1} << 40); };
  for (std::size_t r = 0; r < renamings_.size(); ++r) times(2);
  for (const File& file : files_) times(file.changes.empty() ? 1 : file.versions().size());
  return all;
}

DiskState DiskState::after_loss(std::uint64_t which) const {
  DiskState after;
  const auto choose = [&](std::uint64_t choices) {
    const std::uint64_t chosen = which % choices;
    which /= choices;
    return static_cast<std::size_t>(chosen);
  };
  after.names_ = safe_names_;
  for (const Renaming& renaming : renamings_)
    if (choose(2) == 1) after.apply(renaming);
  after.safe_names_ = after.names_;
  for (const File& file : files_) {
    const std::vector<std::string> versions = file.versions();
    after.files_.push_back({.safe = versions[choose(versions.size())]});
  }
  return after;
}

DiskState DiskState::with_bit(const std::string& name, std::size_t bit) const {
  DiskState damaged = *this;
  File& file = damaged.files_[static_cast<std::size_t>(names_.at(name))];
  file.safe = file.versions().back();
  file.changes.clear();
  file.safe[bit / 8] = static_cast<char>(static_cast<unsigned char>(file.safe[bit / 8]) ^ (1U << (bit % 8)));
  return damaged;
}

void SimulatedDisk::begin(const std::string& call) {
  if (calls.size() > 1000) wrong("save() has changed the disk a thousand times: does a loop end?");
  if (static_cast<int>(calls.size()) == stop_before) throw Killed{};
  calls.push_back(call);
}
int SimulatedDisk::file(const std::string& name, std::string_view call) const {
  const auto found = state_.names().find(name);
  if (found == state_.names().end()) wrong("{}(\"{}\"): there is no such file.", call, name);
  return found->second;
}

void SimulatedDisk::create(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos) wrong("create(\"{}\"): that is no name.", name);
  begin(fmt::format("create(\"{}\")", name));
  state_.create(name);
}
void SimulatedDisk::write(const std::string& name, std::string_view bytes) {
  file(name, "write");
  if (in_the_middle && static_cast<int>(calls.size()) == stop_before) {
    calls.push_back(
        fmt::format("write(\"{}\", the first {} of {} bytes)", name, bytes.size() / 2, bytes.size()));
    state_.write(name, bytes.substr(0, bytes.size() / 2));
    throw Killed{};
  }
  begin(fmt::format("write(\"{}\", {} bytes)", name, bytes.size()));
  state_.write(name, bytes);
}
void SimulatedDisk::sync(const std::string& name) {
  file(name, "sync");
  begin(fmt::format("sync(\"{}\")", name));
  state_.sync(name);
}
void SimulatedDisk::rename(const std::string& from, const std::string& to) {
  file(from, "rename");
  begin(fmt::format("rename(\"{}\", \"{}\")", from, to));
  state_.rename(from, to);
}
void SimulatedDisk::remove(const std::string& name) {
  file(name, "remove");
  begin(fmt::format("remove(\"{}\")", name));
  state_.remove(name);
}
void SimulatedDisk::sync_folder() {
  begin("sync_folder()");
  state_.sync_folder();
}
std::vector<std::string> SimulatedDisk::list() {
  std::vector<std::string> names;
  for (const auto& [name, file] : state_.names()) names.push_back(name);
  return names;
}
std::string SimulatedDisk::read(const std::string& name) { return state_.bytes(file(name, "read")); }

namespace {

[[noreturn]] void fail(std::string_view call, const std::string& path) {
  wrong("{} {}: {}", call, path, std::strerror(errno));
}

class Open {
 public:
  Open(const std::string& path, int flags) : fd(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd < 0) fail("open", path);
  }
  ~Open() { close(fd); }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
  int fd;
};

}  // namespace

void RealDisk::create(const std::string& name) { const Open file(path(name), O_WRONLY | O_CREAT | O_TRUNC); }
void RealDisk::write(const std::string& name, std::string_view bytes) {
  const Open file(path(name), O_WRONLY | O_APPEND);
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.fd, bytes.data(), std::min<std::size_t>(bytes.size(), 4096));
    if (n < 0) fail("write", path(name));
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}
void RealDisk::sync(const std::string& name) {
  const Open file(path(name), O_WRONLY);
  if (fsync(file.fd) != 0) fail("fsync", path(name));
}
void RealDisk::rename(const std::string& from, const std::string& to) {
  if (std::rename(path(from).c_str(), path(to).c_str()) != 0) fail("rename", path(from));
}
void RealDisk::remove(const std::string& name) {
  if (unlink(path(name).c_str()) != 0) fail("unlink", path(name));
}
void RealDisk::sync_folder() {
  const Open folder(folder_, O_RDONLY | O_DIRECTORY);
  if (fsync(folder.fd) != 0) fail("fsync", folder_);
}
std::vector<std::string> RealDisk::list() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}
std::string RealDisk::read(const std::string& name) {
  std::ifstream file(path(name), std::ios::binary);
  if (!file) fail("read", path(name));
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

}  // namespace learn
