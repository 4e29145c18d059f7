#include "keel/data/example_bytes.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "keel/runtime/error.h"

namespace keel {
namespace {

// Sizes and numbers are 8 bytes each; a value begins with its place in Value.
struct ByteWriter {
  std::string& bytes;

  template <class T>
  void put(const T& value) const {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class T>
  void put_all(std::span<const T> values) const {
    put(static_cast<std::uint64_t>(values.size()));
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  template <class List>
  void put_list(const List& list) const {
    put_all(std::span<const std::int64_t>(list.shape.begin(), list.shape.end()));
    put_all(std::span(list.values));
  }
  void operator()(double value) const { put(value); }
  void operator()(std::int64_t value) const { put(value); }
  void operator()(const std::string& value) const { put_all(std::span<const char>(value)); }
  void operator()(const Nested& value) const { put_all(std::span<const char>(value.json)); }
  void operator()(const Numbers& value) const { put_list(value); }
  void operator()(const Integers& value) const { put_list(value); }
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  bool is_done() const { return bytes_.empty(); }

  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  template <class List>
  List get_all() {
    const auto count = get<std::uint64_t>();
    KEEL_CHECK(count <= bytes_.size() / sizeof(typename List::value_type), "an example is cut short");
    List values;
    values.resize(static_cast<std::size_t>(count));
    const std::string_view source = take(values.size() * sizeof(typename List::value_type));
    if (!source.empty()) std::memcpy(values.data(), source.data(), source.size());
    return values;
  }
  template <class List>
  List get_list() {
    const auto extents = get_all<std::vector<std::int64_t>>();
    List list = {Dims(std::span(extents)), get_all<decltype(List::values)>()};
    KEEL_CHECK(product(list.shape) == std::ssize(list.values), "an example has ", list.values.size(),
               " numbers of the shape ", list.shape);
    return list;
  }
  Value get_value() {
    switch (get<std::uint8_t>()) {
      case 0: return get<double>();
      case 1: return get<std::int64_t>();
      case 2: return get_all<std::string>();
      case 3: return get_list<Numbers>();
      case 4: return get_list<Integers>();
      case 5: return Nested{get_all<std::string>()};
      default: throw Error("an example has a value of an unknown kind");
    }
  }

 private:
  std::string_view take(std::size_t count) {
    KEEL_CHECK(count <= bytes_.size(), "an example is cut short");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
};

}  // namespace

void append_bytes(std::string& bytes, const Example& example) {
  const ByteWriter writer{bytes};
  for (const auto& [name, value] : example.fields()) {
    writer(name);
    writer.put(static_cast<std::uint8_t>(value.index()));
    std::visit(writer, value);
  }
}

Example example_from(std::string_view bytes) {
  std::vector<Example::Field> fields;
  for (ByteReader reader(bytes); !reader.is_done();) {
    auto name = reader.get_all<std::string>();
    fields.emplace_back(std::move(name), reader.get_value());
  }
  return Example(std::move(fields));
}

std::int64_t longest_field(const Example& example) {
  std::int64_t longest = 0;
  for (const auto& [name, value] : example.fields()) {
    std::int64_t length = 1;
    if (const std::string* text = text_or_json(value)) length = std::ssize(*text);
    if (const auto* numbers = std::get_if<Numbers>(&value)) length = std::ssize(numbers->values);
    if (const auto* integers = std::get_if<Integers>(&value)) length = std::ssize(integers->values);
    longest = std::max(longest, length);
  }
  return longest;
}

}  // namespace keel
