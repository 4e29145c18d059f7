#pragma once
// Waits for what another rank has done: a network file system may show its older state for a while.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "keel/runtime/file.h"

namespace keel {

// Whether the condition holds by now, or comes to hold within that time.
bool becomes_visible(const std::function<bool()>& condition,
                     std::chrono::milliseconds limit = std::chrono::seconds(10));

// Opens a file that another rank has seen. An Error where it does not appear.
std::shared_ptr<const InputFile> open_when_visible(const std::string& path);

}  // namespace keel
