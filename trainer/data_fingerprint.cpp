#include "keel/trainer/data_fingerprint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "keel/config/schema.h"
#include "keel/data/batch.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/json.h"
#include "keel/trainer/config.h"

namespace keel {
namespace {

constexpr std::size_t kMostNamed = 8;      // ranks, and fingerprints
constexpr const char* kTrained = "train";  // no set has that name

// "rank 3", "ranks 0, 2 and 5", "ranks 0, 1, ... (40 ranks)".
std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return concat("rank ", ranks[0]);
  std::string text = "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i)
    text += concat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return ranks.size() <= kMostNamed ? text : concat(text, ", ... (", ranks.size(), " ranks)");
}

}  // namespace

std::string differences_of(const std::vector<std::string>& fingerprints) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (std::size_t rank = 0; rank < fingerprints.size(); ++rank) {
    const std::string& own = fingerprints[rank];
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& each) { return each.first == own; });
    if (group == groups.end()) group = groups.insert(groups.end(), {own, {}});
    group->second.push_back(static_cast<int>(rank));
  }
  std::string text;
  for (std::size_t i = 0; groups.size() > 1 && i < std::min(groups.size(), kMostNamed); ++i)
    text += concat(i == 0 ? "" : ", ", ranks_text(groups[i].second), groups[i].second.size() == 1 ? " has " : " have ",
                   groups[i].first);
  return groups.size() <= kMostNamed ? text : text + ", and others still others";
}

std::map<std::string, std::string> fingerprints_of_sets(const Data& data) {
  std::map<std::string, std::string> all;
  for (const ValidationSet& set : data.validation)
    if (std::string own = set.source->fingerprint(); !own.empty()) all.emplace(set.name, std::move(own));
  return all;
}

void check_same_data(const Config& config, const Data& data, Communicator& ranks,
                     const std::function<void(const std::string& text)>& warn) {
  Json mine = Json::object();
  if (data.training) mine[kTrained] = data.training->fingerprint();
  for (const auto& [name, fingerprint] : fingerprints_of_sets(data)) mine[name] = fingerprint;
  const std::vector<std::string> all = gather_texts(ranks, mine.dump(-1, BadUtf8::replace));
  if (differences_of(all).empty()) return;
  std::vector<Json> parsed;
  for (const std::string& text : all) parsed.push_back(Json::parse(text));
  const auto compare = [&](const std::string& part, const std::string& name) {
    std::vector<std::string> fingerprints;
    for (const Json& each : parsed)
      fingerprints.push_back(each.contains(part) ? each.at(part).string() : std::string("none"));
    const std::string differences = differences_of(fingerprints);
    if (differences.empty()) return false;
    const std::string text = concat("ranks find different data at ", name, ": ", differences);
    if (!config.data.allow_changes)
      throw AgreedError(text + "; give all the same file, or go on with data.allow_changes=true");
    warn(text);
    return true;
  };
  const bool differs = compare(std::string(kTrained), name_of_data(config));
  for (const ValidationSet& set : data.validation)
    if (!set.path.empty() || !differs) compare(set.name, name_of_set(config, set));
}

std::string name_of_data(const Config& config) {
  for (const auto& [row, value] : applying_values(config.schema(), config))
    if (row->role == KeyRole::data_file) return concat("'", config.text(row->key), "'");
  return "the task's data";
}

std::string name_of_set(const Config& config, const ValidationSet& set) {
  return concat(set.path.empty() ? name_of_data(config) : concat("'", set.path, "'"), ", the validation set",
                set.name.empty() ? "" : concat(" '", set.name, "'"));
}

}  // namespace keel
