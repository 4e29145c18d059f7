#include "keel/config/yaml_words.h"

#include <yaml-cpp/exceptions.h>

#include <span>

#include "keel/runtime/error.h"

namespace keel {
namespace {

namespace Theirs = YAML::ErrorMsg;

constexpr std::string_view kNoTags = "tags (!) are not used here; write the plain value";
constexpr std::string_view kNoAnchors = "anchors and aliases (&, *) are not used here; write the value out";
constexpr std::string_view kNoDirectives = "directives (%) are not used here";
constexpr std::string_view kBadEscape =
    "a \\ in double quotes begins no escape; write \\\\ for a backslash, or use single quotes";

struct Wording {
  std::string_view theirs;  // how their message begins
  std::string_view ours;
};
// Made when it is asked for: yaml-cpp's texts are no constants of the compiler.
std::span<const Wording> wordings() {
  static const Wording all[] = {
      {Theirs::END_OF_MAP_FLOW, "inside braces a comma is missing, or the closing }, as in {layers: 2, width: 64}"},
      {Theirs::END_OF_SEQ_FLOW, "inside brackets a comma is missing, or the closing ], as in [0.9, 0.99]"},
      {Theirs::END_OF_MAP, "expects `key: value`, indented as the keys above it"},
      {Theirs::END_OF_SEQ,
       "stands between the items of a list; begin it with -, or indent it as the keys around the list"},
      {Theirs::FLOW_END, "closes a ] or } that nothing opened"},
      {Theirs::BLOCK_ENTRY, "a - begins an item of a list, and none may stand here"},
      {Theirs::MAP_KEY, "a key may not stand here; is it indented as the keys above it?"},
      {Theirs::MAP_VALUE,
       "has one colon too many, or is not indented as the keys above it; a text with `: ` needs quotes"},
      {Theirs::UNKNOWN_TOKEN, "a value may not begin with @ or `; put it in quotes"},
      {Theirs::DOC_IN_SCALAR, "a quote is opened and not closed before --- or ..."},
      {Theirs::EOF_IN_SCALAR, "a quote is opened and not closed"},
      {Theirs::TAB_IN_INDENTATION, "a tab is used as indentation; use spaces"},
      {Theirs::CHAR_IN_BLOCK, "behind | or > stands nothing but the text, from the next line on"},
      {Theirs::ZERO_INDENT_IN_BLOCK, "behind | or > the number of spaces is at least 1"},
      {Theirs::INVALID_HEX, kBadEscape},
      {Theirs::INVALID_UNICODE, kBadEscape},
      {Theirs::INVALID_ESCAPE, kBadEscape},
      {Theirs::CHAR_IN_TAG_HANDLE, kNoTags},
      {Theirs::TAG_WITH_NO_SUFFIX, kNoTags},
      {Theirs::END_OF_VERBATIM_TAG, kNoTags},
      {Theirs::MULTIPLE_TAGS, kNoTags},
      {Theirs::MULTIPLE_ANCHORS, kNoAnchors},
      {Theirs::MULTIPLE_ALIASES, kNoAnchors},
      {Theirs::ALIAS_CONTENT, kNoAnchors},
      {Theirs::ALIAS_NOT_FOUND, kNoAnchors},
      {Theirs::ANCHOR_NOT_FOUND, kNoAnchors},
      {Theirs::CHAR_IN_ALIAS, kNoAnchors},
      {Theirs::CHAR_IN_ANCHOR, kNoAnchors},
      {Theirs::UNKNOWN_ANCHOR, kNoAnchors},
      {Theirs::YAML_DIRECTIVE_ARGS, kNoDirectives},
      {Theirs::YAML_VERSION, kNoDirectives},
      {Theirs::YAML_MAJOR_VERSION, kNoDirectives},
      {Theirs::REPEATED_YAML_DIRECTIVE, kNoDirectives},
      {Theirs::TAG_DIRECTIVE_ARGS, kNoDirectives},
      {Theirs::REPEATED_TAG_DIRECTIVE, kNoDirectives},
  };
  return all;
}

}  // namespace

std::string in_our_words(std::string_view theirs) {
  // The longest that fits: END_OF_MAP begins as END_OF_MAP_FLOW does.
  const Wording* best = nullptr;
  for (const Wording& wording : wordings())
    if (theirs.starts_with(wording.theirs) && (best == nullptr || wording.theirs.size() > best->theirs.size()))
      best = &wording;
  return best != nullptr ? std::string(best->ours) : concat("is not valid YAML: ", theirs);
}

}  // namespace keel
