#include "keel/dist/checkpoint/visibility.h"

#include <filesystem>
#include <system_error>
#include <thread>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(20);

}  // namespace

bool becomes_visible(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(kLookAgain);
  }
  return true;
}

std::shared_ptr<const InputFile> open_when_visible(const std::string& path) {
  std::error_code ignored;
  if (!becomes_visible([&] { return std::filesystem::exists(path, ignored); }))
    throw Error(concat("'", path, "' does not appear; do all ranks see the same folder?"), ErrorKind::io);
  return std::make_shared<const InputFile>(path);
}

}  // namespace keel
