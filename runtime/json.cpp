#include "keel/runtime/json.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

using Document = nlohmann::ordered_json;

// The library's message without its identifier in brackets.
std::string reason_of(const Document::exception& error) {
  const std::string_view message = error.what();
  const std::size_t end = message.find("] ");
  return std::string(end == std::string_view::npos ? message : message.substr(end + 2));
}

// Hands the library's tokens on.
class Tokens final : public nlohmann::json_sax<Document> {
 public:
  explicit Tokens(JsonEvents& events) : events_(events) {}

  bool null() override { return events_.null(), true; }
  bool boolean(bool value) override { return events_.boolean(value), true; }
  bool number_integer(number_integer_t value) override { return events_.negative_number(value), true; }
  bool number_unsigned(number_unsigned_t value) override { return events_.whole_number(value), true; }
  bool number_float(number_float_t value, const string_t& written) override {
    return events_.real_number(value, written), true;
  }
  bool string(string_t& value) override { return events_.string(value), true; }
  bool binary(binary_t&) override { throw JsonError("a JSON text holds no binary data", ErrorKind::internal); }
  bool start_object(std::size_t) override { return events_.begin_object(), true; }
  bool key(string_t& name) override { return events_.key(name), true; }
  bool end_object() override { return events_.end_object(), true; }
  bool start_array(std::size_t) override { return events_.begin_array(), true; }
  bool end_array() override { return events_.end_array(), true; }
  bool parse_error(std::size_t, const std::string&, const Document::exception& error) override {
    throw JsonError(reason_of(error));
  }

 private:
  JsonEvents& events_;
};

// Builds the value that a text holds.
class Builder final : public JsonEvents {
 public:
  Json value;

  void null() override { add(nullptr); }
  void boolean(bool value) override { add(value); }
  void whole_number(std::uint64_t value) override {
    if (std::in_range<std::int64_t>(value)) add(value);
    else add(static_cast<double>(value));
  }
  void negative_number(std::int64_t value) override { add(value); }
  void real_number(double value, const std::string&) override { add(value); }
  void string(std::string& value) override { add(std::move(value)); }
  void begin_object() override { open(Json::object()); }
  void key(std::string& name) override { open_.back().name = std::move(name); }
  void end_object() override { close(); }
  void begin_array() override { open(Json::array()); }
  void end_array() override { close(); }

 private:
  struct Open {
    Json value;
    std::string name = {};  // of the member that comes next
  };

  void add(Json item) {
    if (open_.empty()) value = std::move(item);
    else if (open_.back().value.is_array()) open_.back().value.push_back(std::move(item));
    else open_.back().value[open_.back().name] = std::move(item);
  }
  void open(Json empty) {
    if (open_.size() == Json::kMaxDepth)
      throw JsonError(concat("more than ", Json::kMaxDepth, " arrays and objects lie inside each other"));
    open_.push_back({std::move(empty)});
  }
  void close() {
    Json whole = std::move(open_.back().value);
    open_.pop_back();
    add(std::move(whole));
  }

  std::vector<Open> open_;
};

Document document_of(const Json& value) {
  if (value.is_boolean()) return value.boolean();
  if (value.is_integer()) return value.integer();
  if (value.is_number()) return value.number();
  if (value.is_string()) return value.string();
  if (value.is_array()) {
    Document array = Document::array();
    for (const Json& item : value.items()) array.push_back(document_of(item));
    return array;
  }
  if (value.is_object()) {
    Document object = Document::object();
    for (const auto& [name, member] : value.members()) object[name] = document_of(member);
    return object;
  }
  return nullptr;
}

// What a value holds if it is of that kind.
template <class T>
T& expect(T* held, const Json& value, std::string_view kind) {
  if (held == nullptr) throw JsonError(concat(value.dump(-1, BadUtf8::replace).substr(0, 60), " must be ", kind));
  return *held;
}

}  // namespace

void read_json(std::string_view text, JsonEvents& events) {
  Tokens tokens(events);
  Document::sax_parse(text.begin(), text.end(), &tokens);
}

Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(std::initializer_list<Member> members) : value_(Object(members)) {}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json Json::array(std::initializer_list<Json> items) { return std::vector<Json>(items); }

Json Json::object() {
  Json object;
  object.value_ = Object();
  return object;
}

std::int64_t Json::checked(std::uint64_t value) {
  KEEL_CHECK(std::in_range<std::int64_t>(value), "JSON numbers are written up to ",
             std::numeric_limits<std::int64_t>::max(), ", got ", value);
  return static_cast<std::int64_t>(value);
}

Json Json::parse(std::string_view text) {
  Builder builder;
  read_json(text, builder);
  return std::move(builder.value);
}

Json Json::parse_or_null(std::string_view text) {
  try {
    return parse(text);
  } catch (const JsonError&) { return {}; }
}

std::string Json::dump(int indent, BadUtf8 bad) const {
  using Handler = Document::error_handler_t;
  try {
    return document_of(*this).dump(indent, ' ', false, bad == BadUtf8::replace ? Handler::replace : Handler::strict);
  } catch (const Document::exception& error) { throw JsonError(reason_of(error)); }
}

bool Json::is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
bool Json::is_boolean() const { return std::holds_alternative<bool>(value_); }
bool Json::is_integer() const { return std::holds_alternative<std::int64_t>(value_); }
bool Json::is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
bool Json::is_string() const { return std::holds_alternative<std::string>(value_); }
bool Json::is_array() const { return std::holds_alternative<Array>(value_); }
bool Json::is_object() const { return std::holds_alternative<Object>(value_); }

bool Json::boolean() const { return expect(std::get_if<bool>(&value_), *this, "true or false"); }
std::int64_t Json::integer() const { return expect(std::get_if<std::int64_t>(&value_), *this, "a whole number"); }
double Json::number() const {
  return is_integer() ? static_cast<double>(integer()) : expect(std::get_if<double>(&value_), *this, "a number");
}
const std::string& Json::string() const { return expect(std::get_if<std::string>(&value_), *this, "a text"); }
const Json::Array& Json::items() const& { return expect(std::get_if<Array>(&value_), *this, "a list"); }
const Json::Object& Json::members() const& { return expect(std::get_if<Object>(&value_), *this, "an object"); }

const Json* Json::find(std::string_view name) const {
  if (const Object* const object = std::get_if<Object>(&value_))
    for (const Member& member : *object)
      if (member.first == name) return &member.second;
  return nullptr;
}

const Json& Json::at(std::string_view name) const {
  const Json* const found = find(name);
  if (found == nullptr) throw JsonError(concat("'", name, "' is missing"));
  return *found;
}

Json& Json::operator[](std::string_view name) {
  if (is_null()) value_ = Object();
  for (Member& member : expect(std::get_if<Object>(&value_), *this, "an object"))
    if (member.first == name) return member.second;
  return std::get<Object>(value_).emplace_back(name, nullptr).second;
}

void Json::push_back(Json item) {
  if (is_null()) value_ = Array();
  expect(std::get_if<Array>(&value_), *this, "a list").push_back(std::move(item));
}

}  // namespace keel
