#include "keel/runtime/storage.h"

#include <algorithm>
#include <exception>

#include "keel/runtime/error.h"

namespace keel {

Storage::Storage(Context context, std::size_t bytes, Purpose purpose)
    : context_(std::move(context)), stream_(context_.stream()), bytes_(bytes), purpose_(purpose) {
  restore();
}

Storage::Storage(Context context, void* memory, std::size_t bytes, Purpose purpose, Deleter deleter, bool counted)
    : context_(std::move(context)),
      stream_(context_.stream()),
      memory_(memory),
      bytes_(bytes),
      purpose_(purpose),
      adopted_(true),
      counted_(counted),
      deleter_(std::move(deleter)) {
  KEEL_CHECK(memory != nullptr || bytes == 0, "cannot adopt a null pointer as ", bytes, " bytes");
  if (counted_) context_.allocator().count_adopted(bytes_, purpose_);
}

Storage::~Storage() {
  if (counted_) context_.allocator().forget_adopted(bytes_, purpose_);
  if (!adopted_) {
    context_.allocator().release(memory_, bytes_, purpose_, stream_, users_);
  } else if (deleter_) {
    stream_.settle();
    for (const StreamUse& user : users_) user.stream.settle();
    try {
      deleter_(memory_);
    } catch (const std::exception& error) {
      context_.log(LogLevel::error, concat("the deleter of adopted memory failed: ", error.what()));
    }
  }
}

void Storage::drop() {
  KEEL_CHECK(!adopted_, "memory that the caller owns cannot be dropped");
  was_dropped_ = true;
  context_.allocator().release(memory_, bytes_, purpose_, stream_, users_);
  memory_ = nullptr;
  users_.clear();
}

void Storage::restore() {
  if (memory_ == nullptr) memory_ = context_.allocator().allocate(bytes_, purpose_, stream_);
}

void Storage::used_by(const Stream& stream, const std::optional<Event>& end) {
  if (stream == stream_) return;
  const auto known = std::ranges::find(users_, stream, &StreamUse::stream);
  if (known == users_.end()) users_.push_back({stream, end});
  else known->end = end;
}

void Storage::touch() {
  const TouchHook hook = touch_hook_;  // stays alive when it replaces itself
  hook(*this);
}

void Storage::throw_dropped() const {
  throw Error(concat("the memory of this ", name_of(purpose_), " storage (", bytes_,
                     " bytes) was dropped and nothing brings it back; gather it before use"),
              ErrorKind::internal);
}

}  // namespace keel
