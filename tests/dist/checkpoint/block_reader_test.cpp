// Blocks of tensors (rows, columns, any ranges) out of files: the numbers of a slice, and no more bytes than they need.

#include <gtest/gtest.h>

#include <random>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/dist/checkpoint/extent_writer.h"
#include "keel/kernels/elementwise.h"
#include "tests/error_of.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace testing;

const Context& host() {
  static const Context context = testing::context(1);
  return context;
}

Tensor whole_tensor(const Dims& shape, DType dtype, std::uint64_t seed = 1) {
  return uniform_tensor(host(), shape, seed, dtype, 0, 200);
}

// Names "model-R.safetensors" for each of `ranks` ranks, which hold a part of every tensor each.
Manifest write_in_parts(const std::string& folder, const std::vector<NamedTensor>& tensors, int ranks) {
  ManifestJoin join;
  for (int rank = 0; rank < ranks; ++rank) {
    Section section{"weights", concat("model-", rank, ".safetensors"), {}, {}};
    for (const auto& [name, values] : tensors) {
      const std::int64_t begin = values.numel() * rank / ranks, end = values.numel() * (rank + 1) / ranks;
      section.parts.push_back({name, values.shape(), begin, values.flatten().slice(0, begin, end)});
    }
    join.add(write_section(folder, section, false));
  }
  return std::move(join).finish();
}

// Extents of files that have no hashes, as those of other programs.
Manifest described(const std::string& folder, const Manifest& written) {
  std::vector<std::string> names;
  for (const StoredFile& file : written.files) names.push_back(file.name);
  return describe_files(folder, "weights", names);
}

struct Range {
  std::int64_t begin, count;
};

TensorBlock block_of(const std::string& name, const Dims& shape, const std::vector<Range>& ranges, DType dtype) {
  TensorBlock block{name, shape, {}};
  Dims counts;
  for (const auto& [begin, count] : ranges) {
    block.begin.push_back(begin);
    counts.push_back(count);
  }
  block.values = zeros(host(), counts, dtype);
  return block;
}

// The same out of the whole, element by element.
std::vector<double> sliced(const Tensor& whole, const std::vector<Range>& ranges, DType dtype) {
  Tensor view = whole;
  for (std::size_t d = 0; d < ranges.size(); ++d)
    view = view.slice(static_cast<int>(d), ranges[d].begin, ranges[d].begin + ranges[d].count);
  const Tensor target = zeros(host(), view.shape(), dtype);
  kernels::copy_into(target, view);
  return doubles(target);
}

struct Case {
  Dims shape;
  std::vector<Range> ranges;
};

Case random_case(std::mt19937& random) {
  const auto up_to = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(0, most)(random); };
  Case made;
  for (std::int64_t d = up_to(4); d > 0; --d) {
    const std::int64_t extent = up_to(9) == 0 ? 0 : 1 + up_to(11), begin = up_to(extent);
    made.shape.push_back(extent);
    if (up_to(2) == 0) made.ranges.push_back({0, extent});
    else made.ranges.push_back({begin, up_to(extent - begin)});
  }
  return made;
}

TEST(BlockReader, GivesWhatASliceOfTheWholeGivesForAnyShapeRangesDtypesAndCutIntoFiles) {
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    const TemporaryFolder folder;
    const DType dtype = kAllTypes[static_cast<std::size_t>(i) % std::size(kAllTypes)];
    std::vector<NamedTensor> tensors;
    std::vector<Case> cases;
    for (int t = 0; t < 5; ++t) {
      cases.push_back(random_case(random));
      tensors.emplace_back(concat("t", t), whole_tensor(cases.back().shape, dtype, random()));
    }
    // What nothing lies in is in no file of a rank.
    for (std::size_t t = tensors.size(); t-- > 0;)
      if (tensors[t].second.numel() == 0) {
        tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(t));
        cases.erase(cases.begin() + static_cast<std::ptrdiff_t>(t));
      }
    if (tensors.empty()) continue;
    const Manifest hashed = write_in_parts(folder.path(), tensors, 1 + i % 3);
    const Manifest plain = described(folder.path(), hashed);
    for (const Manifest* manifest : {&hashed, &plain})
      for (const DType wanted : {dtype, DType::f32}) {
        std::vector<TensorBlock> blocks;
        for (std::size_t t = 0; t < tensors.size(); ++t)
          blocks.push_back(block_of(tensors[t].first, cases[t].shape, cases[t].ranges, wanted));
        ExtentReader(folder.path(), *manifest).fill("weights", blocks);
        for (std::size_t t = 0; t < tensors.size(); ++t)
          EXPECT_EQ(doubles(blocks[t].values), sliced(tensors[t].second, cases[t].ranges, wanted))
              << dtype << " as " << wanted << ' ' << cases[t].shape << " of " << 1 + i % 3;
      }
  }
}

// A file as other programs write it: the numbers lie at an odd place, and some tensors have none.
TEST(BlockReader, ReadsFilesWhoseNumbersAreNotAlignedAndTensorsWithoutElements) {
  const TemporaryFolder folder;
  const Tensor whole = whole_tensor({6, 10}, DType::f32);
  std::string header = R"({"empty":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},)"
                       R"("w":{"dtype":"F32","shape":[6,10],"data_offsets":[0,240]}})";
  while (header.size() % 8 != 3) header += ' ';
  std::string text(8, '\0');
  for (int i = 0; i < 8; ++i) text[static_cast<std::size_t>(i)] = static_cast<char>(header.size() >> 8 * i);
  text += header;
  text.append(reinterpret_cast<const char*>(whole.raw()), whole.bytes());
  write_text_file(folder / "f.safetensors", text);
  const std::vector<std::string> names = {"f.safetensors"};
  const Manifest manifest = describe_files(folder.path(), "weights", names);
  const std::vector<Range> ranges = {{1, 4}, {3, 5}};
  for (const DType dtype : kFloats) {
    const std::vector<TensorBlock> blocks = {block_of("w", {6, 10}, ranges, dtype),
                                             block_of("empty", {0, 4}, {{0, 0}, {1, 2}}, dtype)};
    ExtentReader(folder.path(), manifest).fill("weights", blocks);
    EXPECT_EQ(doubles(blocks[0].values), sliced(whole, ranges, dtype));
  }
}

// Tensors of several extents: 16 MiB each.
class LargeBlocks : public ::testing::Test {
 protected:
  static constexpr std::int64_t kRows = 3000, kColumns = 3000;  // 36 MB: two extents and a part of a third
  LargeBlocks()
      : whole_(whole_tensor({kRows, kColumns}, DType::f32)),
        hashed_(write_in_parts(folder_.path(), {{"w", whole_}}, 1)),
        plain_(described(folder_.path(), hashed_)) {}

  ReadCount read(const Manifest& manifest, const std::vector<Range>& ranges) {
    const TensorBlock block = block_of("w", whole_.shape(), ranges, DType::f32);
    const ReadCount count = ExtentReader(folder_.path(), manifest).fill("weights", {&block, 1});
    Tensor slice = whole_;
    for (int d = 0; d < 2; ++d) {
      const Range& range = ranges[static_cast<std::size_t>(d)];
      slice = slice.slice(d, range.begin, range.begin + range.count);
    }
    EXPECT_TRUE(slice.to_vector<float>() == block.values.to_vector<float>());
    return count;
  }

  TemporaryFolder folder_;
  Tensor whole_;
  Manifest hashed_, plain_;
};

TEST_F(LargeBlocks, RowsTakeAtMostOneExtentMoreThanTheyFillAndWithoutHashesNoByteMore) {
  std::mt19937 random(3);
  for (int i = 0; i < 6; ++i) {
    const std::int64_t begin = static_cast<std::int64_t>(random() % kRows);
    const std::int64_t count = 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(kRows - begin));
    const auto needed = static_cast<std::uint64_t>(count * kColumns) * sizeof(float);
    const std::vector<Range> ranges = {{begin, count}, {0, kColumns}};
    EXPECT_EQ(read(plain_, ranges).bytes, needed);
    const ReadCount hashed = read(hashed_, ranges);
    EXPECT_LE(hashed.pieces, (needed + kExtentBytes - 1) / kExtentBytes + 1);
    EXPECT_LE(hashed.bytes, hashed.pieces * kExtentBytes);
  }
  EXPECT_EQ(read(hashed_, {{0, 1}, {0, kColumns}}).pieces, 1u);
}

TEST_F(LargeBlocks, ColumnsAreReadInLargePiecesWhereTheyLieClose) {
  const ReadCount count = read(plain_, {{0, kRows}, {1000, 8}});  // 12,000 bytes from row to row
  EXPECT_LE(count.bytes, static_cast<std::uint64_t>(kRows * kColumns) * sizeof(float));
  EXPECT_EQ(count.pieces, plain_.extents.size());
  EXPECT_EQ(read(hashed_, {{0, kRows}, {1000, 8}}).bytes, whole_.bytes());
  EXPECT_EQ(read(plain_, {{5, 2}, {7, 1}}).bytes, static_cast<std::uint64_t>(kColumns + 1) * sizeof(float));
}

TEST(BlockReader, JumpsOverWideGaps) {
  const TemporaryFolder folder;
  constexpr std::int64_t kWide = 100'000;
  const Tensor whole = whole_tensor({20, kWide}, DType::f32);
  const Manifest plain = described(folder.path(), write_in_parts(folder.path(), {{"w", whole}}, 1));
  const std::vector<Range> ranges = {{2, 15}, {kWide - 10, 10}};
  const TensorBlock block = block_of("w", whole.shape(), ranges, DType::f32);
  const ReadCount count = ExtentReader(folder.path(), plain).fill("weights", {&block, 1});
  EXPECT_EQ(count.bytes, 15 * 10 * sizeof(float));
  EXPECT_EQ(count.pieces, 15u);
  EXPECT_EQ(doubles(block.values), sliced(whole, ranges, DType::f32));
}

TEST(BlockReader, OfAPartOfTensorsReadsItsOwnBytesAlone) {
  const TemporaryFolder folder;
  const Tensor whole = whole_tensor({1000, 1000}, DType::f32);
  const Manifest plain = described(folder.path(), write_in_parts(folder.path(), {{"w", whole}}, 2));
  const TensorPart part{"w", whole.shape(), 400'000, zeros(host(), {200'000}, DType::f32)};
  EXPECT_EQ(ExtentReader(folder.path(), plain).fill("weights", TensorParts{part}).bytes, 800'000u);
  EXPECT_EQ(doubles(part.values), doubles(whole.flatten().slice(0, 400'000, 600'000)));
}

TEST(BlockReader, NoticesAFlippedBitInAnExtentThatABlockTouches) {
  const TemporaryFolder folder;
  const Tensor whole = whole_tensor({100, 100}, DType::f32);
  const Manifest manifest = write_in_parts(folder.path(), {{"w", whole}}, 2);
  const TensorBlock first = block_of("w", whole.shape(), {{0, 10}, {0, 3}}, DType::f32),
                    last = block_of("w", whole.shape(), {{90, 10}, {0, 3}}, DType::f32);
  std::string text = read_text_file(folder / "model-1.safetensors");
  text.back() = static_cast<char>(text.back() ^ 1);
  write_text_file(folder / "model-1.safetensors", text);
  const ExtentReader reader(folder.path(), manifest);
  EXPECT_EQ(error_of([&] { reader.fill("weights", {&first, 1}); }), "");
  EXPECT_EQ(error_of([&] {
              reader.fill("weights", {&last, 1});
            }),
            concat("'", folder / "model-1.safetensors",
                   "' has changed since it was written: the hash of elements 5000 to 10000 of w differs"));
}

TEST(BlockReader, RefusesWhatIsNoPartOfATensor) {
  const TemporaryFolder folder;
  const Manifest manifest = write_in_parts(folder.path(), {{"w", whole_tensor({4, 6}, DType::f32)}}, 1);
  const auto refusal = [&](const TensorBlock& block) {
    return error_of([&] { ExtentReader(folder.path(), manifest).fill("weights", {&block, 1}); });
  };
  EXPECT_EQ(refusal(block_of("v", {4, 6}, {{0, 1}, {0, 1}}, DType::f32)),
            concat("'", folder.path(), "' has no weights tensor v"));
  EXPECT_EQ(refusal(block_of("w", {6, 4}, {{0, 1}, {0, 1}}, DType::f32)),
            concat("'", folder.path(), "' has w (4, 6) instead of (6, 4)"));
  for (const std::vector<Range>& ranges : std::vector<std::vector<Range>>{
           {{0, 5}, {0, 1}}, {{3, 2}, {0, 1}}, {{-1, 1}, {0, 1}}, {{0, 1}, {6, 1}}, {{0, 1}}, {{0, 1}, {7, 0}}})
    EXPECT_NE(refusal(block_of("w", {4, 6}, ranges, DType::f32)).find(" is no part of w (4, 6)"), std::string::npos);
}

}  // namespace
}  // namespace keel
