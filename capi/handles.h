#pragma once
// Handles: running numbers that stand for objects. They are looked up and never followed, so that one that is stale or
// of another kind is found out. This table is the only state that keel has outside of its objects.

#include <memory>
#include <string_view>

#include "keel/capi/call.h"

namespace keel::capi {

struct Settings;
struct Site;
struct Array;
struct HostBatch;
class Model;
class Team;

enum class HandleKind : unsigned char { settings, context, array, batch, model, team };

template <class Handle>
struct HandleTraits;
template <>
struct HandleTraits<keel_settings> {
  using Object = Settings;
  static constexpr HandleKind kKind = HandleKind::settings;
};
template <>
struct HandleTraits<keel_context> {
  using Object = Site;
  static constexpr HandleKind kKind = HandleKind::context;
};
template <>
struct HandleTraits<keel_array> {
  using Object = Array;
  static constexpr HandleKind kKind = HandleKind::array;
};
template <>
struct HandleTraits<keel_batch> {
  using Object = HostBatch;
  static constexpr HandleKind kKind = HandleKind::batch;
};
template <>
struct HandleTraits<keel_model> {
  using Object = Model;
  static constexpr HandleKind kKind = HandleKind::model;
};

template <>
struct HandleTraits<keel_team> {
  using Object = Team;
  static constexpr HandleKind kKind = HandleKind::team;
};

// From any thread. find_handle() and take_handle(), which removes it, throw a HandleError.
const void* add_handle(HandleKind kind, std::shared_ptr<void> object);
std::shared_ptr<void> find_handle(HandleKind kind, const void* handle);
std::shared_ptr<void> take_handle(HandleKind kind, const void* handle);

// The object stays alive while the result does, whoever destroys the handle meanwhile.
template <class Handle>
auto object_of(const Handle* handle) {
  using Traits = HandleTraits<Handle>;
  return std::static_pointer_cast<typename Traits::Object>(find_handle(Traits::kKind, handle));
}

// Makes an object by `make`, which gives a shared_ptr, and its handle. Nothing is made where there is no place for it.
template <class Handle, class Make>
void create(Handle** handle, const char* name, const Make& make) {
  Handle*& place = given(handle, name);
  place = static_cast<Handle*>(const_cast<void*>(add_handle(HandleTraits<Handle>::kKind, make())));
}

template <class Handle>
void destroy(Handle** handle, const char* name) {
  Handle*& place = given(handle, name);
  if (place == nullptr) return;
  const auto object = take_handle(HandleTraits<Handle>::kKind, place);
  place = nullptr;
}

}  // namespace keel::capi
