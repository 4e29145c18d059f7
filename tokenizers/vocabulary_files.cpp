#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "keel/runtime/file.h"
#include "keel/runtime/json_events.h"
#include "keel/tokenizers/special_tokens.h"
#include "keel/tokenizers/tokenizer_files.h"

// Vocabularies that are no tokenizer.json become the text of one, so that there is one way to read, and to write.

namespace keel {
namespace {

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string json_text(std::string_view text) { return Json(text).dump(-1, BadUtf8::replace); }

struct TokenNumbers {
  std::string json = "{";
  std::unordered_map<std::string, std::uint32_t> by_text;
  std::uint32_t size = 0;  // one more than the largest

  void add(const std::string& text, std::uint32_t number) {
    if (json.size() > 1) json += ',';
    json += concat(json_text(text), ':', number);
    by_text.emplace(text, number);
    size = std::max(size, number + 1);
  }
  std::optional<std::uint32_t> find(const std::string& text) const {
    const auto found = by_text.find(text);
    return found == by_text.end() ? std::nullopt : std::optional(found->second);
  }
};

// An object of texts and numbers.
class TokenNumbersEvents final : public JsonEvents {
 public:
  TokenNumbersEvents(const std::string& path, TokenNumbers& numbers) : path_(path), numbers_(numbers) {}
  void null() override { fail(); }
  void boolean(bool) override { fail(); }
  void whole_number(std::uint64_t value) override {
    if (!is_open_ || value >= std::uint64_t{1} << 31) fail();
    numbers_.add(key_, static_cast<std::uint32_t>(value));
  }
  void negative_number(std::int64_t) override { fail(); }
  void real_number(double, const std::string&) override { fail(); }
  void string(std::string&) override { fail(); }
  void begin_object() override {
    if (std::exchange(is_open_, true)) fail();
  }
  void key(std::string& name) override { key_ = std::move(name); }
  void end_object() override {}
  void begin_array() override { fail(); }
  void end_array() override {}

 private:
  [[noreturn]] void fail() const {
    throw PlacedError(concat(path_, ": must be an object of texts and their numbers",
                             key_.empty() ? "" : ", and is not at ", key_.empty() ? "" : json_text(key_)));
  }
  const std::string& path_;
  TokenNumbers& numbers_;
  std::string key_;
  bool is_open_ = false;
};

Json added_tokens_json(const std::vector<AddedToken>& tokens) {
  Json list = Json::array();
  for (const AddedToken& token : tokens)
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  return list;
}

// The components without the model, of which the text of vocabulary and merges is written as it is.
std::string tokenizer_json_text(const Json& components, const std::string& model) {
  std::string text = components.dump();
  text.back() = ',';
  return text + "\"model\":" + model + "}";
}

Json sequence_part(const char* text, int type_id) { return {{"Sequence", Json{{"id", text}, {"type_id", type_id}}}}; }
Json special_part(const std::string& text, int type_id) {
  return {{"SpecialToken", Json{{"id", text}, {"type_id", type_id}}}};
}

// [CLS] A [SEP] and [CLS] A [SEP] B [SEP]; null where the vocabulary has no such tokens.
Json bert_template(const std::string& cls, const std::string& sep, const std::vector<AddedToken>& tokens) {
  Json specials = Json::object();
  for (const std::string& text : {cls, sep})
    for (const AddedToken& token : tokens)
      if (token.content == text)
        specials[text] = Json{{"id", text}, {"ids", Json::array({token.id})}, {"tokens", Json::array({text})}};
  if (!specials.contains(cls) || !specials.contains(sep)) return nullptr;
  return {{"type", "TemplateProcessing"},
          {"single", Json::array({special_part(cls, 0), sequence_part("A", 0), special_part(sep, 0)})},
          {"pair", Json::array({special_part(cls, 0), sequence_part("A", 0), special_part(sep, 0),
                                sequence_part("B", 1), special_part(sep, 1)})},
          {"special_tokens", specials}};
}

bool setting_or(const SpecialTokensBeside& beside, std::string_view name, bool otherwise) {
  const auto setting = beside.setting(name);
  return setting ? setting->boolean() : otherwise;
}

// Calls line(number from 1, text) for each line, without its end.
template <class F>
void for_each_line(std::string_view text, F&& line) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view one = text.substr(0, end);
    if (one.ends_with('\r')) one.remove_suffix(1);
    line(number, one);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::string merges_json(const std::string& path) {
  const std::string text = read_text_file(path);
  std::string json = "[";
  for_each_line(text, [&](std::size_t number, std::string_view line) {
    if (line.empty() || (number == 1 && line.starts_with("#version"))) return;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      throw PlacedError(concat(path, ":", number, ": must be two tokens with a space between them"));
    json += json.size() > 1 ? "," : "";
    json += json_text(line);
  });
  return json + "]";
}

// <s> A </s> </s> B </s> where the files beside name both tokens, as RoBERTa's and BART's do.
Json roberta_template(const SpecialTokensBeside& beside, const TokenNumbers& numbers) {
  const auto cls = beside.text("cls_token"), sep = beside.text("sep_token");
  if (!cls || !sep || !numbers.find(*cls) || !numbers.find(*sep))
    return {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
  return {{"type", "RobertaProcessing"},
          {"sep", Json::array({*sep, *numbers.find(*sep)})},
          {"cls", Json::array({*cls, *numbers.find(*cls)})},
          {"trim_offsets", true},
          {"add_prefix_space", setting_or(beside, "add_prefix_space", false)}};
}

}  // namespace

TokenizerPtr read_word_piece_vocabulary(const std::string& path) {
  const std::string text = read_text_file(path);
  TokenNumbers numbers;
  for_each_line(text, [&](std::size_t number, std::string_view line) {
    if (!line.empty()) numbers.add(std::string(line), static_cast<std::uint32_t>(number - 1));
  });
  const SpecialTokensBeside beside(folder_of(path));
  if (const auto basic = beside.setting("do_basic_tokenize"); basic && !basic->boolean())
    basic->fail("false is not supported: words are cut as BERT does", ErrorKind::unsupported);
  const auto text_of = [&](std::string_view role, const char* otherwise) {
    return beside.text(role).value_or(otherwise);
  };
  const std::string unknown = text_of("unk_token", "[UNK]");
  const std::vector<AddedToken> added =
      beside.added_tokens([&](const std::string& token) { return numbers.find(token); }, numbers.size,
                          {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"});
  Json normalizer = {{"type", "BertNormalizer"},
                     {"clean_text", true},
                     {"handle_chinese_chars", setting_or(beside, "tokenize_chinese_chars", true)},
                     {"strip_accents", nullptr},
                     {"lowercase", setting_or(beside, "do_lower_case", true)}};
  if (const auto strip = beside.setting("strip_accents")) normalizer["strip_accents"] = strip->boolean();
  const Json components = {
      {"version", "1.0"},
      {"added_tokens", added_tokens_json(added)},
      {"normalizer", normalizer},
      {"pre_tokenizer", Json{{"type", "BertPreTokenizer"}}},
      {"post_processor", bert_template(text_of("cls_token", "[CLS]"), text_of("sep_token", "[SEP]"), added)},
      {"decoder", Json{{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}}};
  return read_tokenizer_json(
      tokenizer_json_text(components, concat(R"({"type":"WordPiece","unk_token":)", json_text(unknown),
                                             R"(,"continuing_subword_prefix":"##","max_input_chars_per_word":100,)"
                                             R"("vocab":)",
                                             numbers.json, "}}")),
      path);
}

TokenizerPtr read_byte_level_bpe(const std::string& vocabulary, const std::string& merges) {
  TokenNumbers numbers;
  TokenNumbersEvents events(vocabulary, numbers);
  try {
    read_json(read_text_file(vocabulary), events);
  } catch (const JsonError& error) { throw PlacedError(concat(vocabulary, ": ", error.what())); }
  const SpecialTokensBeside beside(folder_of(vocabulary));
  const std::vector<AddedToken> added = beside.added_tokens(
      [&](const std::string& token) { return numbers.find(token); }, numbers.size, {"<|endoftext|>"});
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", setting_or(beside, "add_prefix_space", false)},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  const Json components = {{"version", "1.0"},
                           {"added_tokens", added_tokens_json(added)},
                           {"pre_tokenizer", byte_level},
                           {"post_processor", roberta_template(beside, numbers)},
                           {"decoder", byte_level}};
  return read_tokenizer_json(tokenizer_json_text(components, concat(R"({"type":"BPE","vocab":)", numbers.json,
                                                                    R"(},"merges":)", merges_json(merges), "}")),
                             concat(vocabulary, " with ", merges));
}

}  // namespace keel
