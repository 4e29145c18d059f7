#pragma once
// One JSON object as an example, read in one pass and to the last byte.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "keel/data/dataset.h"

namespace keel {

// What is wrong with a text, and at which byte from 0 on.
struct JsonFault {
  std::size_t at;
  std::string what;
};

// Reads objects; what it needs meanwhile is kept from one to the next. For one thread.
class JsonLineReader {
 public:
  // What open_jsonl() says of members. Throws a JsonFault where the text is no object.
  Example read(std::string_view text);

 private:
  [[noreturn]] void expected(std::string_view what) const;
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_spaces();
  // Of JSON's own form.
  struct NumberText {
    double value;
    std::int64_t whole;
    bool is_whole;  // and fits in 64 bits
  };
  NumberText read_number_text();
  // Behind the opening quote, to behind the closing one. The text lies in the source, or in scratch_ where it has
  // escapes; until the next call.
  std::string_view read_string();
  void read_escape();
  unsigned read_hex();
  void check_character();
  void read_word(std::string_view word);
  // Of a list, whole numbers of up to seven digits with a comma behind them, as long as they come; how many.
  std::int64_t read_plain_numbers();
  // A list of numbers from its bracket on, or not: then at_ lies behind anything.
  bool read_numbers(int depth);
  Value list_value();
  // A member's name, to behind the colon.
  std::string_view read_name();
  // Whatever it is, checked and left out.
  void skip_value(int depth);
  void skip_inside(char close, int depth);
  // False: it is null.
  bool read_value(Value& value);
  void check_new(const std::string& name, std::size_t at, const std::vector<Example::Field>& fields);

  std::string_view text_;
  std::size_t at_ = 0;
  std::string scratch_;
  // Of the list that is read.
  std::vector<std::int64_t> wholes_;
  std::vector<float> numbers_;
  bool all_whole_ = true;
  Dims shape_;
  std::unordered_set<std::string> names_;  // of an object of many members
  std::size_t last_count_ = 0;             // members of the object before
};

}  // namespace keel
