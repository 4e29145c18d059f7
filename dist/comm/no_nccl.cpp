// Builds without NCCL: there are no communicators between GPUs.

#include "keel/dist/comm/nccl_communicator.h"
#include "keel/runtime/error.h"

namespace keel {

std::string why_no_nccl() {
#ifdef KEEL_GPU
  return "NCCL was not found beside the CUDA toolkit when keel was built (or -DKEEL_NCCL=OFF)";
#else
  return "this build has no CUDA: configure one with -DKEEL_CUDA=ON, or EMULATED";
#endif
}

std::unique_ptr<Communicator> make_nccl_communicator(const Context&, std::unique_ptr<Communicator>,
                                                     const NcclOptions&) {
  throw Error("collectives between GPUs need NCCL: " + why_no_nccl(), ErrorKind::unsupported);
}

}  // namespace keel
