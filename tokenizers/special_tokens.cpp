#include "keel/tokenizers/special_tokens.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "keel/runtime/file.h"

namespace keel {
namespace {

constexpr std::array<std::string_view, 7> kRoles = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                    "pad_token", "cls_token", "mask_token"};

// A text, or an object whose content is one.
AddedToken special_token_of(const JsonPlace& place) {
  AddedToken token;
  token.special = true;
  token.normalized = false;
  if (!place.value().is_object()) {
    token.content = place.text();
    return token;
  }
  token.content = place.at("content").text();
  const auto flag = [&](std::string_view name, bool& value) {
    if (place.has(name)) value = place.at(name).boolean();
  };
  flag("single_word", token.single_word);
  flag("lstrip", token.lstrip);
  flag("rstrip", token.rstrip);
  flag("normalized", token.normalized);
  flag("special", token.special);
  return token;
}

std::uint32_t number_of(std::string_view text, const JsonPlace& place) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) place.fail("its name must be a token's number");
  return number;
}

}  // namespace

SpecialTokensBeside::File SpecialTokensBeside::read(const std::string& path) {
  File file = {path, {}};
  if (!std::filesystem::exists(path)) return file;
  try {
    file.json = Json::parse(read_text_file(path));
  } catch (const JsonError& error) { throw PlacedError(concat(path, ": ", error.what())); }
  if (!file.json.is_object()) throw PlacedError(concat(path, ": must be an object"));
  return file;
}

SpecialTokensBeside::SpecialTokensBeside(const std::string& folder)
    : config_(read(folder + "/tokenizer_config.json")),
      map_(read(folder + "/special_tokens_map.json")),
      added_(read(folder + "/added_tokens.json")) {}

std::optional<JsonPlace> SpecialTokensBeside::setting(std::string_view name) const {
  const JsonPlace place = config_.place();
  if (!place.has(name) || place.at(name).is_null()) return std::nullopt;
  return place.at(name);
}

std::optional<std::string> SpecialTokensBeside::text(std::string_view role) const {
  for (const File* file : {&map_, &config_})
    if (file->place().has(role) && !file->place().at(role).is_null())
      return special_token_of(file->place().at(role)).content;
  return std::nullopt;
}

std::vector<AddedToken> SpecialTokensBeside::added_tokens(
    const std::function<std::optional<std::uint32_t>(const std::string&)>& find, std::uint32_t size,
    const std::vector<std::string_view>& defaults) const {
  std::vector<AddedToken> tokens;
  const auto add = [&](AddedToken token, std::optional<std::uint32_t> number) {
    const auto same = [&](const AddedToken& other) { return other.content == token.content; };
    if (token.content.empty() || std::any_of(tokens.begin(), tokens.end(), same)) return;
    const std::optional<std::uint32_t> known = find(token.content);
    if (!known && !number) number = std::max(size, tokens.empty() ? 0 : tokens.back().id + 1);
    token.id = known ? *known : *number;
    tokens.push_back(std::move(token));
    std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  };
  if (const auto numbered = setting("added_tokens_decoder"))
    for (const auto& [number, place] : numbered->members()) add(special_token_of(place), number_of(number, place));
  if (added_.json.is_object())
    for (const auto& [content, place] : added_.place().members()) {
      AddedToken token;
      token.content = std::string(content);
      add(std::move(token), static_cast<std::uint32_t>(place.integer(0, (std::int64_t{1} << 31) - 1)));
    }
  for (const File* file : {&map_, &config_}) {
    for (const std::string_view role : kRoles)
      if (file->place().has(role) && !file->place().at(role).is_null())
        add(special_token_of(file->place().at(role)), std::nullopt);
    if (file->place().has("additional_special_tokens") && !file->place().at("additional_special_tokens").is_null())
      for (const JsonPlace& place : file->place().at("additional_special_tokens").items())
        add(special_token_of(place), std::nullopt);
  }
  for (const std::string_view content : defaults)
    if (const auto known = find(std::string(content)))
      add({.content = std::string(content), .normalized = false, .special = true}, known);
  return tokens;
}

}  // namespace keel
