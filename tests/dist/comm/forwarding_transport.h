#pragma once
// A transport that passes everything on, for tests that change one thing about it.

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "keel/dist/comm/transport.h"

namespace keel::testing {

class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Message> send(int to, std::uint64_t tag, const void* data, std::size_t bytes) override {
    return inner_->send(to, tag, data, bytes);
  }
  std::unique_ptr<Message> receive(int from, std::uint64_t tag, void* data, std::size_t bytes) override {
    return inner_->receive(from, tag, data, bytes);
  }
  std::unique_ptr<Transport> split(int color, int key) override { return inner_->split(color, key); }
  std::optional<SharedAreas> share(std::size_t bytes) override { return inner_->share(bytes); }
  void announce(bool for_others) override { inner_->announce(for_others); }
  void idle(std::chrono::microseconds limit) override { inner_->idle(limit); }
  void fail(const std::string& reason) noexcept override { inner_->fail(reason); }
  void check() override { inner_->check(); }

 protected:
  Transport& inner() { return *inner_; }

 private:
  std::unique_ptr<Transport> inner_;
};

}  // namespace keel::testing
