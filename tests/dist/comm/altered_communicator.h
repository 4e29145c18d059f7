#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "keel/dist/comm/decorators.h"

namespace keel::testing {

// Begins collectives in a way of the test's own, and so do the communicators that are split off.
class AlteredCommunicator : public CommunicatorDecorator {
 public:
  using Begin = std::function<Work(Communicator& inner, const Collective&)>;
  AlteredCommunicator(Communicator& inner, Begin begin) : CommunicatorDecorator(inner), begin_(std::move(begin)) {}
  Work begin(const Collective& collective) override { return begin_(inner_, collective); }
  std::unique_ptr<Communicator> split(int color, int key) override { return altered(inner_.split(color, key)); }
  std::unique_ptr<Communicator> split_apart(int color, int key) override {
    return altered(inner_.split_apart(color, key));
  }

 private:
  std::unique_ptr<Communicator> altered(std::unique_ptr<Communicator> inner) const {
    auto made = std::make_unique<AlteredCommunicator>(*inner, begin_);
    made->own_ = std::move(inner);
    return made;
  }

  std::unique_ptr<Communicator> own_ = {};  // the inner one, where this one was split off
  Begin begin_;
};

}  // namespace keel::testing
