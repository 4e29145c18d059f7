#include "build_info.h"

#include "keel_commit.h"
#include "keel_parts.h"

namespace keel::cli {

const BuildInfo& build_info() {
  static constexpr BuildInfo kInfo = {KEEL_VERSION, kCommit, KEEL_COMPILER, KEEL_FLAGS, kParts, KEEL_NVRTC};
  return kInfo;
}

const BuildPart* build_part(std::string_view name) {
  for (const BuildPart& part : kParts)
    if (part.name == name) return &part;
  return nullptr;
}

std::string describe(const BuildPart& part) {
  std::string text(part.state);
  if (!part.is_used()) text.append("; it would bring ").append(part.brings);
  return text;
}

std::string version_line() { return "keel " + std::string(build_info().version) + " (" + std::string(kCommit) + ")"; }

}  // namespace keel::cli
