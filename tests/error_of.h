#pragma once
// What an Error says.

#include <string>

#include "keel/runtime/error.h"

namespace keel::testing {

// The message of the Error that f throws, or an empty text when it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) { return error.what(); }
  return {};
}

}  // namespace keel::testing
