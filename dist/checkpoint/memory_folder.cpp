#include "keel/dist/checkpoint/memory_folder.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <span>
#include <system_error>

#include "keel/runtime/error.h"
#include "keel/runtime/xxh3.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-", kHexDigits = "0123456789abcdef";
constexpr std::size_t kSessionDigits = 16;

[[noreturn]] void refuse(const std::string& path, std::string_view reason) {
  throw Error(concat("cannot keep copies in '", path, "': ", reason), ErrorKind::io);
}

// Links are not followed.
bool is_own_folder(const std::string& path) {
  struct ::stat found = {};
  return ::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == ::geteuid();
}

void check_private(const std::string& path) {
  struct ::stat found = {};
  const bool is_private = is_own_folder(path) && ::lstat(path.c_str(), &found) == 0 && (found.st_mode & 077) == 0;
  if (!is_private) refuse(path, "what is there is no folder that this user alone may enter");
}

// Where everybody may rename everything, a folder is its maker's no longer than others let it be.
void check_root(const std::string& root) {
  struct ::stat found = {};
  if (::stat(root.c_str(), &found) != 0) refuse(root, std::generic_category().message(errno));
  if (!S_ISDIR(found.st_mode)) refuse(root, "it is no folder");
  if ((found.st_mode & S_IWOTH) != 0 && (found.st_mode & S_ISVTX) == 0)
    refuse(root, "everybody may rename what lies there (it has no sticky bit)");
}

void make_private(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return;
  if (errno != EEXIST) refuse(path, std::generic_category().message(errno));
  check_private(path);
}

void remove_own(const std::string& path) noexcept {
  std::error_code ignored;
  if (is_own_folder(path)) fs::remove_all(path, ignored);
}

std::optional<std::int64_t> step_named(const std::string& name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + kStep.size(), end, step);
  return error == std::errc() && stopped == end ? std::optional(step) : std::nullopt;
}

}  // namespace

std::string MemoryFolder::root_of_host() {
  const char* named = std::getenv(kVariable);
  return named != nullptr && *named != '\0' ? named : kUsualRoot;
}

std::string MemoryFolder::new_session() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

bool MemoryFolder::is_session(std::string_view text) {
  return text.size() == kSessionDigits && text.find_first_not_of(kHexDigits) == std::string_view::npos;
}

MemoryFolder::MemoryFolder(std::string root, std::string_view run, std::string_view session)
    : root_(std::move(root)), session_(session) {
  KEEL_CHECK(is_session(session), "'", session, "' is no number of a session");
  const Hash128 hash = xxh3(std::as_bytes(std::span(run)));
  sessions_ = fmt::format("{}/keel-{}-{:016x}-", root_, ::geteuid(), hash.high);
  path_ = sessions_ + session_;
}

std::string MemoryFolder::of_step(std::int64_t step) const { return concat(path_, '/', kStep, step); }

void MemoryFolder::make(std::int64_t step) const {
  check_root(root_);
  make_private(path_);
  make_private(of_step(step));
}

void MemoryFolder::move(std::int64_t step, std::int64_t to) const {
  if (::rename(of_step(step).c_str(), of_step(to).c_str()) != 0)
    refuse(of_step(to), std::generic_category().message(errno));
}

std::vector<std::int64_t> MemoryFolder::steps() const {
  std::vector<std::int64_t> found;
  struct ::stat any = {};
  if (::lstat(path_.c_str(), &any) != 0) return found;
  check_root(root_);
  check_private(path_);
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, ignored))
    if (const auto step = step_named(entry.path().filename().string())) found.push_back(*step);
  std::sort(found.begin(), found.end());
  return found;
}

void MemoryFolder::remove(std::int64_t step) const noexcept { remove_own(of_step(step)); }

void MemoryFolder::remove() const noexcept { remove_own(path_); }

void MemoryFolder::remove_other_sessions() const noexcept {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(root_, ignored)) {
    const std::string path = concat(root_, '/', entry.path().filename().string());
    if (path.starts_with(sessions_) && path != path_) remove_own(path);
  }
}

}  // namespace keel
