#include "keel/capi/handles.h"

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace keel::capi {
namespace {

std::string_view name_of(HandleKind kind) {
  switch (kind) {
    case HandleKind::settings: return "settings";
    case HandleKind::context: return "context";
    case HandleKind::array: return "array";
    case HandleKind::batch: return "batch";
    case HandleKind::team: return "team";
    case HandleKind::model: break;
  }
  return "model";
}

struct Entry {
  HandleKind kind;
  std::shared_ptr<void> object;
};

struct Table {
  std::mutex mutex;
  std::uintptr_t last = 0;
  std::unordered_map<std::uintptr_t, Entry> entries;

  auto find(HandleKind kind, const void* handle) {
    const std::string_view name = name_of(kind);
    if (handle == nullptr) throw HandleError(concat("the ", name, " is NULL; give what keel_", name, "_create made"));
    const auto at = entries.find(reinterpret_cast<std::uintptr_t>(handle));
    if (at == entries.end())
      throw HandleError(concat("the handle of the ", name, " is none of keel's, or has been destroyed"));
    if (at->second.kind != kind)
      throw HandleError(
          concat("a handle of kind ", name, " is needed here, not one of kind ", name_of(at->second.kind)));
    return at;
  }
};

// Never destroyed: what a host leaves behind must not act when its program ends.
Table& table() {
  static Table& all = *new Table;
  return all;
}

}  // namespace

const void* add_handle(HandleKind kind, std::shared_ptr<void> object) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  // No address of an object: those are a multiple of some power of two.
  const std::uintptr_t number = 2 * ++all.last + 1;
  all.entries.emplace(number, Entry{kind, std::move(object)});
  return reinterpret_cast<const void*>(number);
}

std::shared_ptr<void> find_handle(HandleKind kind, const void* handle) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  return all.find(kind, handle)->second.object;
}

std::shared_ptr<void> take_handle(HandleKind kind, const void* handle) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  const auto at = all.find(kind, handle);
  std::shared_ptr<void> object = std::move(at->second.object);
  all.entries.erase(at);
  return object;
}

}  // namespace keel::capi
