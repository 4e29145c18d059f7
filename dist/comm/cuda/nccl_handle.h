#pragma once
// A communicator of NCCL that never blocks its caller for good, and that another thread may give up at any time.
//
// NCCL frees a communicator that is given up, so nobody may be inside a call with it then, while a call that blocks
// ends only when all ranks have come. Hence the communicator is one that does not block: a call that cannot be done at
// once goes on in a thread of NCCL's, and until it has ended nothing else may be asked of the communicator, and its
// work is not in the stream. The functions here wait for that, and hold the communicator only while they ask.

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "keel/dist/comm/cuda/nccl.h"
#include "keel/runtime/parallel.h"

namespace keel::cuda {

class NcclHandle {
 public:
  // `between` is called again and again while a call goes on in the background; what it throws ends the wait.
  explicit NcclHandle(std::function<void()> between) : between_(std::move(between)) {}
  ~NcclHandle() { give_up(); }
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // The communicator that all ranks with this id form.
  void join(const ncclUniqueId& id, int size, int rank);
  // The part of another one that these ranks form. Every rank of that one calls it.
  void split_off(NcclHandle& whole, int color, int key);

  // Calls f(communicator), which asks one thing of NCCL; `what` is for messages. It is in the stream afterwards. Throws
  // NCCL's error, and an Error of kind peer once the communicator was given up.
  void call(const char* what, FunctionRef<ncclResult_t(ncclComm_t)> f);
  // What f(communicator) asks for is one operation of the stream.
  void group(FunctionRef<void(ncclComm_t)> f);

  // The error that NCCL reports, if any; nothing while a call is going on.
  std::optional<std::string> error();
  // Once all that was asked for is done: frees the communicator together with the other ranks.
  void finish();
  // Ends what is under way without a result, and frees the communicator. By any thread.
  void give_up() noexcept;

 private:
  ncclComm_t held() const;
  void settle(const char* what, ncclResult_t result);

  std::function<void()> between_;
  std::mutex mutex_;  // held while NCCL is called
  ncclComm_t comm_ = nullptr;
  ncclComm_t made_ = nullptr;  // where a thread of NCCL's writes while the communicator is formed
};

}  // namespace keel::cuda
