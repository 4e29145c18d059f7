// A checkpoint of very many ranks: each opens a few files, whatever their number.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "keel/dist/checkpoint/rank_parts.h"
#include "keel/dist/comm/schedule.h"
#include "tests/dist/checkpoint/checkpoint_support.h"
#include "tests/dist/checkpoint/count_opens.h"

namespace keel {
namespace {

using namespace testing;

constexpr int kRanks = 1024, kReaders = 1000, kTensors = 12;
const Dims kShape = {kRanks, 7};

// Calls f(0) to f(count - 1) by so many threads that disks flush several files at a time.
void for_each_rank(int count, const std::function<void(int, const Context&)>& f) {
  std::atomic<int> next = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 32; ++t)
    threads.emplace_back([&] {
      const Context context = testing::context(1);
      for (int r = next++; r < count; r = next++) f(r, context);
    });
  for (std::thread& thread : threads) thread.join();
}

// Number i of a tensor of a section.
float number(std::size_t section, std::int64_t tensor, std::int64_t i) {
  return static_cast<float>(section + 2 * static_cast<std::size_t>(tensor)) + static_cast<float>(i) / 65536;
}

// What rank r of n has of each tensor, as one that shards each of them.
TensorParts parts_of(int r, int n, const Context& context) {
  TensorParts parts;
  const Span span = part({0, product(kShape)}, n, r);
  for (int t = 0; t < kTensors; ++t)
    parts.push_back({concat("t", t), kShape, span.begin, zeros(context, {span.count()})});
  return parts;
}

const std::string kSections[] = {"weights", "optimizer"};

TEST(ManyRanks, WriteAndReadACheckpointWithAFewOpensEach) {
  const TemporaryFolder place;
  const std::atomic<bool> cancelled = false;
  std::int64_t before = opened_files();
  for_each_rank(kRanks, [&](int r, const Context& context) {
    ManifestJoin join;
    for (std::size_t s = 0; s < 2; ++s) {
      const TensorParts parts = parts_of(r, kRanks, context);
      for (int t = 0; t < kTensors; ++t) {
        const TensorPart& each = parts[static_cast<std::size_t>(t)];
        for (std::int64_t i = 0; i < each.numel(); ++i)
          each.values.slice(0, i, i + 1).data<float>()[0] = number(s, t, each.begin + i);
      }
      join.add(
          write_section(place.path(), {kSections[s], concat(kSections[s], '-', r, ".safetensors"), parts}, cancelled));
    }
    write_part(place.path(), r, std::move(join).part());
  });
  Manifest manifest = join_parts(place.path(), kRanks);
  write_text_file(place / "manifest.json", manifest_text(manifest));
  const std::int64_t written = opened_files() - before;
  EXPECT_EQ(manifest.files.size(), 2u * kRanks);
  EXPECT_EQ(manifest.extents.size(), 2u * kRanks * kTensors);
  EXPECT_GE(written, 3 * kRanks) << "opens are counted";
  EXPECT_LE(written, 8 * kRanks);

  before = opened_files();
  manifest = read_manifest(place.path());
  std::atomic<std::int64_t> wrong = 0;
  for_each_rank(kReaders, [&](int r, const Context& context) {
    const ExtentReader reader(place.path(), manifest);
    for (std::size_t s = 0; s < 2; ++s) {
      const TensorParts parts = parts_of(r, kReaders, context);
      reader.fill(kSections[s], parts);
      for (int t = 0; t < kTensors; ++t) {
        const TensorPart& each = parts[static_cast<std::size_t>(t)];
        const std::vector<float> values = each.values.to_vector<float>();
        for (std::int64_t i = 0; i < each.numel(); ++i)
          wrong += values[static_cast<std::size_t>(i)] != number(s, t, each.begin + i);
      }
    }
  });
  EXPECT_EQ(wrong, 0);
  const std::int64_t read = opened_files() - before;
  EXPECT_GE(read, 2 * kReaders);
  EXPECT_LE(read, 6 * kReaders) << "a part lies in three files of each section at most";
}

// Opens of a save and of a load by n ranks.
std::pair<std::int64_t, std::int64_t> opens_of(int n) {
  const TemporaryFolder place;
  std::int64_t counts[3] = {};
  run_ranks(n, [&](Communicator& ranks) {
    Trained rank(ranks, stage(3));
    const auto count = [&](int i) {
      ranks.barrier();
      if (ranks.rank() == 0) counts[i] = opened_files();
      ranks.barrier();
    };
    count(0);
    save_checkpoint(place / "c", rank.engine, ranks, {{"step", 1}});
    count(1);
    const Manifest manifest = broadcast_manifest(ranks.rank() == 0 ? read_manifest(place / "c") : Manifest(), ranks);
    load_checkpoint(place / "c", manifest, rank.engine, ranks);
    count(2);
  });
  return {counts[1] - counts[0], counts[2] - counts[1]};
}

TEST(ManyRanks, OpenAsManyFilesEachAsFewRanksDo) {
  const auto few = opens_of(8), many = opens_of(64);
  EXPECT_GT(few.second, 8);
  EXPECT_LE(many.first, 8 * few.first);
  EXPECT_LE(many.second, 8 * few.second);
}

}  // namespace
}  // namespace keel
