#pragma once
// Scratch memory of one call, counted by the allocator as workspace.

#include <cstdint>

#include "keel/runtime/context.h"

namespace keel::cpu {

// `count` uninitialised numbers, given back at the end of the scope.
template <class T>
class Workspace {
 public:
  Workspace(const Context& context, std::int64_t count)
      : context_(context),
        bytes_(static_cast<std::size_t>(count) * sizeof(T)),
        memory_(static_cast<T*>(context.allocator().allocate(bytes_, Purpose::workspace))) {}
  ~Workspace() { context_.allocator().release(memory_, bytes_, Purpose::workspace); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  T* data() const { return memory_; }

 private:
  const Context& context_;  // outlives the call that this workspace belongs to
  std::size_t bytes_;
  T* memory_;
};

}  // namespace keel::cpu
