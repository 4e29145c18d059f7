// Whatever ranks want of a checkpoint, each of its bytes is read by one of them.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "keel/dist/comm/agreement.h"
#include "keel/optim/catalog.h"
#include "tests/dist/checkpoint/checkpoint_support.h"
#include "tests/dist/checkpoint/count_opens.h"

namespace keel {
namespace {

using namespace testing;

struct RanksOf {
  int count, stage;
  int group = 0;  // of shards, where there are replicas of it

  ShardedOptions options() const {
    ShardedOptions options = bf16_stage(stage);
    options.sharding.group = group;
    return options;
  }
};
void PrintTo(const RanksOf& ranks, std::ostream* out) {  // NOLINT(readability-identifier-naming)
  *out << ranks.count << " ranks, stage " << ranks.stage << ", groups of " << ranks.group;
}

using Make = std::function<std::unique_ptr<const Optimizer>()>;

void save_by(const RanksOf& writers, const std::string& path, const Make& make) {
  run_ranks(writers.count, [&](Communicator& ranks) {
    Trained rank(ranks, writers.options(), make());
    rank.train(0, 2);
    save_checkpoint(path, rank.engine, ranks, {{"step", 2}});
  });
}

// The bytes that the ranks read for it. They save what they have got.
std::int64_t load_by(const RanksOf& readers, const std::string& from, const std::string& to, const Make& make) {
  const Manifest manifest = read_manifest(from);
  std::int64_t bytes = 0;
  run_ranks(readers.count, [&](Communicator& ranks) {
    Trained rank(ranks, readers.options(), make());
    ranks.barrier();
    const std::int64_t before = bytes_read();
    ranks.barrier();
    load_checkpoint(from, manifest, rank.engine, ranks);
    ranks.barrier();
    if (ranks.rank() == 0) bytes = bytes_read() - before;
    ranks.barrier();
    save_checkpoint(to, rank.engine, ranks, {{"step", 2}});
  });
  return bytes;
}

constexpr RanksOf kWhoReads[] = {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {2, 1}, {3, 1},    {4, 1},   {2, 2},
                                 {3, 2}, {4, 2}, {2, 3}, {3, 3}, {4, 3}, {4, 3, 2}, {8, 1, 4}};

void expect_each_byte_once(const Make& make) {
  for (const RanksOf& writers : {RanksOf{1, 0}, RanksOf{4, 3}, RanksOf{3, 1}}) {
    const TemporaryFolder place;
    save_by(writers, place / "c", make);
    const Contents first = contents_of(place / "c");
    const auto bytes = static_cast<std::int64_t>(read_manifest(place / "c").bytes());
    for (const RanksOf& readers : kWhoReads) {
      EXPECT_EQ(load_by(readers, place / "c", place / "again", make), bytes)
          << ::testing::PrintToString(writers) << " -> " << ::testing::PrintToString(readers);
      EXPECT_TRUE(contents_of(place / "again") == first)
          << ::testing::PrintToString(writers) << " -> " << ::testing::PrintToString(readers);
    }
  }
}

TEST(LoadOnce, ReadsEachByteByOneRankWhateverTheRanksWant) {
  expect_each_byte_once([] { return make_adamw({}); });
}

// Rows and columns of averages, which several ranks have written.
TEST(LoadOnce, ReadsNumbersThatSeveralRanksHaveWrittenOnceEach) {
  expect_each_byte_once([] { return make_optimizer(find_optimizer("Adafactor"), {}, 1); });
}

// Of safetensors files of other programs, which have no hashes: nothing but what is wanted.
TEST(LoadOnce, ReadsFilesOfOtherProgramsOnceAsWell) {
  const TemporaryFolder place;
  save_by({2, 2}, place / "c", [] { return make_adamw({}); });
  const std::vector<std::string> files = {"model-1-of-2.safetensors", "model-2-of-2.safetensors"};
  std::int64_t numbers = 0;
  const Manifest manifest = describe_files(place / "c", "weights", files);
  for (const Extent& extent : manifest.extents) numbers += static_cast<std::int64_t>(manifest.bytes_of(extent));
  for (const RanksOf& readers : kWhoReads)
    run_ranks(readers.count, [&](Communicator& ranks) {
      Trained rank(ranks, readers.options());
      TensorParts parts = rank.engine.weights();
      const ExtentReader reader(place / "c", manifest);
      ranks.barrier();
      const std::int64_t before = bytes_read();
      ranks.barrier();
      reader.fill_among("weights", parts, ranks);
      ranks.barrier();
      EXPECT_EQ(bytes_read() - before, numbers) << ::testing::PrintToString(readers);
      ranks.barrier();
    });
}

// All ranks take part to the end, and all say it.
TEST(LoadOnce, TellsAllRanksOfDamageThatOneOfThemHasSeen) {
  const TemporaryFolder place;
  save_by({1, 0}, place / "c", [] { return make_adamw({}); });
  const Manifest manifest = read_manifest(place / "c");
  const std::string path = place / "c/optimizer.safetensors", whole = read_text_file(path);
  for (const Extent& extent : manifest.extents) {
    if (manifest.files[extent.file].name != "optimizer.safetensors") continue;
    std::string text = whole;
    text[extent.offset] = static_cast<char>(text[extent.offset] ^ 2);
    write_text_file(path, text);
    for (const RanksOf& readers : {RanksOf{3, 0}, RanksOf{4, 2}}) {
      std::atomic<int> told = 0;
      run_ranks(readers.count, [&](Communicator& ranks) {
        Trained rank(ranks, readers.options());
        try {
          load_checkpoint(place / "c", manifest, rank.engine, ranks);
        } catch (const AgreedError& error) {
          told += std::string(error.what()).find(concat("'", path, "' has changed since it was written")) !=
                  std::string::npos;
        }
        // The next one is whole, or so they are told.
        ranks.barrier();
        if (ranks.rank() == 0) write_text_file(path, whole);
        ranks.barrier();
        load_checkpoint(place / "c", manifest, rank.engine, ranks);
        ranks.barrier();
        if (ranks.rank() == 0) write_text_file(path, text);
      });
      EXPECT_EQ(told, readers.count);
    }
  }
}

}  // namespace
}  // namespace keel
