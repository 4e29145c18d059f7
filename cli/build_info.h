#pragma once
// What this program was built from, and how.

#include <string>
#include <string_view>

namespace keel::cli {

struct BuildInfo {
  std::string_view version;
  std::string_view commit;  // of the source tree when it was last built, "+" where files differed from it
  std::string_view compiler;
  std::string_view flags;
  std::string_view cuda;    // how its kernels were compiled, or why there are none
  std::string_view onednn;  // where the build found it, or why it is not used
  // Of a build with nvcc: version and place of each as "13.1.0 (/usr/lib/libcublasLt.so)", or why it is not used.
  std::string_view cublaslt, cudnn, nccl;
  std::string_view nvrtc;  // of such a build: the file in which cuDNN has the compiler that it needs at run time
};

const BuildInfo& build_info();
// "keel 0.1.0 (8d74d1d)".
std::string version_line();

}  // namespace keel::cli
