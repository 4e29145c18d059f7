// How a rank's file is cut: large pieces that begin at a page, each with a hash, and every byte in one of them.

#include "keel/dist/checkpoint/extent_writer.h"

#include <gtest/gtest.h>

#include "tests/dist/checkpoint/checkpoint_support.h"

namespace keel {
namespace {

using namespace testing;

TEST(ExtentWriter, CutsAFileIntoPiecesOfSixteenMebibytesThatFollowEachOtherFromAPageOn) {
  const TemporaryFolder place;
  const Context host = testing::context(1);
  const std::atomic<bool> cancelled = false;
  // A part that begins within the second piece of its tensor, and ends within the third.
  constexpr std::int64_t kPiece = kExtentBytes / 4;
  const TensorParts parts = {{"large", {4 * kPiece}, kPiece + 100, zeros(host, {kPiece + 17})},
                             {"small", {3}, 0, zeros(host, {3})},
                             {"narrow", {5}, 1, zeros(host, {4}, DType::bf16)},
                             {"elsewhere", {7}, 0, {}}};
  const Manifest written = write_section(place.path(), {"weights", "w.safetensors", parts}, cancelled);
  ASSERT_EQ(written.files.size(), 1u);
  const StoredFile& file = written.files.front();
  EXPECT_EQ(file.head % kPageBytes, 0u);
  EXPECT_EQ(file.bytes, std::filesystem::file_size(place / "w.safetensors"));
  std::vector<Extent> extents = written.extents;
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  const std::string bytes = read_text_file(place / "w.safetensors");
  std::uint64_t end = file.head;
  std::vector<std::string> pieces;
  for (const Extent& extent : extents) {
    EXPECT_EQ(extent.offset, end);
    const std::uint64_t count = written.bytes_of(extent);
    EXPECT_LE(count, static_cast<std::uint64_t>(kExtentBytes));
    EXPECT_EQ(extent.hash, xxh3(std::as_bytes(std::span(bytes).subspan(extent.offset, count))));
    pieces.push_back(concat(written.tensors[extent.tensor].name, ' ', extent.begin, ' ', extent.end));
    end += count;
  }
  EXPECT_EQ(end, file.bytes);
  std::sort(pieces.begin(), pieces.end());
  EXPECT_EQ(pieces,
            (std::vector<std::string>{concat("large ", kPiece + 100, ' ', 2 * kPiece),
                                      concat("large ", 2 * kPiece, ' ', 2 * kPiece + 117), "narrow 1 5", "small 0 3"}));
  EXPECT_EQ(file.hash, xxh3(std::as_bytes(std::span(bytes).first(file.head))));
}

}  // namespace
}  // namespace keel
