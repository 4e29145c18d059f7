#pragma once
// The border to C: what is thrown on this side becomes a status and the thread's last error on the other.

#include <string>
#include <utility>

#include "keel/capi/keel.h"
#include "keel/runtime/error.h"
#include "keel/runtime/processor.h"

namespace keel::capi {

// A handle that is NULL, of another kind, or destroyed.
class HandleError : public Error {
 public:
  using Error::Error;
};

// Keeps what is being thrown as the thread's last error, "keel_model_save: ...". Call it where something was caught.
keel_status note_error(const char* function) noexcept;

// While it lives, this thread runs code of the host's that keel has called. Calls of keel are refused.
class HostCode {
 public:
  HostCode();
  ~HostCode();
  HostCode(const HostCode&) = delete;
  HostCode& operator=(const HostCode&) = delete;

 private:
  bool before_;
};
// An Error in such code.
void check_outside_host_code();

// The body of the function of that name in keel.h.
template <class F>
keel_status call(const char* function, F&& f) noexcept {
  try {
    check_processor();
    check_outside_host_code();
    std::forward<F>(f)();
    return KEEL_OK;
  } catch (...) { return note_error(function); }
}

// A pointer that C gave.
template <class T>
T& given(T* pointer, const char* name) {
  KEEL_CHECK(pointer != nullptr, name, " is NULL");
  return *pointer;
}

// The name of a file or folder that C gave.
inline std::string given_path(const char* path, const char* name) {
  const std::string text = &given(path, name);
  KEEL_CHECK(!text.empty(), name, " is empty");
  return text;
}

}  // namespace keel::capi
