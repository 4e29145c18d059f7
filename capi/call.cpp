#include "keel/capi/call.h"

#include <algorithm>
#include <array>
#include <new>
#include <string>

#include "keel/runtime/printable.h"

namespace keel::capi {
namespace {

// In the order of keel_status.
constexpr std::array kStatusNames = {
    "KEEL_OK",
    "KEEL_ERROR_INPUT",
    "KEEL_ERROR_IO",
    "KEEL_ERROR_NUMERIC",
    "KEEL_ERROR_UNSUPPORTED",
    "KEEL_ERROR_INTERRUPTED",
    "KEEL_ERROR_PEER",
    "KEEL_ERROR_INTERNAL",
    "KEEL_ERROR_MEMORY",
    "KEEL_ERROR_HANDLE",
};

keel_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::input: return KEEL_ERROR_INPUT;
    case ErrorKind::io: return KEEL_ERROR_IO;
    case ErrorKind::numeric: return KEEL_ERROR_NUMERIC;
    case ErrorKind::unsupported: return KEEL_ERROR_UNSUPPORTED;
    case ErrorKind::interrupted: return KEEL_ERROR_INTERRUPTED;
    case ErrorKind::peer: return KEEL_ERROR_PEER;
    case ErrorKind::internal: break;
  }
  return KEEL_ERROR_INTERNAL;
}

thread_local bool in_host_code = false;
thread_local std::string last_error;
// What keel_last_error() shows: a text that needs no memory where there is none.
thread_local const char* shown = "";

keel_status note(const char* function, const char* what, keel_status status) noexcept {
  try {
    last_error = concat(function, ": ", printable_lines(what));
    shown = last_error.c_str();
  } catch (...) { shown = "out of memory, also for a message of what went wrong"; }
  return status;
}

}  // namespace

HostCode::HostCode() : before_(std::exchange(in_host_code, true)) {}
HostCode::~HostCode() { in_host_code = before_; }

void check_outside_host_code() {
  KEEL_CHECK(!in_host_code, "a function of the host's that keel has called must not call keel");
}

keel_status note_error(const char* function) noexcept {
  try {
    throw;
  } catch (const HandleError& error) {
    return note(function, error.what(), KEEL_ERROR_HANDLE);
  } catch (const Error& error) {
    return note(function, error.what(), status_of(error.kind()));
  } catch (const std::bad_alloc&) {
    return note(function, "out of memory", KEEL_ERROR_MEMORY);
  } catch (const std::exception& error) { return note(function, error.what(), KEEL_ERROR_INTERNAL); } catch (...) {
    return note(function, "something was thrown that is no exception", KEEL_ERROR_INTERNAL);
  }
}

}  // namespace keel::capi

extern "C" {

const char* keel_last_error(void) { return keel::capi::shown; }

const char* keel_status_name(int status) {
  const auto& names = keel::capi::kStatusNames;
  return status >= 0 && status < static_cast<int>(names.size()) ? names[static_cast<std::size_t>(status)]
                                                                : "unknown status";
}

keel_status keel_version(int* major, int* minor, int* patch) {
  return keel::capi::call("keel_version", [&] {
    int& to_major = keel::capi::given(major, "major");
    int& to_minor = keel::capi::given(minor, "minor");
    int& to_patch = keel::capi::given(patch, "patch");
    to_major = KEEL_VERSION_MAJOR;
    to_minor = KEEL_VERSION_MINOR;
    to_patch = KEEL_VERSION_PATCH;
  });
}
}
