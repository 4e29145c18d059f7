// Who has which data, in words.

#include "keel/trainer/data_fingerprint.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "keel/data/batch.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/trainer/config.h"
#include "tests/error_of.h"

namespace keel {
namespace {

// What the first rank hears where each has the fingerprint of its letter.
std::string heard_of(const std::string& letters) {
  std::vector<std::string> fingerprints;
  for (const char letter : letters) fingerprints.emplace_back(1, letter);
  return differences_of(fingerprints);
}

class Named final : public BatchSource {
 public:
  explicit Named(std::string name) : name_(std::move(name)) {}
  std::int64_t rows(std::int64_t) const override { return 1; }
  Batch load(std::int64_t, Rows) const override { return {}; }
  std::string fingerprint() const override { return name_; }

 private:
  std::string name_;
};

// What two ranks hear, the same, that train on the first and validate on the others, by set and fingerprint.
struct Parts {
  std::string trained;
  std::vector<std::pair<std::string, std::string>> sets;
};
std::string heard_of(const std::vector<Parts>& parts, bool allowed = false) {
  const Config config = parse_config("{steps: 1, data: {type: addition}, model: {layers: 1, heads: 1, width: 8}}",
                                     "sums.yaml", {concat("data.allow_changes=", allowed ? "true" : "false")});
  std::vector<std::string> heard(parts.size());
  run_ranks(static_cast<int>(parts.size()), [&](Communicator& ranks) {
    const auto rank = static_cast<std::size_t>(ranks.rank());
    Data data;
    if (!parts[rank].trained.empty()) data.training = std::make_shared<Named>(parts[rank].trained);
    for (const auto& [name, fingerprint] : parts[rank].sets)
      data.validation.push_back({name, std::make_shared<Named>(fingerprint), name.empty() ? "" : name + ".txt"});
    std::string& own = heard[rank];
    own += testing::error_of(
        [&] { check_same_data(config, data, ranks, [&](const std::string& text) { own += text + "\n"; }); });
  });
  for (const std::string& each : heard) EXPECT_EQ(each, heard[0]);
  return heard[0];
}

TEST(DataFingerprints, OfRanksAreToldByTheRanksThatHaveThem) {
  EXPECT_EQ(heard_of("a"), "");
  EXPECT_EQ(heard_of("aaa"), "");
  EXPECT_EQ(heard_of("ab"), "rank 0 has a, rank 1 has b");
  EXPECT_EQ(heard_of("aab"), "ranks 0 and 1 have a, rank 2 has b");
  EXPECT_EQ(heard_of("abbb"), "rank 0 has a, ranks 1, 2 and 3 have b");
  EXPECT_EQ(heard_of("aba"), "ranks 0 and 2 have a, rank 1 has b");
  EXPECT_EQ(heard_of("abbbbbbbb"), "rank 0 has a, ranks 1, 2, 3, 4, 5, 6, 7 and 8 have b");
  EXPECT_EQ(heard_of("abbbbbbbbb"), "rank 0 has a, ranks 1, 2, 3, 4, 5, 6, 7, 8, ... (9 ranks) have b");
}

TEST(DataFingerprints, OfMoreThanEightKindsAreNotAllNamed) {
  const std::string eight =
      "rank 0 has a, rank 1 has b, rank 2 has c, rank 3 has d, rank 4 has e, rank 5 has f, rank 6 has g, rank 7 has h";
  EXPECT_EQ(heard_of("abcdefgh"), eight);
  EXPECT_EQ(heard_of("abcdefghi"), eight + ", and others still others");
}

TEST(DataFingerprints, OfEachValidationSetAreComparedAndTheErrorNamesSetFileAndKey) {
  EXPECT_EQ(heard_of({{"a", {{"dev", "b"}, {"far", "c"}}}, {"a", {{"dev", "b"}, {"far", "c"}}}}), "");
  EXPECT_EQ(heard_of({{"a", {{"dev", "b"}, {"far", "c"}}}, {"a", {{"dev", "b"}, {"far", "d"}}}}),
            "ranks find different data at 'far.txt', the validation set 'far': rank 0 has c, rank 1 has d; give all "
            "the same file, or go on with data.allow_changes=true");
  EXPECT_EQ(heard_of({{"a", {{"", "b"}}}, {"a", {{"", "c"}}}}, true),
            "ranks find different data at the task's data, the validation set: rank 0 has b, rank 1 has c\n");
  EXPECT_EQ(heard_of({{"", {{"dev", "b"}}}, {"", {{"dev", "c"}}}}, true),
            "ranks find different data at 'dev.txt', the validation set 'dev': rank 0 has b, rank 1 has c\n")
      << "where nothing is trained on";
}

TEST(DataFingerprints, OfAPartOfOtherDataAreNotToldBesideIt) {
  EXPECT_EQ(heard_of({{"a", {{"", "b"}, {"dev", "d"}}}, {"c", {{"", "c"}, {"dev", "e"}}}}, true),
            "ranks find different data at the task's data: rank 0 has a, rank 1 has c\n"
            "ranks find different data at 'dev.txt', the validation set 'dev': rank 0 has d, rank 1 has e\n");
}

}  // namespace
}  // namespace keel
