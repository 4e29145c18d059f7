#include "keel/tokenizers/tokenizer_json.h"

#include <algorithm>
#include <utility>

#include "keel/runtime/printable.h"

namespace keel {
namespace {

class TokenizerJsonEvents final : public JsonEvents {
 public:
  TokenizerJsonEvents(const std::string& place, std::int64_t largest_id) : place_(place), largest_id_(largest_id) {}

  TokenizerJson take() { return {std::move(rest_), std::move(tokens_)}; }

  void null() override { scalar(nullptr); }
  void boolean(bool value) override { scalar(value); }
  void whole_number(std::uint64_t value) override {
    if (section_ == Section::vocabulary) return add_token(value);
    if (section_ == Section::scores) return add_score(static_cast<double>(value));
    if (std::in_range<std::int64_t>(value)) scalar(value);
    else scalar(static_cast<double>(value));
  }
  void negative_number(std::int64_t value) override {
    if (section_ == Section::scores) return add_score(static_cast<double>(value));
    scalar(value);
  }
  void real_number(double value, const std::string&) override {
    if (section_ == Section::scores) return add_score(value);
    scalar(value);
  }
  void string(std::string& value) override {
    if (section_ == Section::scores || section_ == Section::merges) return add_text(value);
    scalar(std::move(value));
  }
  void begin_object() override {
    if (section_ != Section::none) fail_section();
    if (at_model("vocab")) return enter(Section::vocabulary, tokens_.has_text || tokens_.has_scores);
    if (at_model("merges")) fail("model.merges", "must be an array of pairs");
    open(Json::object());
  }
  void key(std::string& name) override {
    if (section_ == Section::vocabulary) {
      text_ = std::move(name);
      return;
    }
    Open& object = open_.back();
    if (object.value.contains(name)) fail(path_of(name), "is there twice");
    if (object.value.members().size() == kMostMembers)
      fail(path_of(name), concat("an object has more than ", kMostMembers, " members"));
    object.name = std::move(name);
  }
  void end_object() override { close(); }
  void begin_array() override {
    if (section_ == Section::vocabulary || depth_ == 2) fail_section();
    if (section_ != Section::none) {
      depth_ = 2;
      pair_.clear();
      score_.reset();
      return;
    }
    if (at_model("vocab")) return enter(Section::scores, tokens_.has_text || tokens_.has_scores);
    if (at_model("merges")) return enter(Section::merges, tokens_.has_merges);
    open(Json::array());
  }
  void end_array() override {
    if (depth_ != 2) return close();
    depth_ = 1;
    if (section_ == Section::scores) {
      if (pair_.size() != 1 || !score_) fail_section();
      tokens_.by_score.emplace_back(std::move(pair_[0]), *score_);
    } else {
      if (pair_.size() != 2) fail_section();
      tokens_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
    }
  }

 private:
  static constexpr std::size_t kMostMembers = 4096;  // names are compared one by one
  enum class Section { none, vocabulary, scores, merges };
  struct Open {
    Json value;
    std::string name = {};  // of the member that comes next
  };

  [[noreturn]] void fail(std::string_view path, std::string_view message) const {
    throw PlacedError(concat(place_, ": ", path, ": ", message));
  }
  // What the section may not have at this place.
  [[noreturn]] void fail_section() const {
    switch (section_) {
      case Section::vocabulary:
        fail(concat("model.vocab['", printable(text_, 60), "']"),
             concat("must be a whole number from 0 to ", largest_id_, ", which is what a file of this size can have"));
      case Section::scores:
        fail(concat("model.vocab[", tokens_.by_score.size(), "]"), "must be an array of a text and a number");
      default:
        fail(concat("model.merges[", tokens_.merges.size() + skipped_merges_, "]"),
             R"(must be two tokens, as "a b" or ["a", "b"])");
    }
  }
  std::string path_of(std::string_view name) const {
    std::string path;
    for (const Open& open : open_)
      if (&open != &open_.back() && !open.name.empty()) path += printable(open.name) + ".";
    return path + printable(name);
  }

  bool at_model(std::string_view name) const {
    return open_.size() == 2 && open_[0].name == "model" && open_[1].name == name;
  }
  void enter(Section section, bool again) {
    (section == Section::vocabulary ? tokens_.has_text
     : section == Section::scores   ? tokens_.has_scores
                                    : tokens_.has_merges) = true;
    if (again) fail(concat("model.", open_[1].name), "is there twice");
    section_ = section;
    depth_ = 1;
  }
  void add_token(std::uint64_t id) {
    if (id > static_cast<std::uint64_t>(largest_id_)) fail_section();
    tokens_.by_text.emplace_back(std::move(text_), static_cast<std::uint32_t>(id));
  }
  void add_score(double score) {
    if (depth_ != 2 || pair_.empty() || score_) fail_section();
    score_ = score;
  }
  void add_text(std::string& text) {
    if (depth_ == 2) {
      if (score_ || pair_.size() == 2) fail_section();
      pair_.push_back(std::move(text));
      return;
    }
    if (section_ == Section::scores) fail_section();
    if (text.starts_with("#version")) {  // the first line of merges.txt
      ++skipped_merges_;
      return;
    }
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) fail_section();
    tokens_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  void scalar(Json value) {
    if (section_ != Section::none) fail_section();
    if (at_model("vocab")) fail("model.vocab", "must be an object, or an array of texts and scores");
    if (at_model("merges")) fail("model.merges", "must be an array of pairs");
    add(std::move(value));
  }

  void add(Json item) {
    if (open_.empty()) rest_ = std::move(item);
    else if (open_.back().value.is_array()) open_.back().value.push_back(std::move(item));
    else open_.back().value[open_.back().name] = std::move(item);
  }
  void open(Json empty) {
    if (open_.size() == Json::kMaxDepth)
      fail(path_of(open_.back().name),
           concat("more than ", Json::kMaxDepth, " arrays and objects lie inside each other"));
    open_.push_back({std::move(empty)});
  }
  void close() {
    if (section_ != Section::none) {
      section_ = Section::none;
      depth_ = 0;
      return;
    }
    Json whole = std::move(open_.back().value);
    open_.pop_back();
    add(std::move(whole));
  }

  const std::string& place_;
  std::int64_t largest_id_;
  Json rest_;
  ModelTokens tokens_;
  std::vector<Open> open_;
  Section section_ = Section::none;
  int depth_ = 0;  // of arrays, in a section
  std::string text_;
  std::vector<std::string> pair_;
  std::optional<double> score_;
  std::size_t skipped_merges_ = 0;
};

}  // namespace

std::int64_t largest_token_id(std::size_t file_bytes) {
  constexpr std::int64_t kHoles = 65536;
  constexpr std::int64_t kLargest = (std::int64_t{1} << 31) - 1;
  return std::min(kLargest, kHoles + static_cast<std::int64_t>(file_bytes));
}

TokenizerJson parse_tokenizer_json(std::string_view json, const std::string& place) {
  TokenizerJsonEvents events(place, largest_token_id(json.size()));
  try {
    read_json(json, events);
  } catch (const JsonError& error) { throw PlacedError(concat(place, ": ", error.what()), error.kind()); }
  return events.take();
}

}  // namespace keel
