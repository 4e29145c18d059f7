// Weights of a checkpoint as one file: the masters to the bit, or rounded once, whoever has written them.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/export.h"
#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/dist/checkpoint/extent_writer.h"
#include "keel/dist/checkpoint/save.h"
#include "keel/dist/checkpoint/weight_shards.h"
#include "tests/dist/checkpoint/resident.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace testing;

// By the definition: the nearest of the two bf16 numbers around x; of two that are as near, the one that ends in 0.
std::uint16_t nearest_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto low = static_cast<std::uint16_t>(bits >> 16);
  const auto as_double = [](std::uint16_t half) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16));
  };
  const auto high = static_cast<std::uint16_t>(low + 1);  // farther from 0
  const double below = std::abs(x - as_double(low)), above = std::abs(as_double(high) - x);
  if (below != above) return below < above ? low : high;
  return low % 2 == 0 ? low : high;
}

// What tests compare: every tensor's name, shape and bytes.
std::map<std::string, std::pair<Dims, std::string>> tensors_in(const std::string& path, DType dtype) {
  const SafetensorsFile file(path);
  const Context host = testing::context(1);
  std::map<std::string, std::pair<Dims, std::string>> tensors;
  for (const auto& [name, tensor] : file.views(host)) {
    EXPECT_EQ(tensor.dtype(), dtype);
    tensors[name] = {tensor.shape(), std::string(reinterpret_cast<const char*>(tensor.raw()), tensor.bytes())};
  }
  return tensors;
}

std::string rounded(const std::string& floats) {
  std::string bytes;
  for (std::size_t at = 0; at < floats.size(); at += sizeof(float)) {
    float x = 0;
    std::memcpy(&x, floats.data() + at, sizeof x);
    const std::uint16_t half = nearest_bf16(x);
    bytes.append(reinterpret_cast<const char*>(&half), sizeof half);
  }
  return bytes;
}

// The masters of all ranks, gathered without any file.
using Masters = std::map<std::string, std::pair<Dims, std::string>>;

class Export : public ::testing::TestWithParam<std::tuple<int, int, DType>> {
 protected:
  // Three steps, and a checkpoint of them.
  Masters train_and_save(const std::string& path) {
    const auto [n, number, dtype] = GetParam();
    Masters masters;
    std::mutex mutex;
    run_ranks(n, [&, number = number, dtype = dtype](Communicator& ranks) {
      UnitNet net;
      ShardedOptions options = stage(number);
      options.policy = PrecisionPolicy::of(dtype);
      Sharded engine(net, testing::context(1), ranks, make_adamw({}), options);
      for (int step = 0; step < 3; ++step) {
        const Tensor x = rows(engine.context(), step, ranks, 0, 1, 100, dtype);
        engine.backward(mean(square(net(x))), {.weight = x.dim(0)});
        engine.step(1e-2).get();
      }
      // Their numbers wait for other ranks, so they are taken before the lock.
      std::vector<std::vector<float>> numbers;
      const TensorParts parts = engine.weights();
      for (const TensorPart& part : parts)
        numbers.push_back(part.numel() > 0 ? part.values.to_vector<float>() : std::vector<float>());
      {
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < parts.size(); ++i) {
          auto& [shape, bytes] = masters[parts[i].name];
          shape = parts[i].shape;
          bytes.resize(static_cast<std::size_t>(product(shape)) * sizeof(float));
          if (!numbers[i].empty())
            std::memcpy(bytes.data() + static_cast<std::size_t>(parts[i].begin) * sizeof(float), numbers[i].data(),
                        numbers[i].size() * sizeof(float));
        }
      }
      save_checkpoint(path, engine, ranks, Json::object());
    });
    return masters;
  }
};

TEST_P(Export, InFp32IsTheGatheredMastersToTheBitAndInBf16TheirNearest) {
  const TemporaryFolder folder;
  const std::string path = folder / "checkpoint";
  const Masters masters = train_and_save(path);
  const Manifest manifest = read_manifest(path);
  export_weights(path, manifest, folder / "f32.safetensors");
  EXPECT_TRUE(tensors_in(folder / "f32.safetensors", DType::f32) == masters);
  export_weights(path, manifest, folder / "bf16.safetensors", DType::bf16);
  const auto halves = tensors_in(folder / "bf16.safetensors", DType::bf16);
  ASSERT_EQ(halves.size(), masters.size());
  for (const auto& [name, tensor] : masters) {
    EXPECT_EQ(halves.at(name).first, tensor.first) << name;
    EXPECT_TRUE(halves.at(name).second == rounded(tensor.second)) << name;
  }
}

TEST_P(Export, InShardsHasTheTensorsOfTheOneFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "checkpoint";
  const Masters masters = train_and_save(path);
  std::uint64_t largest = 0;
  for (const auto& [name, tensor] : masters) largest = std::max<std::uint64_t>(largest, tensor.second.size());
  const std::size_t count = export_shards(path, read_manifest(path), folder / "shards", 2 * largest);
  EXPECT_GT(count, 1u);
  EXPECT_LT(count, masters.size());
  Masters joined;
  for (std::size_t i = 1; i <= count; ++i) {
    const std::string file = concat(folder / "shards", '/', shard_name(i, count));
    std::uint64_t bytes = 0;
    for (auto& [name, tensor] : tensors_in(file, DType::f32)) {
      bytes += tensor.second.size();
      EXPECT_TRUE(joined.emplace(name, tensor).second) << name;
    }
    EXPECT_LE(bytes, 2 * largest);
  }
  EXPECT_TRUE(joined == masters);
}

INSTANTIATE_TEST_SUITE_P(AllStages, Export,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Values(0, 1, 2, 3),
                                            ::testing::Values(DType::f32, DType::bf16)),
                         [](const auto& test) {
                           return concat("N", std::get<0>(test.param), "Stage", std::get<1>(test.param), "In",
                                         std::get<2>(test.param));
                         });

// A checkpoint of given numbers, in files of two ranks.
Manifest write(const std::string& folder, const std::vector<NamedTensor>& tensors) {
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

TEST(ExportRounding, TakesTiesToEvenAndKeepsSignsAndSubnormals) {
  const TemporaryFolder folder;
  std::vector<float> values;
  // Every sixteenth bf16 number, and between it and the next: a tie, and its neighbours.
  for (std::uint32_t high = 0; high < 0x7f00; high += 16)
    for (const std::uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
      for (const std::uint32_t odd : {0U, 1U})
        for (const std::uint32_t sign : {0U, 0x8000U})
          values.push_back(std::bit_cast<float>((high + odd + sign) << 16 | low));
  const Context host = testing::context(1);
  const Tensor tensor = from_values(host, values, {static_cast<std::int64_t>(values.size())});
  export_weights(folder.path(), write(folder.path(), {{"w", tensor}}), folder / "out", DType::bf16);
  const std::string whole(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  EXPECT_TRUE(tensors_in(folder / "out", DType::bf16).at("w").second == rounded(whole));
}

TEST(ExportRounding, RefusesNumbersThatADtypeCannotHoldAndLeavesTheTargetAsItWas) {
  const TemporaryFolder folder;
  const Context host = testing::context(1);
  const Manifest manifest = write(folder.path(), {{"small", from_values(host, std::vector<float>{1, 2, 3, 4}, {4})},
                                                  {"wide", from_values(host, std::vector<float>{1, 2, 3, 1e6F}, {4})}});
  write_text_file(folder / "out", "before");
  EXPECT_EQ(error_of([&] { export_weights(folder.path(), manifest, folder / "out", DType::f16); }),
            "'wide' has numbers that are not finite as f16; f32 keeps them as they are");
  EXPECT_EQ(read_text_file(folder / "out"), "before");
  export_weights(folder.path(), manifest, folder / "out", DType::bf16);
  EXPECT_EQ(tensors_in(folder / "out", DType::bf16).size(), 2u);
}

TEST(ExportRounding, ToldDamageFromATargetThatCannotBeWritten) {
  const TemporaryFolder folder;
  const Context host = testing::context(1);
  const Manifest manifest = write(folder.path(), {{"w", uniform_tensor(host, {1000}, 1)}});
  try {
    export_weights(folder.path(), manifest, folder / "nowhere/out");
    FAIL() << "there is no such folder";
  } catch (const UnreadableCheckpoint&) { FAIL() << "the checkpoint is whole"; } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("nowhere"), std::string::npos);
  }
  std::string text = read_text_file(folder / "model-1.safetensors");
  text.back() = static_cast<char>(text.back() ^ 4);
  write_text_file(folder / "model-1.safetensors", text);
  EXPECT_THROW(export_weights(folder.path(), manifest, folder / "out"), UnreadableCheckpoint);
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

// Their files have a hash as wholes, and their extents none.
TEST(ExportOfOldFormats, IsTheirWeightsAndNoticesAFlippedBit) {
  const TemporaryFolder folder;
  std::filesystem::copy(KEEL_SOURCE_DIR "/tests/golden/checkpoint_format_3", folder / "old");
  const Manifest manifest = read_manifest(folder / "old");
  export_weights(folder / "old", manifest, folder / "out");
  const Context host = testing::context(1);
  Masters weights;
  for (const TensorPart& part : ExtentReader(folder / "old", manifest).read("weights", host))
    weights[part.name] = {part.shape,
                          std::string(reinterpret_cast<const char*>(part.values.raw()), part.values.bytes())};
  EXPECT_TRUE(tensors_in(folder / "out", DType::f32) == weights);
  const std::string file = folder / "old/model-2-of-2.safetensors";
  std::string text = read_text_file(file);
  text.back() = static_cast<char>(text.back() ^ 1);
  write_text_file(file, text);
  EXPECT_THROW(export_weights(folder / "old", manifest, folder / "out"), UnreadableCheckpoint);
}

TEST(ExportMemory, IsAtMost64MiBWhateverTheSizeOfACheckpoint) {
  if (!kCountsResident) GTEST_SKIP() << "a sanitizer keeps memory that was given back";
  const TemporaryFolder folder;
  const Context host = testing::context(1);
  const Tensor tensor = zeros(host, {3, kExtentBytes}, DType::bf16);  // 96 MiB
  const Manifest manifest = write(folder.path(), {{"w", tensor}});
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const std::int64_t before = of_process("VmRSS");
    forget_peak();
    export_weights(folder.path(), manifest, folder / "out", dtype);
    EXPECT_LE(of_process("VmHWM") - before, 64 << 20) << dtype;
  }
}

}  // namespace
}  // namespace keel
