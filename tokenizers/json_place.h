#pragma once
// A value of a JSON file together with the place where it stands, so that messages name file and key.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/json.h"

namespace keel {

// An Error whose message names file and key already.
class PlacedError : public Error {
 public:
  using Error::Error;
};

class JsonPlace {
 public:
  // The value must outlive the place.
  JsonPlace(const Json& value, std::string file, std::string path = {})
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  const Json& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  const std::string& path() const { return path_; }
  // The message behind file and key.
  [[noreturn]] void fail(std::string_view message, ErrorKind kind = ErrorKind::input) const;

  // A value of another kind is an Error, as is what a limit excludes.
  bool boolean() const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  double number() const;
  const std::string& text() const;
  char32_t character() const;
  std::vector<JsonPlace> items() const;
  std::vector<std::pair<std::string_view, JsonPlace>> members() const;

  bool has(std::string_view name) const { return value_->find(name) != nullptr; }
  JsonPlace at(std::string_view name) const;                     // a missing one is an Error
  JsonPlace of(std::string_view name, const Json& value) const;  // what stands for a missing member
  // An object whose members are all among these; others are an Error.
  void allow(const std::vector<std::string_view>& names) const;

  // What one of several words means.
  template <class T>
  T choice(std::initializer_list<std::pair<std::string_view, T>> choices) const {
    for (const auto& [word, meaning] : choices)
      if (value_->is_string() && value_->string() == word) return meaning;
    std::vector<std::string_view> words;
    for (const auto& [word, meaning] : choices) words.push_back(word);
    fail_choice(words);
  }
  [[noreturn]] void fail_choice(const std::vector<std::string_view>& words) const;

  // Runs `make`, and puts file and key in front of the Errors that do not name them.
  template <class F>
  auto located(F&& make) const {
    try {
      return make();
    } catch (const PlacedError&) { throw; } catch (const Error& error) {
      fail(error.what(), error.kind());
    }
  }

 private:
  [[noreturn]] void fail_kind(std::string_view kind) const;

  const Json* value_;
  std::string file_;
  std::string path_;  // as in pre_tokenizer.pretokenizers[1].type
};

}  // namespace keel
