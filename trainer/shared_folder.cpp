#include "keel/trainer/shared_folder.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "keel/dist/checkpoint/manifest.h"
#include "keel/dist/checkpoint/visibility.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/file.h"
#include "keel/runtime/host_name.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

std::string whole(const std::string& path) {
  std::error_code ignored;
  const fs::path absolute = fs::absolute(path, ignored);
  return absolute.empty() ? path : absolute.lexically_normal().string();
}

// What the first rank has, told by one that does not see it.
std::string complaint(const std::string& path, const std::string& host, const std::string& theirs) {
  return concat("host ", host_name(), " does not see in '", whole(path), "' what rank 0 on host ", host, " has in '",
                theirs, "'");
}

// Removes its file in the end.
class SignInFolder {
 public:
  explicit SignInFolder(const std::string& folder) : path_(temporary_beside(concat(folder, "/shared"))) {
    write_text_file(path_, "");
  }
  ~SignInFolder() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  SignInFolder(const SignInFolder&) = delete;
  SignInFolder& operator=(const SignInFolder&) = delete;
  std::string name() const { return fs::path(path_).filename().string(); }

 private:
  std::string path_;
};

}  // namespace

void check_shared_folder(const std::string& folder, Communicator& ranks, std::chrono::milliseconds within) {
  if (ranks.size() == 1) return;
  std::error_code code;
  fs::path place = whole(folder);
  std::optional<SignInFolder> sign;
  int levels = 0;  // above the folder
  if (ranks.rank() == 0) {
    for (; !fs::is_directory(place, code) && place.has_relative_path(); place = place.parent_path()) ++levels;
    try {
      sign.emplace(place.string());
    } catch (const Error&) {}  // nor can the run write there, which says so
  }
  levels = gather_values(ranks, levels).front();
  const std::string name = broadcast_text(ranks, sign ? sign->name() : "");
  const std::string host = broadcast_text(ranks, host_name()), theirs = broadcast_text(ranks, place.string());
  if (name.empty()) return;
  together(ranks, [&] {
    if (ranks.rank() == 0) return;
    for (int level = 0; level < levels; ++level) place = place.parent_path();
    if (!becomes_visible([&] { return fs::exists(place / name, code); }, within))
      throw Error(
          concat(complaint(place.string(), host, theirs), "; give the run a folder that all hosts share (run=FOLDER)"),
          ErrorKind::io);
  });
}

void check_readable_by_all(const std::string& checkpoint, Communicator& ranks, std::chrono::milliseconds within) {
  if (ranks.size() == 1) return;
  const std::string host = broadcast_text(ranks, host_name()), theirs = broadcast_text(ranks, whole(checkpoint));
  together(ranks, [&] {
    if (becomes_visible([&] { return is_checkpoint(checkpoint); }, within)) return;
    throw Error(
        concat(complaint(checkpoint, host, theirs), "; give a checkpoint that all hosts share, or a copy to each"),
        ErrorKind::io);
  });
}

}  // namespace keel
