#pragma once
// What files beside a vocabulary say of its special tokens: tokenizer_config.json, special_tokens_map.json and
// added_tokens.json.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/json.h"
#include "keel/tokenizers/added_tokens.h"
#include "keel/tokenizers/json_place.h"

namespace keel {

class SpecialTokensBeside {
 public:
  // A missing file says nothing; a malformed one is an Error.
  explicit SpecialTokensBeside(const std::string& folder);

  // Of "cls_token" and the like.
  std::optional<std::string> text(std::string_view role) const;
  // A setting of tokenizer_config.json that is neither missing nor null.
  std::optional<JsonPlace> setting(std::string_view name) const;
  // All of them, by number. `find` knows the vocabulary's tokens; others have numbers from `size` on. `defaults` are
  // there, too, if the vocabulary has them.
  std::vector<AddedToken> added_tokens(const std::function<std::optional<std::uint32_t>(const std::string&)>& find,
                                       std::uint32_t size, const std::vector<std::string_view>& defaults) const;

 private:
  struct File {
    std::string path;
    Json json;
    JsonPlace place() const { return {json, path}; }
  };
  static File read(const std::string& path);

  File config_, map_, added_;
};

}  // namespace keel
