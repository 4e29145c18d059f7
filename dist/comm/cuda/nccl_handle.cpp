#include "keel/dist/comm/cuda/nccl_handle.h"

#include <chrono>
#include <thread>
#include <utility>

namespace keel::cuda {
namespace {

constexpr auto kMoment = std::chrono::microseconds(50);
// A call takes long where NCCL loads its kernels, and for ever where it waits in a device's full queue behind the very
// work that is to be given up. Then that comes first, though NCCL wants nobody inside.
constexpr auto kPatience = std::chrono::seconds(30);

}  // namespace

ncclComm_t NcclHandle::held() const {
  if (comm_ == nullptr) throw Error("the communicator of NCCL was given up", ErrorKind::peer);
  return comm_;
}

void NcclHandle::join(const ncclUniqueId& id, int size, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    result = ncclCommInitRankConfig(&made_, size, id, rank, &config);
    comm_ = made_;
  }
  settle("ncclCommInitRankConfig", result);
}

void NcclHandle::split_off(NcclHandle& whole, int color, int key) {
  try {
    whole.call("ncclCommSplit", [&](ncclComm_t comm) { return ncclCommSplit(comm, color, key, &made_, nullptr); });
  } catch (const std::exception&) {
    whole.give_up();
    if (made_ != nullptr) ncclCommAbort(made_);
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    comm_ = made_;
  }
  settle("ncclCommSplit", ncclInProgress);
}

void NcclHandle::call(const char* what, FunctionRef<ncclResult_t(ncclComm_t)> f) {
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    result = f(held());
  }
  settle(what, result);
}

void NcclHandle::group(FunctionRef<void(ncclComm_t)> f) {
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    const ncclComm_t comm = held();
    check_nccl(ncclGroupStart(), "ncclGroupStart");
    try {
      f(comm);
    } catch (const std::exception&) {
      ncclGroupEnd();
      throw;
    }
    result = ncclGroupEnd();
  }
  settle("ncclGroupEnd", result);
}

void NcclHandle::settle(const char* what, ncclResult_t result) {
  while (result == ncclInProgress) {
    {
      const std::lock_guard lock(mutex_);
      check_nccl(ncclCommGetAsyncError(held(), &result), "ncclCommGetAsyncError");
    }
    if (result != ncclInProgress) break;
    between_();
    std::this_thread::sleep_for(kMoment);
  }
  const std::lock_guard lock(mutex_);
  check_nccl(result, what, comm_);
}

std::optional<std::string> NcclHandle::error() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  ncclResult_t result = ncclSuccess;
  if (!lock.owns_lock() || comm_ == nullptr || ncclCommGetAsyncError(comm_, &result) != ncclSuccess) return {};
  if (result == ncclSuccess || result == ncclInProgress) return {};
  return text_of(result, comm_);
}

void NcclHandle::finish() {
  call("ncclCommFinalize", [](ncclComm_t comm) { return ncclCommFinalize(comm); });
  const std::lock_guard lock(mutex_);
  check_nccl(ncclCommDestroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
}

void NcclHandle::give_up() noexcept {
  std::unique_lock lock(mutex_, std::defer_lock);
  // No std::timed_mutex: ThreadSanitizer does not see what it locks.
  for (const auto end = std::chrono::steady_clock::now() + kPatience;
       !lock.try_lock() && std::chrono::steady_clock::now() < end;)
    std::this_thread::sleep_for(kMoment);
  if (ncclComm_t comm = std::exchange(comm_, nullptr)) ncclCommAbort(comm);
}

}  // namespace keel::cuda
