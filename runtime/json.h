#pragma once
// JSON values: what keel writes into its files and reads from them.

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "keel/runtime/json_events.h"

namespace keel {

// What a string that is not UTF-8 does to a text: it is an error, or what is wrong in it becomes U+FFFD.
enum class BadUtf8 : unsigned char { refuse, replace };

// A value: null, true or false, a number, a string, an array or an object. `{{"name", value}, ...}` is an object, and a
// vector is an array.
class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in the order in which members were added

  // The most arrays and objects that may lie inside each other.
  static constexpr std::size_t kMaxDepth = 64;

  Json() = default;
  Json(std::nullptr_t) {}
  template <std::same_as<bool> T>
  Json(T value) : value_(value) {}
  template <std::signed_integral T>
  Json(T value) : value_(std::int64_t{value}) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) Json(T value) : value_(checked(value)) {}
  template <std::floating_point T>
  Json(T value) : value_(double{value}) {}
  Json(const char* text);
  Json(std::string_view text);
  Json(std::string text);
  Json(std::initializer_list<Member> members);
  template <class T>
  Json(const std::vector<T>& items) : value_(Array(items.begin(), items.end())) {}
  static Json array(std::initializer_list<Json> items = {});
  static Json object();

  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  // Throws a JsonError where the text is no JSON, or deeper than kMaxDepth. Of members with one name the last stays.
  static Json parse(std::string_view text);
  // Null where parse() would throw.
  static Json parse_or_null(std::string_view text);
  // On one line, or with `indent` spaces for each level; a number that is not finite is null. Throws a JsonError for a
  // string that is not UTF-8 unless told otherwise.
  std::string dump(int indent = -1, BadUtf8 bad = BadUtf8::refuse) const;

  bool is_null() const;
  bool is_boolean() const;
  bool is_integer() const;
  bool is_number() const;  // an integer, too
  bool is_string() const;
  bool is_array() const;
  bool is_object() const;

  // A value of another kind is a JsonError.
  bool boolean() const;
  std::int64_t integer() const;
  double number() const;
  const std::string& string() const;
  const Array& items() const&;
  const Array& items() const&& = delete;
  const Object& members() const&;
  const Object& members() const&& = delete;

  // The member of an object; null where there is none, or the value is no object.
  const Json* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  // A missing one is a JsonError that names it.
  const Json& at(std::string_view name) const;
  // A missing one is added. Null becomes an object.
  Json& operator[](std::string_view name);
  // Null becomes an array.
  void push_back(Json item);

 private:
  static std::int64_t checked(std::uint64_t value);  // an Error where it does not fit

  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Array, Object> value_ = nullptr;
};

}  // namespace keel
