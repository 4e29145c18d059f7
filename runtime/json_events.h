#pragma once
// A JSON text read token by token, for files that nobody trusts: no document is built, however deep or large it is.

#include <cstdint>
#include <string>
#include <string_view>

#include "keel/runtime/error.h"

namespace keel {

// A text that is no JSON, or a value that is not of the kind that was asked for.
class JsonError : public Error {
 public:
  using Error::Error;
};

// What is called for each token of a text. Whatever a function throws ends the reading.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void null() = 0;
  virtual void boolean(bool value) = 0;
  virtual void whole_number(std::uint64_t value) = 0;
  virtual void negative_number(std::int64_t value) = 0;
  // A number with a fraction or an exponent, or one that 64 bits do not hold; `written` is its text.
  virtual void real_number(double value, const std::string& written) = 0;
  virtual void string(std::string& value) = 0;
  virtual void begin_object() = 0;
  virtual void key(std::string& name) = 0;
  virtual void end_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
};

// Throws a JsonError that names line and column where the text is no JSON.
void read_json(std::string_view text, JsonEvents& events);

}  // namespace keel
