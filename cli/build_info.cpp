#include "build_info.h"

#include "keel_commit.h"

namespace keel::cli {

const BuildInfo& build_info() {
  static constexpr BuildInfo kInfo = {KEEL_VERSION,    kCommit,           KEEL_COMPILER,       KEEL_FLAGS,
                                      KEEL_CUDA_STATE, KEEL_ONEDNN_STATE, KEEL_CUBLASLT_STATE, KEEL_CUDNN_STATE,
                                      KEEL_NCCL_STATE, KEEL_NVRTC};
  return kInfo;
}

std::string version_line() { return "keel " + std::string(build_info().version) + " (" + std::string(kCommit) + ")"; }

}  // namespace keel::cli
