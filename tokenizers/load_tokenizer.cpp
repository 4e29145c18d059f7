#include <array>
#include <filesystem>
#include <functional>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/tokenizers/base64.h"
#include "keel/tokenizers/plain_tokenizers.h"
#include "keel/tokenizers/tokenizer_files.h"

namespace keel {

TokenizerPtr parse_tokenizer(std::string_view json, const std::string& place) {
  if (json.find("\"keel tokenizer\"") == std::string_view::npos) return read_tokenizer_json(json, place);
  try {
    const Json object = Json::parse_or_null(json);
    const Json* const type = object.find("type");
    if (type == nullptr || !type->is_string() || type->string() != "sentencepiece") return parse_plain_tokenizer(json);
    const Json* const model = object.find("model");
    KEEL_CHECK(model != nullptr && model->is_string(), "it has no \"model\"");
    return make_sentence_piece(decode_base64(model->string()));
  } catch (const Error& error) { throw Error(concat("'", place, "' is not a tokenizer: "), error); }
}

namespace {

namespace fs = std::filesystem;

// A form that tokenizers are published in: the files that it consists of, of which the first says that it is this one.
struct TokenizerForm {
  std::vector<std::string_view> files;
  TokenizerPtr (*read)(const std::string& folder, const std::vector<std::string_view>& files);
};

std::string inside(const std::string& folder, std::string_view file) { return (fs::path(folder) / file).string(); }

TokenizerPtr read_sentence_piece_file(const std::string& folder, const std::vector<std::string_view>& files) {
  return read_sentence_piece(inside(folder, files[0]));
}
TokenizerPtr read_byte_level_files(const std::string& folder, const std::vector<std::string_view>& files) {
  return read_byte_level_bpe(inside(folder, files[0]), inside(folder, files[1]));
}

const std::vector<TokenizerForm>& tokenizer_forms() {
  static const std::vector<TokenizerForm> forms = {
      {{"tokenizer.json"},
       [](const std::string& folder, const std::vector<std::string_view>& files) {
         const std::string path = inside(folder, files[0]);
         return parse_tokenizer(read_text(path), path);
       }},
      {{"spiece.model"}, read_sentence_piece_file},
      {{"tokenizer.model"}, read_sentence_piece_file},
      {{"sentencepiece.bpe.model"}, read_sentence_piece_file},
      {{"vocab.json", "merges.txt"}, read_byte_level_files},
      {{"encoder.json", "vocab.bpe"}, read_byte_level_files},
      {{"vocab.txt"}, [](const std::string& folder, const std::vector<std::string_view>& files) {
         return read_word_piece_vocabulary(inside(folder, files[0]));
       }}};
  return forms;
}

constexpr std::array<std::string_view, 4> kFilesBeside = {"tokenizer_config.json", "special_tokens_map.json",
                                                          "added_tokens.json", "chat_template.jinja"};

bool has_files(const std::string& folder, const TokenizerForm& form) {
  for (const std::string_view file : form.files)
    if (!fs::exists(inside(folder, file))) return false;
  return true;
}

std::string known_forms() {
  std::string known;
  for (const TokenizerForm& form : tokenizer_forms()) {
    if (!known.empty()) known += ", ";
    for (std::size_t i = 0; i < form.files.size(); ++i) known += concat(i > 0 ? " with " : "", form.files[i]);
  }
  return known;
}

TokenizerPtr load_file(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string(), name = fs::path(path).filename().string();
  for (const TokenizerForm& form : tokenizer_forms())
    for (const std::string_view file : form.files)
      if (file == name) {
        for (const std::string_view other : form.files)
          KEEL_CHECK(fs::exists(inside(folder, other)), path, ": ", other, " must stand beside it");
        return form.read(folder.empty() ? "." : folder, form.files);
      }
  if (name.ends_with(".json")) return parse_tokenizer(read_text(path), path);
  if (name.ends_with(".model")) return read_sentence_piece(path);
  if (name.ends_with(".txt")) return read_word_piece_vocabulary(path);
  throw Error(concat(path, ": no tokenizer is known by this name; known are ", known_forms(),
                     ", and other files that end in .json, .model or .txt"));
}

}  // namespace

TokenizerPtr load_tokenizer(const std::string& path) {
  const std::string place = with_home_folder(path);
  if (!fs::is_directory(place)) {
    KEEL_CHECK(fs::exists(place), path, ": there is no such file or folder");
    return load_file(place);
  }
  for (const TokenizerForm& form : tokenizer_forms())
    if (has_files(place, form)) return form.read(place, form.files);
  throw Error(concat(path, ": the folder has no tokenizer; looked for were ", known_forms()));
}

std::span<const std::string_view> files_beside_tokenizer() { return kFilesBeside; }

std::vector<std::string> tokenizer_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const TokenizerForm& form : tokenizer_forms())
    if (has_files(folder, form)) files.insert(files.end(), form.files.begin(), form.files.end());
  for (const std::string_view file : kFilesBeside)
    if (fs::exists(inside(folder, file))) files.emplace_back(file);
  return files;
}

}  // namespace keel
