#pragma once
// The one exception type of keel, and the check that throws it.

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "keel/runtime/language.h"

namespace keel {

// What went wrong, so that a program can choose its answer (the command line exits 2 on `input` and `io`).
enum class ErrorKind {
  input,        // the caller's values: shapes, configuration, a malformed file
  io,           // the operating system refused: missing file, full disk
  numeric,      // a non-finite loss or gradient
  unsupported,  // this backend or build does not offer it
  interrupted,  // a signal asked for an orderly stop
  peer,         // another rank failed, left, or does something else than this one
  internal,     // a broken promise inside keel
};

// A message of several lines. A name of unknown origin in it is printable() already, or its line breaks stay.
struct MessageLines {
  std::string text;
};

// Its message is printable() whatever the names in it are: one line, unless it was given as several.
// The third constructor says more of another error, whose kind and lines stay.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string_view message, ErrorKind kind = ErrorKind::input);
  explicit Error(const MessageLines& message, ErrorKind kind = ErrorKind::input);
  Error(std::string_view before, const Error& inner, std::string_view after = {});
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

// What `<<` prints; of an array that is no text it would print the address.
template <class T>
concept Printable = requires(std::ostream& out, const T& value) {
  out << value;
}
&&(!std::is_array_v<T> || std::is_convertible_v<const T&, std::string_view>);

// Joins its arguments as `<<` prints them.
template <Printable... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// The candidate that `word` most likely meant, or an empty string when none is near.
// Nearness is the Levenshtein distance, at most a third of the longer word.
template <class Candidates>
std::string nearest(std::string_view word, const Candidates& candidates);

std::size_t edit_distance(std::string_view a, std::string_view b);

template <class Candidates>
std::string nearest(std::string_view word, const Candidates& candidates) {
  std::string best;
  std::size_t best_distance = ~std::size_t{0};
  for (const auto& candidate : candidates) {
    const std::string_view text(candidate);
    const std::size_t distance = edit_distance(word, text);
    const std::size_t longer = word.size() > text.size() ? word.size() : text.size();
    if (distance < best_distance && distance * 3 <= longer + 2) {
      best = text;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace keel

// Throws keel::Error with the remaining arguments joined, unless `condition` holds.
// The message says what, where (operation, shapes, dtypes, device) and what to do.
#define KEEL_CHECK(condition, ...)                      \
  do {                                                  \
    if (!(condition)) [[unlikely]]                      \
      throw ::keel::Error(::keel::concat(__VA_ARGS__)); \
  } while (false)
