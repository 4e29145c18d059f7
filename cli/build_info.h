#pragma once
// What this program was built from, and how.

#include <span>
#include <string>
#include <string_view>

namespace keel::cli {

// An optional part of the build.
struct BuildPart {
  std::string_view name;    // "oneDNN"
  std::string_view state;   // what serves as it: "13.1.0 (/usr/lib/libcublasLt.so)"; or "not used: " and why
  std::string_view brings;  // what keel lacks without it

  bool is_used() const { return !state.starts_with("not used: "); }
};

struct BuildInfo {
  std::string_view version;
  std::string_view commit;  // of the source tree when it was last built, "+" where files differed from it
  std::string_view compiler;
  std::string_view flags;
  std::span<const BuildPart> parts;
  std::string_view nvrtc;  // of a build with nvcc: the file in which cuDNN has the compiler that it needs at run time
};

const BuildInfo& build_info();
// Null where builds of this kind have no such part: those of NVIDIA's libraries are there with nvcc alone.
const BuildPart* build_part(std::string_view name);
// The state; of a part that is not used, what it would bring, too.
std::string describe(const BuildPart& part);
// "keel 0.1.0 (8d74d1d)".
std::string version_line();

}  // namespace keel::cli
