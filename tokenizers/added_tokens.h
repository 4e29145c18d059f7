#pragma once
// Added tokens: texts that are tokens wherever they stand, found before anything else looks at a text.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "keel/tokenizers/normalizer.h"
#include "keel/tokenizers/pieces.h"

namespace keel {

struct AddedToken {
  std::string content = {};
  std::uint32_t id = 0;
  bool single_word = false;             // only where no letter stands at either side
  bool lstrip = false, rstrip = false;  // takes white space at its sides with it
  bool normalized = true;               // is looked for in the normalized text
  bool special = false;                 // decoding may leave it out
};

// Does not change once made.
class AddedTokens {
 public:
  // One content or one number twice is an Error that names both. `normalizer` (may be null) is applied to the contents
  // of those that are looked for in normalized text.
  AddedTokens(std::vector<AddedToken> tokens, NormalizerPtr normalizer);
  AddedTokens();  // none
  ~AddedTokens();
  AddedTokens(AddedTokens&&) noexcept;
  AddedTokens& operator=(AddedTokens&&) noexcept;

  // Cuts those that stand in the text as it is, normalizes what is between, and cuts the others there: the leftmost, of
  // those the longest, first.
  void extract_and_normalize(Pieces& pieces) const;

  const std::vector<AddedToken>& all() const { return tokens_; }
  const AddedToken* by_id(std::uint32_t id) const;  // null: none
  const AddedToken* by_content(std::string_view content) const;
  // What it is looked for as, which is what decoding gives: the normalized content of one that is found in normalized
  // text.
  const std::string& found_as(const AddedToken& token) const;

 private:
  struct Finder;  // many texts at once
  std::vector<AddedToken> tokens_;
  std::vector<std::string> found_as_;  // of each token
  NormalizerPtr normalizer_;
  std::unordered_map<std::uint32_t, std::size_t> by_id_;
  std::unordered_map<std::string, std::size_t> by_content_;
  std::unique_ptr<Finder> as_given_, normalized_;
};

}  // namespace keel
