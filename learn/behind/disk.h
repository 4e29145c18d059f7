#pragma once
// Disks that fail: one in memory whose power can be cut at any point, and a real folder.

#include <map>

#include "learn/behind/check.h"
#include "learn/given/disk.h"

namespace learn {

// What is in memory and what is safe.
class DiskState {
 public:
  using Names = std::map<std::string, int>;  // files by name

  const Names& names() const { return names_; }
  std::string bytes(int file) const;
  // What a process finds: what was done, whether safe or not.
  void create(const std::string& name);
  void write(const std::string& name, std::string_view bytes);
  void sync(const std::string& name);
  void rename(const std::string& from, const std::string& to);
  void remove(const std::string& name);
  void sync_folder();

  // How many states power loss can leave, up to 2^40; and one of them, in which everything is safe.
  std::uint64_t losses() const;
  DiskState after_loss(std::uint64_t which) const;
  // With one bit of a file changed.
  DiskState with_bit(const std::string& name, std::size_t bit) const;

 private:
  struct Change {
    bool empties = false;
    std::string bytes = {};
  };
  struct File {
    std::string safe = {};
    std::vector<Change> changes = {};
    std::vector<std::string> versions()
        const;  // what power loss may leave: nothing of the changes first, all last
  };
  using Renaming = std::vector<std::pair<std::string, int>>;  // names and their files; -1: none

  std::vector<File> files_ = {};
  Names names_ = {}, safe_names_ = {};
  std::vector<Renaming> renamings_ = {};  // that are not safe
  void apply(const Renaming& renaming);
};

// What ends a process.
struct Killed {};

// A disk in memory. It ends the process before or in the middle of a call.
class SimulatedDisk : public Disk {
 public:
  explicit SimulatedDisk(DiskState& state) : state_(state) {}

  int stop_before = -1;                 // the number of a call that changes something; -1: of none
  bool in_the_middle = false;           // of that call, if it is a write
  std::vector<std::string> calls = {};  // that changed something, as text

  void create(const std::string& name) override;
  void write(const std::string& name, std::string_view bytes) override;
  void sync(const std::string& name) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& name) override;
  void sync_folder() override;
  std::vector<std::string> list() override;
  std::string read(const std::string& name) override;

 private:
  void begin(const std::string& call);
  int file(const std::string& name, std::string_view call) const;
  DiskState& state_;
};

// The working folder.
class RealDisk : public Disk {
 public:
  explicit RealDisk(std::string folder) : folder_(std::move(folder)) {}
  void create(const std::string& name) override;
  void write(const std::string& name, std::string_view bytes) override;
  void sync(const std::string& name) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& name) override;
  void sync_folder() override;
  std::vector<std::string> list() override;
  std::string read(const std::string& name) override;

 private:
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string folder_;
};

}  // namespace learn
