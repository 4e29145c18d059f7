#include "keel/dist/comm/cuda/launch_order.h"

#include <cstdlib>
#include <mutex>
#include <string_view>

#include "keel/dist/comm/cuda/nccl.h"

namespace keel::cuda {
namespace {

constexpr int kFirstVersion = 22600;  // 2.26.0
constexpr const char* kVariable = "NCCL_LAUNCH_ORDER_IMPLICIT";

std::mutex environment;

bool knows_variable() {
  int version = 0;
  check_nccl(ncclGetVersion(&version), "ncclGetVersion");
  return version >= kFirstVersion;
}

bool keeps_order() {
  if (!knows_variable()) return false;
  const std::lock_guard lock(environment);
  const char* const value = std::getenv(kVariable);
  return value != nullptr && std::string_view(value) == "1";
}

struct SharedStream {
  std::mutex mutex;
  Stream stream;
};

}  // namespace

void ask_for_launch_order() {
  if (!knows_variable()) return;
  const std::lock_guard lock(environment);
  ::setenv(kVariable, "1", 0);
}

Stream stream_for_collectives(const Context& context) {
  if (keeps_order()) return context.make_stream(true);
  auto& shared = context.resource<SharedStream>();
  const std::lock_guard lock(shared.mutex);
  if (!shared.stream.is_asynchronous()) shared.stream = context.make_stream(true);
  return shared.stream;
}

}  // namespace keel::cuda
