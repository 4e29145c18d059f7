#pragma once
// config.json, which Hugging Face's programs keep beside a model's weights, read strictly: every key is read, is known
// to change nothing that is computed, or is an Error.

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/json.h"

namespace keel {

// The largest sizes that a config.json may have, as keel's own keys.
inline constexpr std::int64_t kMostHubLayers = 1024, kMostHubHeads = 1024, kMostHubHeadSize = 4096,
                              kMostHubWidth = 65536, kMostHubHidden = 1048576, kMostHubVocabulary = 16777216,
                              kMostHubPositions = 1073741824, kMostHubTokenTypes = 65536;

class HubConfig {
 public:
  // `text`: of the file. `place` names it in messages. What is no object, or has no model_type, is an Error.
  HubConfig(std::string_view text, std::string place);

  const std::string& model_type() const { return model_type_; }
  const std::string& place() const { return place_; }

  // Each of these reads a key. A value of another type is an Error; so is one that is not there, or null, where there
  // is no default.
  std::int64_t integer(std::string_view key);
  std::int64_t integer(std::string_view key, std::int64_t standard);
  double number(std::string_view key, double standard);
  bool flag(std::string_view key, bool standard);
  std::string text(std::string_view key, std::string_view standard);
  // A whole number from 1 to `most`. Nothing that is built of such sizes has more bytes than can be counted.
  std::int64_t size(std::string_view key, std::int64_t most);
  std::int64_t size(std::string_view key, std::int64_t standard, std::int64_t most);
  double probability(std::string_view key, double standard);  // in [0, 1)
  double positive(std::string_view key, double standard);     // and finite, both in fp32
  // As it is there; null where it is not.
  Json value(std::string_view key);
  bool has(std::string_view key) const;      // and is not null; does not read it
  bool is_null(std::string_view key) const;  // is there, as null; does not read it

  // Reads a key that must be missing, null or equal to the only value that the model can compute with.
  void expect(std::string_view key, const Json& only);
  // Reads keys that say nothing about what is computed.
  void ignore(std::span<const std::string_view> keys);

  // An Error that names every key that nobody has read, and is neither among those that no model computes with (names
  // of files, tokens' numbers, defaults of generation), nor has the value that changes nothing (use_mrope: false), nor
  // is in `allowed`, the user's own list.
  void check_all_read(std::span<const std::string> allowed);
  // An Error at this key.
  [[noreturn]] void refuse(std::string_view key, std::string_view why) const;

 private:
  const Json* find(std::string_view key);

  std::string place_, model_type_;
  Json whole_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace keel
