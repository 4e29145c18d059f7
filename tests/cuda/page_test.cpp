// Pages of a device's numbers that are read once, where they lie.

#include "keel/dist/parallel/page.h"

#include <cstring>
#include <span>
#include <vector>

#include "tests/cuda/device.h"
#include "tests/runtime/faulty_file.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(PageOfADevice, IsReadFromTheHostOrTheFileAndStaysAway) {
  if (count_devices(kTestDevice.type).count == 0) GTEST_SKIP() << count_devices(kTestDevice.type).why_none;
  const Context context = Context::create({.device = kTestDevice, .threads = 1});
  constexpr std::int64_t kNumbers = 5000, kFirst = 1500, kLast = 4200;
  std::vector<double> values;
  for (std::int64_t i = 0; i < kNumbers; ++i) values.push_back(static_cast<double>(i));
  for (const bool in_file : {false, true}) {
    Pager pager(std::make_unique<FaultyFile>(), 1, /*budget=*/3 * 4 * kNumbers, /*piece=*/1024);
    const Tensor numbers = tensor_of(context, values, {kNumbers});
    Page page(pager, numbers, "a page", 0, in_file);
    const std::int64_t moved = pager.moved_bytes();
    std::vector<float> read(static_cast<std::size_t>(kLast - kFirst));
    std::size_t bytes = 0;
    read_once(numbers.slice(0, kFirst, kLast), [&](std::span<const std::byte> piece) {
      ASSERT_LE(bytes + piece.size(), read.size() * sizeof(float));
      std::memcpy(reinterpret_cast<std::byte*>(read.data()) + bytes, piece.data(), piece.size());
      bytes += piece.size();
    });
    EXPECT_EQ(bytes, read.size() * sizeof(float));
    for (std::size_t i = 0; i < read.size(); ++i)
      ASSERT_EQ(read[i], static_cast<float>(kFirst) + static_cast<float>(i)) << (in_file ? "file" : "host");
    EXPECT_TRUE(page.is_away());
    EXPECT_FALSE(numbers.storage()->resident());
    EXPECT_EQ(pager.moved_bytes(), moved) << "nothing comes to the device";
  }
}

}  // namespace
}  // namespace keel
