// Loading by any number of ranks in any stage, to the bit; and of nothing that was damaged.

#include "keel/dist/checkpoint/load.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <random>

#include "keel/dist/checkpoint/export.h"
#include "keel/optim/catalog.h"
#include "tests/dist/checkpoint/checkpoint_support.h"

namespace keel {
namespace {

using namespace testing;

void save_trained(const std::string& path, int n, const ShardedOptions& options, int steps = 2) {
  run_ranks(n, [&](Communicator& ranks) {
    Trained rank(ranks, options);
    rank.train(0, steps);
    save_checkpoint(path, rank.engine, ranks, {{"step", steps}});
  });
}

void load_and_save(const std::string& from, const std::string& to, int n, const ShardedOptions& options) {
  run_ranks(n, [&](Communicator& ranks) {
    Trained rank(ranks, options);
    load_checkpoint(from, read_manifest(from), rank.engine, ranks);
    save_checkpoint(to, rank.engine, ranks, {{"step", 2}});
  });
}

TEST(Load, FromAnyNumberOfRanksAndStageByAnyOtherKeepsEveryBit) {
  const TemporaryFolder place;
  save_trained(place / "0", 4, bf16_stage(2));
  const Contents first = contents_of(place / "0");
  EXPECT_EQ(first.size(), 3u * 8);  // weights, two moments
  struct Stop {
    int ranks, stage;
  };
  int i = 0;
  for (const auto& [n, number] : {Stop{2, 3}, Stop{3, 1}, Stop{4, 0}, Stop{1, 0}, Stop{8, 3}, Stop{3, 2}, Stop{4, 2}}) {
    load_and_save(place / concat(i), place / concat(i + 1), n, bf16_stage(number));
    EXPECT_TRUE(contents_of(place / concat(i + 1)) == first) << n << " ranks, stage " << number;
    ++i;
  }
  // Back among four, file by file.
  EXPECT_TRUE(files_of(place / concat(i)) == files_of(place / "0"));
}

// Halves of the weights, as an average of them could be.
SavedBeside halves_of(const Sharded& engine) {
  SavedBeside beside{"callback.half", engine.weights()};
  for (TensorPart& part : beside.parts)
    if (part.values.defined()) {
      part.values = kernels::clone(part.values);
      kernels::scale(part.values, 0.5);
    }
  return beside;
}

TEST(Load, GivesBackWhatWasSavedBesideTheEngineToAnyNumberOfRanks) {
  for (const bool later : {false, true}) {
    const TemporaryFolder place;
    run_ranks(3, [&](Communicator& ranks) {
      Trained rank(ranks, stage(2));
      rank.train(0, 2);
      const std::vector<SavedBeside> beside = {halves_of(rank.engine)};
      if (!later) {
        save_checkpoint(place / "c", rank.engine, ranks, {{"step", 2}}, {}, beside);
        return;
      }
      AsyncSave save(rank.engine, ranks, beside);
      save.begin(place / "c", {{"step", 2}}, {}, beside);
      kernels::fill(beside[0].parts[0].values, 7);
      EXPECT_EQ(save.finish().failure, "");
    });
    for (const int n : {1, 2, 4})
      run_ranks(n, [&](Communicator& ranks) {
        Trained rank(ranks, stage(3));
        const Manifest manifest = read_manifest(place / "c");
        load_checkpoint(place / "c", manifest, rank.engine, ranks);
        const SavedBeside wanted = halves_of(rank.engine);
        SavedBeside loaded = halves_of(rank.engine);
        for (const TensorPart& part : loaded.parts)
          if (part.values.defined()) kernels::fill(part.values, 0);
        load_beside(place / "c", manifest, loaded, "averages", ranks);
        EXPECT_EQ(fingerprint(loaded.parts), fingerprint(wanted.parts)) << n;
        loaded.section = "callback.other";
        EXPECT_EQ(error_of([&] { load_beside(place / "c", manifest, loaded, "averages", ranks); }).substr(0, 8),
                  "averages");
      });
    const Manifest manifest = read_manifest(place / "c");
    export_weights(place / "c", manifest, place / "half.safetensors", DType::f32, {}, "callback.half");
    export_weights(place / "c", manifest, place / "whole.safetensors");
    const auto exported = [&](const std::string& name) {
      const Manifest file = describe_files(place.path(), "weights", std::vector<std::string>{name});
      return ExtentReader(place.path(), file).read("weights", context(1));
    };
    const TensorParts halves = exported("half.safetensors"), whole = exported("whole.safetensors");
    ASSERT_EQ(halves.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      kernels::scale(whole[i].values, 0.5);
      EXPECT_EQ(doubles(halves[i].values), doubles(whole[i].values)) << whole[i].name;
    }
  }
}

TEST(Load, ByThreeRanksGoesOnAsFromTheCheckpointOfOne) {
  const TemporaryFolder place;
  save_trained(place / "four", 4, stage(3));
  load_and_save(place / "four", place / "one", 1, stage(0));
  std::map<std::string, std::vector<double>> ends;
  std::mutex mutex;
  for (const char* from : {"four", "one"})
    run_ranks(3, [&](Communicator& ranks) {
      Trained rank(ranks, stage(2));
      load_checkpoint(place / from, read_manifest(place / from), rank.engine, ranks);
      rank.train(2, 12);
      const std::vector<double> values = whole_values(rank.engine);
      const std::lock_guard lock(mutex);
      ends[from] = values;
    });
  EXPECT_TRUE(ends["four"] == ends["one"]);
}

// Four ranks train and save; two, three and four load and save, each in a stage of its own; then four train on.
void expect_bits_of_a_run_without_stop(ShardedOptions (*options)(int), const std::array<int, 4>& stages) {
  constexpr int kFirst = 3, kLast = 8;
  const TemporaryFolder place;
  save_trained(place / "whole", 4, options(stages[0]), kLast);
  save_trained(place / "4", 4, options(stages[0]), kFirst);
  const Contents first = contents_of(place / "4");
  load_and_save(place / "4", place / "2", 2, options(stages[1]));
  load_and_save(place / "2", place / "3", 3, options(stages[2]));
  for (const char* resharded : {"2", "3"}) EXPECT_TRUE(contents_of(place / resharded) == first) << resharded;
  run_ranks(4, [&](Communicator& ranks) {
    Trained rank(ranks, options(stages[3]));
    load_checkpoint(place / "3", read_manifest(place / "3"), rank.engine, ranks);
    save_checkpoint(place / "4 again", rank.engine, ranks, {{"step", kFirst}});
    rank.train(kFirst, kLast);
    save_checkpoint(place / "end", rank.engine, ranks, {{"step", kLast}});
  });
  EXPECT_TRUE(contents_of(place / "4 again") == first);
  EXPECT_FALSE(contents_of(place / "end") == first);
  EXPECT_TRUE(contents_of(place / "end") == contents_of(place / "whole"));
}

// Acceptance test 32.
TEST(Load, FromFourByTwoByThreeAndByFourAcrossStagesEndsWithTheBitsOfARunWithoutAStop) {
  for (const std::array<int, 4>& stages : {std::array{1, 3, 2, 0}, {0, 2, 1, 3}, {3, 1, 0, 2}, {2, 2, 2, 2}})
    for (const auto options : {&stage, &bf16_stage}) {
      SCOPED_TRACE(
          concat(options == &stage ? "fp32" : "bf16", ", stages ", stages[0], stages[1], stages[2], stages[3]));
      expect_bits_of_a_run_without_stop(options, stages);
    }
}

// Others' files need not even be there.
TEST(Load, OfARankOpensTheFilesThatHoldItsPartsAlone) {
  const TemporaryFolder place;
  save_trained(place / "c", 4, stage(2));
  const Manifest manifest = read_manifest(place / "c");
  run_ranks(4, [&](Communicator& ranks) {
    const std::string mine = place / concat("rank-", ranks.rank());
    std::filesystem::create_directory(mine);
    for (const char* kind : {"model", "optimizer"}) {
      const std::string name = concat('/', kind, '-', ranks.rank() + 1, "-of-4.safetensors");
      std::filesystem::copy_file(place / "c" + name, mine + name);
    }
    Trained rank(ranks, stage(2));
    load_checkpoint(mine, manifest, rank.engine, ranks);
    save_checkpoint(place / "again", rank.engine, ranks, {{"step", 2}});
  });
  EXPECT_TRUE(files_of(place / "again") == files_of(place / "c"));
}

TEST(Load, OfAnotherModelOrOptimizerSaysWhatDiffersAndChangesNothing) {
  const TemporaryFolder place;
  save_trained(place / "c", 2, stage(2));
  run_ranks(3, [&](Communicator& ranks) {
    UnitNet narrow(32);
    Sharded engine(narrow, testing::context(1), ranks, make_adamw({}), stage(1));
    const std::vector<double> before = whole_values(engine);
    const std::string error =
        error_of([&] { load_checkpoint(place / "c", read_manifest(place / "c"), engine, ranks); });
    EXPECT_EQ(error.find(concat("'", place / "c", "' has weights of another model; of another shape: ")), 0u) << error;
    EXPECT_TRUE(whole_values(engine) == before);
    Trained other(ranks, stage(1), make_optimizer(find_optimizer("SGD"), {}, 1));
    const std::string unknown =
        error_of([&] { load_checkpoint(place / "c", read_manifest(place / "c"), other.engine, ranks); });
    EXPECT_EQ(unknown.find(concat("'", place / "c", "' has no state of SGD for this model; unknown: ")), 0u) << unknown;
  });
}

// A thousand bits, each alone; in a head, in the numbers, in what several ranks have.
TEST(Load, OfABitThatWasFlippedIsRefusedAndNamesTheFile) {
  const TemporaryFolder place;
  save_trained(place / "c", 3, stage(2));
  const Manifest manifest = read_manifest(place / "c");
  std::mt19937 random(7);
  std::vector<std::string> whole;
  for (const StoredFile& file : manifest.files) whole.push_back(read_text_file(concat(place / "c", '/', file.name)));
  ASSERT_EQ(whole.size(), 6u);
  for (int i = 0; i < 1000; ++i) {
    const std::size_t f = random() % whole.size(), byte = random() % whole[f].size();
    const std::string path = concat(place / "c", '/', manifest.files[f].name);
    const std::string text(1, static_cast<char>(whole[f][byte] ^ (1 << random() % 8)));
    const auto put = [&](const std::string& bytes) {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(byte));
      file << bytes;
    };
    put(text);
    const std::string error =
        i % 50 != 0 ? error_of([&] { ExtentReader(place / "c", manifest).verify(); }) : error_of([&] {
          run_ranks(2, [&](Communicator& ranks) {
            Trained rank(ranks, stage(3));
            load_checkpoint(place / "c", manifest, rank.engine, ranks);
          });
        });
    EXPECT_NE(error.find(concat("'", path, "' has changed since it was written")), std::string::npos)
        << "byte " << byte << ": " << error;
    put(whole[f].substr(byte, 1));
  }
  ExtentReader(place / "c", manifest).verify();
}

TEST(Export, HasTheBitsOfTheMastersAndRoundsThemToTheNearest) {
  for (const int n : {1, 3}) {
    const TemporaryFolder place;
    std::map<std::string, std::vector<double>> masters;
    std::mutex mutex;
    run_ranks(n, [&](Communicator& ranks) {
      Trained rank(ranks, bf16_stage(n == 1 ? 0 : 3));
      rank.train(0, 2);
      save_checkpoint(place / "c", rank.engine, ranks, {});
      const std::lock_guard lock(mutex);
      for (const TensorPart& part : rank.engine.weights()) {
        std::vector<double>& whole = masters[part.name];
        whole.resize(static_cast<std::size_t>(product(part.shape)));
        if (part.numel() == 0) continue;
        const std::vector<double> values = doubles(part.values);
        std::copy(values.begin(), values.end(), whole.begin() + part.begin);
      }
    });
    const Manifest manifest = read_manifest(place / "c");
    const Context host = testing::context(1);
    export_weights(place / "c", manifest, place / "w");
    export_weights(place / "c", manifest, place / "b", DType::bf16);
    const SafetensorsFile single(place / "w"), half(place / "b");
    EXPECT_EQ(single.entries().size(), masters.size());
    for (const auto& [name, whole] : masters) {
      EXPECT_TRUE(doubles(single.tensor(name, host)) == whole) << name;
      std::vector<double> rounded;
      for (const double value : whole) rounded.push_back(static_cast<float>(bf16(static_cast<float>(value))));
      EXPECT_TRUE(doubles(half.tensor(name, host)) == rounded) << name;
    }
    publish_weights(place / "c", place / "p");
    EXPECT_TRUE(read_text_file(place / "p") == read_text_file(place / "w"));
  }
}

// Made by old programs (tests/golden/README.md), before there were manifests.
class OldFormats : public ::testing::TestWithParam<int> {
 protected:
  OldFormats() {
    std::filesystem::copy(concat(KEEL_SOURCE_DIR "/tests/golden/checkpoint_format_", GetParam()), folder_);
  }
  TemporaryFolder place_;
  const std::string folder_ = place_ / "c";
};
INSTANTIATE_TEST_SUITE_P(Format, OldFormats, ::testing::Values(2, 3));

TEST_P(OldFormats, AreReadNumberByNumber) {
  const Manifest manifest = read_manifest(folder_);
  EXPECT_FALSE(manifest.has_hashes);
  EXPECT_EQ(manifest.state.at("step").integer(), 3);
  EXPECT_EQ(parse_steps(manifest.state.at("optimizer")).steps, 3);
  EXPECT_EQ(manifest.sections(), (std::vector<std::string>{"weights", "optimizer", "compression.0", "compression.1"}));
  ExtentReader(folder_, manifest).verify();
  const Context host = testing::context(1);
  const TensorParts weights = ExtentReader(folder_, manifest).read("weights", host);
  EXPECT_GT(weights.size(), 5u);
  for (const TensorPart& tensor : weights) {
    std::vector<double> expected(static_cast<std::size_t>(tensor.numel()), 1e30);
    for (const char* file : {"/model-1-of-2.safetensors", "/model-2-of-2.safetensors"})
      for (const TensorPart& part : parse_parts(SafetensorsFile(folder_ + file).views(host)))
        if (part.name == tensor.name) {
          const std::vector<double> values = doubles(part.values);
          std::copy(values.begin(), values.end(), expected.begin() + part.begin);
        }
    EXPECT_TRUE(doubles(tensor.values) == expected) << tensor.name;
  }
}

TEST_P(OldFormats, AreSealedFromTheThirdOn) {
  const std::string text = read_text_file(folder_ + "/state.json"), number = concat("\"format\": ", GetParam());
  const std::size_t seal = text.rfind(",\n  \"xxh3\""), place = text.find(number);
  EXPECT_EQ(seal != std::string::npos, GetParam() == 3);
  std::string without = seal == std::string::npos ? text : text.substr(0, seal) + "\n}\n";
  write_text_file(folder_ + "/state.json", without.replace(place, number.size(), "\"format\": 3"));
  EXPECT_NE(error_of([&] { read_manifest(folder_); }).find("does not end with its own hash"), std::string::npos);
}

TEST_P(OldFormats, ThatWereDamagedAreRefused) {
  const std::string state = read_text_file(folder_ + "/state.json");
  for (std::size_t place = 0; GetParam() == 3 && place < state.size(); place += 11) {
    std::string text = state;
    text[place] = static_cast<char>(text[place] ^ 1);
    write_text_file(folder_ + "/state.json", text);
    EXPECT_NE(error_of([&] { read_manifest(folder_); }), "") << place;
  }
  write_text_file(folder_ + "/state.json", state);
  const Manifest manifest = read_manifest(folder_);
  for (const StoredFile& file : manifest.files) {
    const std::string path = concat(folder_, '/', file.name), whole = read_text_file(path);
    std::string text = whole;
    text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
    write_text_file(path, text);
    EXPECT_EQ(error_of([&] { ExtentReader(folder_, manifest).verify_rest(0, 1); }),
              concat("'", path, "' has changed since it was written (its hash differs)"));
    write_text_file(path, whole);
  }
}

}  // namespace
}  // namespace keel
