#include "keel/trainer/trackers/paths.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"

namespace keel {

std::string tracker_path(const RunDescription& run, std::string path) {
  constexpr std::string_view kName = "<name>";
  if (const std::size_t at = path.find(kName); at != std::string::npos) path.replace(at, kName.size(), run.name);
  return std::filesystem::path(path).is_absolute() ? path : concat(run.folder, '/', path);
}

void make_folders_for(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) throw Error(concat("cannot make the folder '", folder.string(), "': ", code.message()), ErrorKind::io);
}

std::string text_of_earlier_session(const RunDescription& run, const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return "";
  KEEL_CHECK(run.is_resumed, "'", file, "' is there already, and is left alone; give the tracker another path");
  return read_text_file(file);
}

}  // namespace keel
