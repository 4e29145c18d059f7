#include "keel/runtime/stream.h"

#include <utility>

#include "keel/runtime/device_api.h"
#include "keel/runtime/error.h"

namespace keel {

struct Event::State {
  State(std::shared_ptr<DeviceApi> device, NativeEvent event) : api(std::move(device)), native(event) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { api->destroy_event(native); }

  std::shared_ptr<DeviceApi> api;
  NativeEvent native;
};

struct Stream::State {
  State(std::shared_ptr<DeviceApi> device, NativeStream stream) : api(std::move(device)), native(stream) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { api->destroy_stream(native); }

  std::shared_ptr<DeviceApi> api;
  NativeStream native;
};

bool Event::has_passed() const { return state_ == nullptr || state_->api->has_passed(state_->native); }

void Event::synchronize() const {
  if (state_ == nullptr) return;
  state_->api->synchronize_event(state_->native);
  throw_fault(*state_->api);
}

Stream Stream::create(std::shared_ptr<DeviceApi> api, bool urgent) {
  Stream stream;
  const NativeStream native = api->create_stream(urgent);
  if (native != nullptr) stream.state_ = std::make_shared<State>(std::move(api), native);
  return stream;
}

Event Stream::record() const {
  Event event;
  if (state_ != nullptr)
    event.state_ = std::make_shared<Event::State>(state_->api, state_->api->record(state_->native));
  return event;
}

void Stream::wait(const Event& event) const {
  if (event.state_ == nullptr) return;
  if (state_ == nullptr) event.synchronize();
  else state_->api->wait(state_->native, event.state_->native);
}

void Stream::synchronize() const {
  if (state_ == nullptr) return;
  state_->api->synchronize(state_->native);
  throw_fault(*state_->api);
}

void Stream::settle() const noexcept {
  if (state_ == nullptr) return;
  try {
    state_->api->synchronize(state_->native);
  } catch (const Error&) {}
}

void* Stream::native() const { return state_ == nullptr ? nullptr : state_->native; }

}  // namespace keel
