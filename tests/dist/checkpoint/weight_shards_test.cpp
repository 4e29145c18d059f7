// Weights in several files with an index: where they are cut, that they come back, and what is wrong with them.

#include "keel/dist/checkpoint/weight_shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include "keel/dist/checkpoint/export.h"
#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/dist/checkpoint/extent_writer.h"
#include "keel/runtime/json.h"
#include "tests/error_of.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace testing;

// A checkpoint's weights: a (20 numbers), b (3), c (8) and d (8), in files of two ranks.
Manifest four_tensors(const std::string& folder) {
  const Context host = testing::context(1);
  const std::vector<NamedTensor> tensors = {{"a", uniform_tensor(host, {4, 5}, 1)},
                                            {"b", uniform_tensor(host, {3}, 2)},
                                            {"c", uniform_tensor(host, {8}, 3)},
                                            {"d", uniform_tensor(host, {2, 4}, 4)}};
  ManifestJoin join;
  for (int rank = 0; rank < 2; ++rank) {
    Section section{"weights", concat("model-", rank, ".safetensors"), {}, {}};
    for (const auto& [name, values] : tensors) {
      const std::int64_t begin = values.numel() * rank / 2, end = values.numel() * (rank + 1) / 2;
      section.parts.push_back({name, values.shape(), begin, values.flatten().slice(0, begin, end)});
    }
    join.add(write_section(folder, section, false));
  }
  return std::move(join).finish();
}

std::map<std::string, std::vector<float>> weights_by_name(const std::string& folder, const Manifest& manifest) {
  std::map<std::string, std::vector<float>> numbers;
  for (const TensorPart& part : ExtentReader(folder, manifest).read("weights", testing::context(1)))
    numbers[concat(part.name, ' ', part.shape)] = part.values.to_vector<float>();
  return numbers;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

TEST(WeightShards, HoldAtMostWhatIsAskedForAndALargerTensorAlone) {
  const TemporaryFolder place;
  const Manifest manifest = four_tensors(place.path());
  // Bytes: 80, 12, 32, 32.
  const std::pair<std::uint64_t, std::vector<std::vector<std::string>>> cases[] = {
      {1000, {{"a", "b", "c", "d"}}}, {156, {{"a", "b", "c", "d"}}},    {155, {{"a", "b", "c"}, {"d"}}},
      {80, {{"a"}, {"b", "c", "d"}}}, {44, {{"a"}, {"b", "c"}, {"d"}}}, {1, {{"a"}, {"b"}, {"c"}, {"d"}}}};
  for (const auto& [most, expected] : cases) {
    const std::string target = concat(place / "shards", most);
    ASSERT_EQ(export_shards(place.path(), manifest, target, most), expected.size());
    const Json index = Json::parse(read_text_file(concat(target, '/', kShardIndex)));
    EXPECT_EQ(index.at("metadata").at("total_size").integer(), 156);
    EXPECT_EQ(index.at("weight_map").members().size(), 4u);
    std::vector<std::string> files = {kShardIndex};
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::string name = concat("model-0000", i + 1, "-of-0000", expected.size(), ".safetensors");
      files.insert(files.end() - 1, name);
      std::vector<std::string> tensors;
      const SafetensorsFile file(concat(target, '/', name));
      for (const SafetensorsEntry& entry : file.entries()) {
        tensors.push_back(entry.name);
        EXPECT_EQ(index.at("weight_map").at(entry.name).string(), name) << most;
      }
      EXPECT_EQ(tensors, expected[i]) << most;
    }
    EXPECT_EQ(names_in(target), files) << most;
    EXPECT_EQ(weights_by_name(target, describe_shards(concat(target, '/', kShardIndex), "weights")),
              weights_by_name(place.path(), manifest));
  }
}

TEST(WeightShards, AppearInOneStepOrNotAtAll) {
  const TemporaryFolder place;
  const Manifest manifest = four_tensors(place.path());
  export_shards(place.path(), manifest, place / "shards", 80);
  const std::string before = read_text_file(place / "shards/model-00002-of-00002.safetensors");
  EXPECT_NE(error_of([&] { export_shards(place.path(), manifest, place / "shards", 44); }).find("exists already"),
            std::string::npos);
  std::string text = read_text_file(place / "model-1.safetensors");
  text.back() = static_cast<char>(text.back() ^ 4);  // of d, the last one to be written
  write_text_file(place / "model-1.safetensors", text);
  for (const char* target : {"shards", "others"})
    EXPECT_THROW(export_shards(place.path(), manifest, place / target, 44, IfExists::replace), UnreadableCheckpoint);
  EXPECT_EQ(names_in(place.path()), (std::vector<std::string>{"model-0.safetensors", "model-1.safetensors", "shards"}));
  EXPECT_EQ(names_in(place / "shards").size(), 3u);
  EXPECT_TRUE(read_text_file(place / "shards/model-00002-of-00002.safetensors") == before);
}

TEST(WeightShards, AreReplacedTogether) {
  const TemporaryFolder place;
  const Manifest manifest = four_tensors(place.path());
  export_shards(place.path(), manifest, place / "shards", 1);
  EXPECT_EQ(export_shards(place.path(), manifest, place / "shards", 80, IfExists::replace, DType::bf16), 1u);
  EXPECT_EQ(names_in(place / "shards"), (std::vector<std::string>{"model-00001-of-00001.safetensors", kShardIndex}));
}

TEST(WeightShards, ThatAreIncompleteOrMixedUpAreAnErrorThatNamesThem) {
  const TemporaryFolder place;
  const Manifest manifest = four_tensors(place.path());
  const std::string shards = place / "shards", index = concat(shards, '/', kShardIndex);
  const std::string first = "model-00001-of-00003.safetensors", second = "model-00002-of-00003.safetensors";
  const auto told = [&](const std::function<void()>& damage) {
    std::filesystem::remove_all(shards);
    export_shards(place.path(), manifest, shards, 44);
    damage();
    return error_of([&] { describe_shards(index, "weights"); });
  };
  const auto edit = [&](const std::string& from, const std::string& to) {
    std::string text = read_text_file(index);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_text_file(index, text.replace(at, from.size(), to));
  };
  EXPECT_EQ(told([] {}), "");
  EXPECT_EQ(told([&] { std::filesystem::remove(concat(shards, '/', second)); }),
            concat("'", index, "' names the file '", second, "', which is not there; copy all files of the index"));
  EXPECT_EQ(told([&] { edit("\"b\": \"" + second, "\"b\": \"" + first); }),
            concat("'", index, "' says that 'b' is in '", first, "', which does not have it"));
  EXPECT_EQ(told([&] { edit("    \"b\": \"" + second + "\",\n", ""); }),
            concat("'", shards, '/', second, "' has 'b', which '", index, "' does not name"));
  EXPECT_EQ(told([&] { edit("\"d\"", "\"e\""); }),
            concat("'", index, "' says that 'e' is in 'model-00003-of-00003.safetensors', which does not have it"));
  EXPECT_EQ(told([&] {
              std::filesystem::copy_file(concat(shards, '/', second), concat(shards, '/', first),
                                         std::filesystem::copy_options::overwrite_existing);
              edit("\"a\": \"" + first + "\",", "");
              edit("\"b\": \"" + second, "\"b\": \"" + first);
            }),
            concat("'", shards, '/', first, "' has 'c', which '", index, "' says to be in '", second, "'"));
  EXPECT_EQ(told([&] { edit(second, "../" + second); }),
            concat("'", index, "' is no index of weights: '../", second, "' is no name of a file beside it"));
  EXPECT_EQ(told([&] { edit("weight_map", "weights"); }),
            concat("'", index, "' is no index of weights: 'weight_map' is missing"));
  EXPECT_EQ(told([&] { write_text_file(index, R"({"weight_map": {}})"); }),
            concat("'", index, "' is no index of weights: it names no tensor"));
  EXPECT_TRUE(told([&] { write_text_file(index, "{"); }).starts_with(concat("'", index, "' is no index of weights: ")));
}

}  // namespace
}  // namespace keel
