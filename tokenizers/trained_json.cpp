#include "keel/tokenizers/trained_json.h"

#include <string>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/json.h"

namespace keel {

std::string byte_level_json(const TrainedBpe& trained, const std::vector<std::string>& specials) {
  Json added = Json::array();
  for (std::size_t i = 0; i < specials.size(); ++i)
    added.push_back({{"id", static_cast<std::int64_t>(i)},
                     {"content", specials[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const Json model{{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", false}};
  // Json looks for each member's name among those before it, which is too slow for a vocabulary.
  std::string vocabulary, merges;
  for (std::size_t i = 0; i < trained.tokens.size(); ++i)
    vocabulary += concat(i == 0 ? "" : ",", "\n   ", Json(trained.tokens[i]).dump(), ": ", i);
  for (const auto& [left, right] : trained.merges)
    merges += concat(merges.empty() ? "" : ",", "\n   ", Json::array({left, right}).dump());
  std::string text = model.dump();
  text.pop_back();
  text += concat(",\n  \"vocab\": {", vocabulary, "},\n  \"merges\": [", merges, "]}");
  Json all{{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  all["added_tokens"] = std::move(added);
  all["normalizer"] = nullptr;
  all["pre_tokenizer"] = bytes;
  all["post_processor"] = bytes;
  all["decoder"] = bytes;
  std::string parts = all.dump();
  parts.pop_back();
  return concat(parts, ",\n \"model\": ", text, "}\n");
}

}  // namespace keel
