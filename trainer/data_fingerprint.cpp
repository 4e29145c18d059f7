#include "keel/trainer/data_fingerprint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "keel/config/schema.h"
#include "keel/data/batch.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/trainer/config.h"
#include "keel/trainer/progress.h"

namespace keel {
namespace {

constexpr std::size_t kMostNamed = 8;  // ranks, and fingerprints

// "rank 3", "ranks 0, 2 and 5", "ranks 0, 1, ... (40 ranks)".
std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return concat("rank ", ranks[0]);
  std::string text = "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i)
    text += concat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return ranks.size() <= kMostNamed ? text : concat(text, ", ... (", ranks.size(), " ranks)");
}

}  // namespace

std::string compare_fingerprints(Communicator& ranks, const std::string& fingerprint) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  const std::vector<std::string> all = gather_texts(ranks, fingerprint);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& each) { return each.first == all[rank]; });
    if (group == groups.end()) group = groups.insert(groups.end(), {all[rank], {}});
    group->second.push_back(static_cast<int>(rank));
  }
  std::string text;
  for (std::size_t i = 0; groups.size() > 1 && i < std::min(groups.size(), kMostNamed); ++i)
    text += concat(i == 0 ? "" : ", ", ranks_text(groups[i].second), groups[i].second.size() == 1 ? " has " : " have ",
                   groups[i].first);
  return groups.size() <= kMostNamed ? text : text + ", and others still others";
}

void check_same_data(const Config& config, const BatchSource& source, TrainObserver& observer, Communicator& ranks) {
  const std::string differences = compare_fingerprints(ranks, source.fingerprint());
  if (differences.empty()) return;
  const std::string text = concat("ranks find different data at ", name_of_data(config), ": ", differences);
  if (!config.data.allow_changes)
    throw AgreedError(text + "; give all the same file, or train on with data.allow_changes=true");
  if (ranks.rank() == 0) observer.on_message(LogLevel::warning, text);
}

std::string name_of_data(const Config& config) {
  for (const auto& [row, value] : applying_values(config.schema(), config))
    if (row->role == KeyRole::data_file) return concat("'", config.text(row->key), "'");
  return "the task's data";
}

}  // namespace keel
