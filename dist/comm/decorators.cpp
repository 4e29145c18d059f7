#include "keel/dist/comm/decorators.h"

#include <thread>
#include <utility>

#include "keel/runtime/random.h"

namespace keel {
namespace {

class CorruptedOperation : public Operation {
 public:
  CorruptedOperation(Work work, Tensor result, std::int64_t element)
      : work_(std::move(work)), result_(std::move(result)), element_(element) {}
  bool advance() override {
    if (!work_.has_finished()) return false;
    corrupt();
    return true;
  }
  void wait() override {
    work_.wait();
    corrupt();
  }

 private:
  void corrupt() {
    if (std::exchange(done_, true) || element_ >= result_.numel()) return;
    result_.raw()[static_cast<std::size_t>(element_) * size_of(result_.dtype())] ^= std::byte{1};
  }

  Work work_;
  Tensor result_;
  std::int64_t element_;
  bool done_ = false;
};

}  // namespace

Work CorruptedCommunicator::begin(const Collective& collective) {
  Work work = inner_.begin(collective);
  if (rank() != bad_rank_ || !collective.output.defined() || collective.output.device().type != DeviceType::cpu)
    return work;
  return Work(std::make_shared<CorruptedOperation>(std::move(work), collective.output, element_));
}

Work WatchedCommunicator::begin(const Collective& collective) {
  callback_((*number_)++, collective);
  return inner_.begin(collective);
}

std::unique_ptr<Communicator> WatchedCommunicator::split(int color, int key) {
  return std::unique_ptr<Communicator>(new WatchedCommunicator(inner_.split(color, key), *this));
}

std::unique_ptr<Communicator> WatchedCommunicator::split_apart(int color, int key) {
  return std::unique_ptr<Communicator>(new WatchedCommunicator(inner_.split_apart(color, key), *this));
}

DelayedCommunicator::DelayedCommunicator(Communicator& inner, std::uint64_t seed, std::chrono::microseconds longest)
    : WatchedCommunicator(inner, [=, rank = inner.rank()](std::int64_t number, const Collective&) {
        const PhiloxWords words = stream_block({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(rank)},
                                               static_cast<std::uint64_t>(number));
        std::this_thread::sleep_for(longest * words[0] / 0xffffffffull);
      }) {}

}  // namespace keel
