// Pages that come and go, whole and in pieces.

#include "keel/dist/parallel/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "keel/dist/parallel/page_piece.h"
#include "keel/kernels/elementwise.h"
#include "tests/error_of.h"
#include "tests/runtime/faulty_file.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;
using Call = FaultyFile::Call;

constexpr std::int64_t kNumbers = 5000, kPiece = 2048;  // of a page
constexpr std::int64_t kBytes = 4 * kNumbers;

struct PageBench {
  explicit PageBench(std::int64_t budget = 3 * kBytes, FaultyFile::Fault fault = {})
      : pager(std::make_unique<FaultyFile>(std::move(fault)), 1, budget, kPiece) {}
  // Numbers from `first` on.
  Page& add(double first, std::size_t unit) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < kNumbers; ++i) values.push_back(first + static_cast<double>(i));
    numbers.push_back(tensor_of(context, values, {kNumbers}));
    pages.push_back(std::make_unique<Page>(pager, numbers.back(), "a page", unit));
    return *pages.back();
  }
  std::int64_t resident() const {
    return std::ranges::count_if(numbers, [](const Tensor& each) { return each.storage()->resident(); });
  }
  double first_of(std::size_t page) const { return doubles(numbers[page])[0]; }

  Context context = testing::context(1);
  Pager pager;
  std::vector<Tensor> numbers;
  std::vector<std::unique_ptr<Page>> pages;
};

TEST(Page, LeavesMemoryAndComesBackWithWhatWasWritten) {
  PageBench bench;
  Page& page = bench.add(5, 0);
  EXPECT_TRUE(page.is_away());
  EXPECT_EQ(bench.resident(), 0);
  page.fetch();
  EXPECT_TRUE(page.wait());
  EXPECT_EQ(bench.first_of(0), 5);
  *bench.numbers[0].data<float>() = 7;
  page.store();
  page.settle();
  EXPECT_EQ(bench.resident(), 0);
  EXPECT_EQ(bench.pager.file_traffic().written, 2 * kBytes);
  page.fetch();
  page.wait();
  *bench.numbers[0].data<float>() = 9;
  page.drop();  // its user has not said that it changed
  EXPECT_EQ(bench.first_of(0), 7);
  page.make();
  page.drop();
  EXPECT_EQ(bench.first_of(0), 7);
}

TEST(Page, ThatIsReleasedKeepsWhatOperationsHaveWritten) {
  PageBench bench;
  Page& page = bench.add(5, 0);
  const auto written = [&] { return bench.pager.file_traffic().written; };
  for (const bool changes : {false, true}) {
    page.fetch();
    page.wait();
    if (changes) kernels::fill(bench.numbers[0], 8);
    const std::int64_t before = written();
    page.release();
    EXPECT_TRUE(page.is_away());
    EXPECT_EQ(written() - before, changes ? kBytes : 0);
  }
  EXPECT_EQ(bench.first_of(0), 8);
  page.drop();
  page.make();  // its numbers are none yet
  page.release();
  EXPECT_EQ(bench.first_of(0), 8);
  page.fetch();
  page.wait();
  kernels::fill(bench.numbers[0], 9);
  page.store();
  page.settle();
  const std::int64_t before = written();
  page.fetch();
  page.release();
  EXPECT_EQ(written(), before);
  EXPECT_EQ(bench.first_of(0), 9);
}

TEST(Page, ThatSomebodyTouchesIsBorrowedAndKeepsWhatHeWrites) {
  PageBench bench;
  for (std::size_t unit = 0; unit < 5; ++unit) bench.add(10.0 * static_cast<double>(unit), unit);
  for (std::size_t unit = 0; unit < 5; ++unit) {
    EXPECT_EQ(bench.first_of(unit), 10.0 * static_cast<double>(unit));
    *bench.numbers[unit].data<float>() += 1;
    EXPECT_LE(bench.resident(), 3) << "the budget";
  }
  EXPECT_FALSE(bench.numbers[0].storage()->resident());
  EXPECT_TRUE(bench.numbers[4].storage()->resident());
  const std::int64_t before = bench.pager.file_traffic().written;
  bench.pager.take_back();
  EXPECT_EQ(bench.resident(), 0);
  EXPECT_EQ(bench.pager.file_traffic().written, before + 3 * 4 * kPiece) << "the blocks that have changed";
  for (std::size_t unit = 0; unit < 5; ++unit) EXPECT_EQ(bench.first_of(unit), 10.0 * static_cast<double>(unit) + 1);
  const std::int64_t changed = bench.pager.file_traffic().written;
  bench.pager.take_back();
  EXPECT_EQ(bench.pager.file_traffic().written, changed) << "what was only read is not written";
}

TEST(Page, OfAUnitIsThereWithTheOthersOfItsUnitAndOfTheOneBefore) {
  PageBench bench(kBytes);  // for one of them
  for (std::size_t page = 0; page < 6; ++page) bench.add(static_cast<double>(page), page / 2);
  for (std::size_t page = 0; page < 6; ++page) bench.first_of(page);
  EXPECT_EQ(bench.resident(), 4) << "an operation may read one unit and write another";
  for (const std::size_t page : {2, 3, 4, 5}) EXPECT_TRUE(bench.numbers[page].storage()->resident());
}

TEST(Page, LeavesBehindTheOneBefore) {
  PageBench bench;
  for (std::size_t unit = 0; unit < 3; ++unit) bench.add(0, unit);
  for (const auto& page : bench.pages) {
    page->wait();
    bench.pager.leave(*page);
    EXPECT_EQ(bench.resident(), 1);
  }
  bench.pager.settle();
  EXPECT_EQ(bench.resident(), 0);
}

TEST(Page, ThatCannotBeReadOrWrittenLosesNothingWithoutAWord) {
  std::atomic<Call> failing = Call::reserve;  // none
  PageBench bench(3 * kBytes, [&](Call call, std::int64_t) {
    if (call == failing && call != Call::reserve) throw Error("Input/output error", ErrorKind::io);
  });
  Page& page = bench.add(5, 0);
  failing = Call::read;
  EXPECT_EQ(error_of([&] { bench.first_of(0); }), "Input/output error");
  EXPECT_TRUE(page.is_away()) << "whoever touches it has no numbers";
  EXPECT_FALSE(page.wait());
  EXPECT_EQ(bench.resident(), 1) << "a pass goes on";
  page.drop();
  EXPECT_EQ(error_of([&] { bench.pager.throw_noted(); }), "Input/output error");
  EXPECT_EQ(error_of([&] { bench.pager.throw_noted(); }), "") << "once";

  failing = Call::write;
  page.wait();
  failing = Call::reserve;
  page.wait();
  *bench.numbers[0].data<float>() = 8;
  failing = Call::write;
  page.store();
  page.settle();
  EXPECT_EQ(error_of([&] { bench.pager.throw_noted(); }), "Input/output error");
  EXPECT_EQ(bench.first_of(0), 8) << "what is not written stays in memory";
  failing = Call::reserve;
  page.drop();
  EXPECT_EQ(bench.first_of(0), 8) << "and is written when the file works again";
}

TEST(Page, OfWhichSomebodyReadsARangeStaysAway) {
  for (const std::int64_t budget : {3 * kBytes, 4 * 4 * kPiece, 4 * kPiece}) {
    PageBench bench(budget);
    bench.add(5, 0);
    const std::int64_t at_once = bench.pager.read_at_once(4 * kPiece);
    for (const auto& [begin, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {0, kNumbers}, {1, 2}, {kPiece - 1, kPiece + 1}, {kPiece, 2 * kPiece}, {3000, kNumbers}, {7, 7}}) {
      std::vector<double> expected(static_cast<std::size_t>(end - begin)), found;
      std::iota(expected.begin(), expected.end(), 5.0 + static_cast<double>(begin));
      bench.context.allocator().reset_peaks();
      read_once(bench.numbers[0].slice(0, begin, end), [&](std::span<const std::byte> piece) {
        EXPECT_LE(static_cast<std::int64_t>(piece.size()), at_once);
        std::vector<float> numbers(piece.size() / sizeof(float));
        std::memcpy(numbers.data(), piece.data(), piece.size());
        found.insert(found.end(), numbers.begin(), numbers.end());
      });
      EXPECT_EQ(found, expected) << begin << " to " << end << ", budget " << budget;
      EXPECT_LE(bench.context.memory()[Purpose::bucket].peak, static_cast<std::size_t>(at_once));
      EXPECT_EQ(bench.resident(), 0);
    }
    // What somebody has written since is read from memory.
    *bench.numbers[0].data<float>() = 7;
    float first = 0;
    read_once(bench.numbers[0].slice(0, 0, 1),
              [&](std::span<const std::byte> piece) { std::memcpy(&first, piece.data(), sizeof(first)); });
    EXPECT_EQ(first, 7);
  }
}

TEST(Page, OfWhichARangeCannotBeReadSaysSoToItsReader) {
  PageBench bench(3 * kBytes, fails_from(Call::read, 1, "Input/output error"));
  bench.add(5, 0);
  EXPECT_EQ(error_of([&] { read_once(bench.numbers[0], [](std::span<const std::byte>) {}); }), "Input/output error");
  EXPECT_EQ(error_of([&] { bench.pager.throw_noted(); }), "");
  EXPECT_EQ(bench.resident(), 0);
}

TEST(PagePiece, IsReadAndWrittenWhileItsPageIsAway) {
  PageBench bench;
  Page& page = bench.add(5, 0);
  const std::int64_t before = bench.pager.file_traffic().written;
  PagePiece middle(page, {kPiece, 2 * kPiece}), end(page, {2 * kPiece, kNumbers});
  EXPECT_TRUE(middle.wait());
  EXPECT_TRUE(end.wait());
  EXPECT_EQ(bench.resident(), 0);
  EXPECT_EQ(doubles(middle.numbers())[0], 5 + kPiece);
  EXPECT_EQ(end.numbers().numel(), kNumbers - 2 * kPiece);
  *middle.numbers().data<float>() = -1;
  middle.store();
  EXPECT_TRUE(middle.wait());
  EXPECT_EQ(bench.pager.file_traffic().written - before, 4 * kPiece) << "no more than the piece";
  EXPECT_EQ(bench.pager.file_traffic().read, 4 * (kNumbers - kPiece));
  std::vector<double> expected(kNumbers);
  std::iota(expected.begin(), expected.end(), 5.0);
  expected[kPiece] = -1;
  EXPECT_EQ(doubles(bench.numbers[0]), expected);
  // A page that somebody has changed goes to its file first.
  *bench.numbers[0].data<float>() = 7;
  PagePiece begin(page, {0, kPiece});
  EXPECT_TRUE(begin.wait());
  EXPECT_EQ(doubles(begin.numbers())[0], 7);
}

TEST(PagePiece, ThatCannotBeReadOrWrittenSaysSo) {
  std::atomic<Call> failing = Call::reserve;  // none
  PageBench bench(3 * kBytes, [&](Call call, std::int64_t) {
    if (call == failing && call != Call::reserve) throw Error("Input/output error", ErrorKind::io);
  });
  Page& page = bench.add(5, 0);
  failing = Call::read;
  EXPECT_FALSE(PagePiece(page, {0, kPiece}).wait());
  EXPECT_EQ(error_of([&] { bench.pager.throw_noted(); }), "Input/output error");
  failing = Call::reserve;
  PagePiece piece(page, {0, kPiece});
  EXPECT_TRUE(piece.wait());
  failing = Call::write;
  piece.store();
  EXPECT_FALSE(piece.wait());
  EXPECT_EQ(error_of([&] { bench.pager.throw_noted(); }), "Input/output error");
}

}  // namespace
}  // namespace keel
