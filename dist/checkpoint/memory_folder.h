#pragma once
// Where copies of a run's state lie in a host's memory: ROOT/keel-UID-RUN-SESSION/step-35/.
//
// ROOT is /dev/shm, or what KEEL_MEMORY_FOLDER names. RUN is a hash of the run's folder, and SESSION a number that the
// session which wrote the copies has drawn: a run that was deleted, or that went on without them, never meets them
// again. Nobody but the user may enter the folder, and one that is not the user's own is never used, nor removed.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

class MemoryFolder {
 public:
  static constexpr const char *kVariable = "KEEL_MEMORY_FOLDER", *kUsualRoot = "/dev/shm";
  static std::string root_of_host();
  // 16 hexadecimal digits that nobody has drawn before.
  static std::string new_session();
  static bool is_session(std::string_view text);

  // `run` names the run's folder as all its sessions do. Makes nothing.
  MemoryFolder(std::string root, std::string_view run, std::string_view session);

  const std::string& root() const { return root_; }
  const std::string& path() const { return path_; }
  const std::string& session() const { return session_; }
  std::string of_step(std::int64_t step) const;
  // Makes the folder of a step, where it is not there. An Error of kind io where that cannot be, or where something
  // else than a folder of this user alone is in the way. Any rank of the host may call it, also at the same time.
  void make(std::int64_t step) const;
  // Gives the folder of a step, with what lies there, to another one. An Error of kind io where that cannot be.
  void move(std::int64_t step, std::int64_t to) const;
  // Steps that have a folder, ascending; none where there is no folder. What is somebody else's is an Error.
  std::vector<std::int64_t> steps() const;

  // What cannot be removed stays.
  void remove(std::int64_t step) const noexcept;
  void remove() const noexcept;
  // Those of the run's other sessions.
  void remove_other_sessions() const noexcept;

 private:
  std::string root_, session_;
  std::string sessions_;  // what the paths of all of the run's sessions begin with
  std::string path_;
};

}  // namespace keel
