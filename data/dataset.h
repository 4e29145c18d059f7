#pragma once
// Data sets: examples of named values that can be read in any order.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "keel/runtime/dims.h"

namespace keel {

// One value of an example, on the host. A single number lies in the value itself, without memory of its own.
struct Numbers {
  Dims shape;
  std::vector<float> values;
  bool operator==(const Numbers&) const = default;
};
struct Integers {
  Dims shape;
  std::vector<std::int64_t> values;
  bool operator==(const Integers&) const = default;
};
// A list or an object of JSON that is none of these, such as a list of texts: as it is written. It is no text.
struct Nested {
  std::string json;
  bool operator==(const Nested&) const = default;
};
using Value = std::variant<double, std::int64_t, std::string, Numbers, Integers, Nested>;

// "a number", "a whole number", "a text", "numbers (3, 2)", "whole numbers (5)", "a list", "an object".
std::string kind_of(const Value& value);
// A text, or a list or an object as it is written; null: numbers.
const std::string* text_or_json(const Value& value);

// Named values of one sample, in the order in which they were set.
class Example {
 public:
  using Field = std::pair<std::string, Value>;

  Example() = default;
  // Of fields whose names differ, which is not checked.
  explicit Example(std::vector<Field> fields) : fields_(std::move(fields)) {}

  // Setting a field again is an Error.
  Example& set(std::string name, Value value);
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Null where there is none.
  const Value* find(std::string_view name) const;
  // A field that is not there, or is of another kind, is an Error that lists those that are.
  const Value& operator[](std::string_view name) const&;
  const Value& operator[](std::string_view name) const&& = delete;
  double number(std::string_view name) const;         // a single one, or a single whole one
  std::int64_t integer(std::string_view name) const;  // a single whole one
  const std::string& text(std::string_view name) const&;
  const std::string& text(std::string_view name) const&& = delete;
  const std::vector<Field>& fields() const& { return fields_; }
  const std::vector<Field>& fields() const&& = delete;
  bool operator==(const Example&) const = default;

 private:
  [[noreturn]] void refuse(std::string_view name, std::string_view wanted) const;

  std::vector<Field> fields_;
};

// Finite, and in any order: what has no end or no places (a pipe) is written to a file first, as a run must be able to
// go on in its midst.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  // i in [0, size()), else an Error. Called from several threads at once. Malformed data is an Error that names file,
  // line, column and what was expected there.
  virtual Example example(std::int64_t i) const = 0;
  // The same of several, in their order. Files read what lies side by side at once.
  virtual std::vector<Example> examples(std::span<const std::int64_t> indices) const;
  // Elements of its longest field, or another number that grows with them, without reading all of it; for batches of
  // like lengths. 0: not known.
  virtual std::int64_t length(std::int64_t /*i*/) const { return 0; }
  // Where example i lies in its file, for messages: "line 7" (from 1 on), or "example 6 (from 0 on)".
  virtual std::string place(std::int64_t i) const;
  // Equal texts for equal examples, and different ones for others with near certainty.
  virtual std::string fingerprint() const = 0;

 protected:
  // An Error unless 0 <= i < size().
  void check_index(std::int64_t i) const;
};
using DatasetPtr = std::shared_ptr<const Dataset>;

}  // namespace keel
