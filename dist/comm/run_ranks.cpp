#include "keel/dist/comm/run_ranks.h"

#include <exception>
#include <mutex>
#include <thread>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// The exception to report: the first that another rank did not cause.
class FirstFailure {
 public:
  void add(std::exception_ptr failure, bool caused_by_peer) {
    const std::lock_guard lock(mutex_);
    if (failure_ && (caused_by_peer || !from_peer_)) return;
    failure_ = std::move(failure);
    from_peer_ = caused_by_peer;
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr failure_;
  bool from_peer_ = false;
};

}  // namespace

void run_ranks(int n, const std::function<void(Communicator&)>& f, const CommunicatorOptions& options) {
  const ThreadHub hub(n);
  FirstFailure failure;
  const auto run = [&](std::unique_ptr<Transport> transport) {
    const int rank = transport->rank();
    std::unique_ptr<Communicator> communicator;
    try {
      communicator = make_communicator(std::move(transport), options);
      f(*communicator);
    } catch (const AgreedError&) {
      failure.add(std::current_exception(), false);  // the others throw it themselves
    } catch (const std::exception& error) {
      const auto* const own = dynamic_cast<const Error*>(&error);
      const std::string reason = concat("rank ", rank, " failed: ", error.what());
      // From here on another thread may destroy it, in whose place a better one comes.
      failure.add(std::current_exception(), own != nullptr && own->kind() == ErrorKind::peer);
      if (communicator) communicator->fail(reason);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < n; ++r) threads.emplace_back(run, hub.connect(r));
  }
  failure.rethrow();
}

}  // namespace keel
