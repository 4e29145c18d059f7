#pragma once
// A folder of files, as far as a checkpoint needs one.
//
// What was written, renamed or removed is seen at once by whoever reads, also when the process is killed
// then. But it is in memory: when power fails, only what was synced is sure to be there.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace learn {

class Disk {
 public:
  virtual ~Disk() = default;
  // Makes an empty file. If there is one of this name, it is emptied.
  virtual void create(const std::string& name) = 0;
  // Appends. A process that is killed meanwhile has written some of the bytes.
  virtual void write(const std::string& name, std::string_view bytes) = 0;
  // Returns when the bytes of this file are safe. Its name is not.
  virtual void sync(const std::string& name) = 0;
  // The file `from` gets the name `to`, all at once. A file that had it before is gone.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove(const std::string& name) = 0;
  // Returns when all names are safe: what create(), rename() and remove() did. Until then any of these may be
  // lost, also an earlier one without a later one.
  virtual void sync_folder() = 0;

  virtual std::vector<std::string> list() = 0;  // names, sorted by their characters
  virtual std::string read(const std::string& name) = 0;
};

struct Checkpoint {
  int step = 0;
  std::string data = {};
};

// A number that is another one where any bit of the bytes is (FNV-1a; by mistake, not by malice).
inline std::uint64_t hash(std::string_view bytes) {
  std::uint64_t h = 14695981039346656037U;
  for (const char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return h;
}

}  // namespace learn
