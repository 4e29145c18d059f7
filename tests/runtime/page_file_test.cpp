// Pages in files: what is read is what was written, and what fails says so.

#include "keel/runtime/page_file.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <future>

#include <sys/resource.h>

#include "tests/runtime/faulty_file.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;

using Bytes = std::vector<std::byte>;

Bytes page_bytes(std::int64_t count, unsigned seed) {
  Bytes bytes(static_cast<std::size_t>(count));
  for (std::byte& each : bytes) each = static_cast<std::byte>(seed = seed * 1664525u + 1013904223u);
  return bytes;
}

const std::int64_t kSizes[] = {0, 1, 4095, 4096, PageFile::kBlock, PageFile::kBlock + 1, 3 * PageFile::kBlock - 7};

void expect_round_trip(PageFile& file) {
  std::vector<Bytes> pages;
  std::vector<PageWork> works;
  for (const std::int64_t size : kSizes) {
    pages.push_back(page_bytes(size, static_cast<unsigned>(size)));
    works.push_back(file.write(file.add("a page", size), pages.back().data()));
  }
  for (const PageWork& work : works) work.wait();
  std::vector<Bytes> read(pages.size());
  for (std::size_t i = 0; i < pages.size(); ++i) {
    read[i].resize(pages[i].size());
    works[i] = file.read(i, read[i].data());
  }
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    works[i].wait();
    EXPECT_TRUE(read[i] == pages[i]) << pages[i].size();
    sum += static_cast<std::int64_t>(pages[i].size());
  }
  EXPECT_EQ(file.traffic().read, sum);
  EXPECT_EQ(file.traffic().written, sum);
}

TEST(PageFile, GivesBackPagesOfEverySizeWhateverTheFileAsksFor) {
  for (const std::size_t alignment : {1, 512, 4096})
    for (const int threads : {1, 3}) {
      PageFile file(std::make_unique<FaultyFile>(FaultyFile::Fault{}, alignment), threads);
      expect_round_trip(file);
      EXPECT_EQ(file.buffers(), alignment == 1 ? 0 : threads * PageFile::kBlock);
    }
}

// Such memory goes to the file without a copy.
TEST(PageFile, TakesPagesThatLieAsTheFileAsks) {
  constexpr std::size_t kBytes = 2 * PageFile::kBlock + 4096;
  const auto allocated = [] {
    return std::unique_ptr<std::byte, decltype(&std::free)>(static_cast<std::byte*>(std::aligned_alloc(4096, kBytes)),
                                                            &std::free);
  };
  const Bytes numbers = page_bytes(kBytes, 7);
  const auto source = allocated(), target = allocated();
  std::copy(numbers.begin(), numbers.end(), source.get());
  PageFile file(std::make_unique<FaultyFile>(FaultyFile::Fault{}, 4096), 2);
  const std::size_t page = file.add("a page", kBytes);
  file.write(page, source.get()).wait();
  file.read(page, target.get()).wait();
  EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), target.get()));
}

TEST(PageFile, OnADiskGivesBackPagesAndLeavesNoFileBehind) {
  const TemporaryFolder folder;
  const std::string place = folder / "made/for it";
  {
    PageFile file(make_scratch_file(place), 2);
    expect_round_trip(file);
    EXPECT_TRUE(std::filesystem::is_empty(place)) << "a program that is killed would leave the file";
  }
  EXPECT_TRUE(std::filesystem::is_empty(place));
}

TEST(PageFile, WritesBlocksThatHaveNotChangedNoSecondTime) {
  PageFile file(std::make_unique<FaultyFile>(), 2);
  Bytes numbers = page_bytes(3 * PageFile::kBlock + 5, 1);
  const std::size_t page = file.add("a page", static_cast<std::int64_t>(numbers.size()));
  file.write(page, numbers.data()).wait();
  const std::int64_t before = file.traffic().written;
  file.write_changed(page, numbers.data()).wait();
  EXPECT_EQ(file.traffic().written, before);
  numbers[PageFile::kBlock] ^= std::byte{1};
  numbers.back() ^= std::byte{1};
  file.write_changed(page, numbers.data()).wait();
  EXPECT_EQ(file.traffic().written, before + PageFile::kBlock + 5);
  Bytes read(numbers.size());
  file.read(page, read.data()).wait();
  EXPECT_TRUE(read == numbers);
}

TEST(PageFile, ReadsAndWritesPartsOfAPage) {
  constexpr std::int64_t kSmall = 8192, kSize = 3 * kSmall + 100;
  PageFile file(std::make_unique<FaultyFile>(FaultyFile::Fault{}, 4096), 2);
  const std::size_t page = file.add("a page", kSize, kSmall);
  const Bytes before = page_bytes(kSize, 1), after = page_bytes(kSize, 2);
  file.write(page, before.data()).wait();
  const PageTraffic traffic = file.traffic();
  file.write(page, {kSmall, kSmall}, after.data() + kSmall).wait();
  Bytes read(kSize), expected = before;
  file.read(page, {2 * kSmall, kSmall + 100}, read.data() + 2 * kSmall).wait();
  file.read(page, {0, 2 * kSmall}, read.data()).wait();
  std::copy_n(after.begin() + kSmall, kSmall, expected.begin() + kSmall);
  EXPECT_TRUE(read == expected);
  EXPECT_EQ(file.traffic().written - traffic.written, kSmall);
  EXPECT_EQ(file.traffic().read - traffic.read, kSize);
  for (const PagePart& part : {PagePart{100, kSmall}, {0, 100}, {2 * kSmall, 2 * kSmall}})
    EXPECT_NE(error_of([&] { file.read(page, part, read.data()); }).find("of a page are not whole blocks of 8192"),
              std::string::npos);
  EXPECT_NE(error_of([&] { file.add("another", 1, 100); }), "");
}

// So that updated numbers leave while others are still to come.
TEST(PageFile, LetsReadsAndWritesTakeTurns) {
  using Call = FaultyFile::Call;
  std::promise<void> all_are_asked_for;
  std::vector<Call> order;  // of one thread
  bool holds = false;
  PageFile file(std::make_unique<FaultyFile>([&](Call call, std::int64_t) {
                  if (!holds || call == Call::reserve) return;
                  if (order.empty()) all_are_asked_for.get_future().wait();
                  order.push_back(call);
                }),
                1);
  const Bytes numbers = page_bytes(3 * PageFile::kBlock, 1);
  Bytes read(numbers.size());
  const std::size_t first = file.add("first", 3 * PageFile::kBlock), second = file.add("second", 3 * PageFile::kBlock);
  file.write(first, numbers.data()).wait();
  holds = true;
  const PageWork works[] = {file.read(first, read.data()), file.write(second, numbers.data())};
  all_are_asked_for.set_value();
  for (const PageWork& work : works) work.wait();
  EXPECT_EQ(order, (std::vector{Call::read, Call::write, Call::read, Call::write, Call::read, Call::write}));
}

TEST(PageFile, NamesPageAndPlaceOfNumbersThatTheDiskHasChanged) {
  auto owned = std::make_unique<FaultyFile>();
  FaultyFile& disk = *owned;
  PageFile file(std::move(owned), 1);
  Bytes numbers = page_bytes(2 * PageFile::kBlock, 1);
  file.add("another", 100);
  const std::size_t page = file.add("exp_avg of h.3", static_cast<std::int64_t>(numbers.size()));
  file.write(page, numbers.data()).wait();
  disk.damage(4096 + PageFile::kBlock + 17);
  const PageWork work = file.read(page, numbers.data());
  for (int again = 0; again < 2; ++again)
    EXPECT_EQ(error_of([&] { work.wait(); }),
              "the numbers of exp_avg of h.3 in a file in 'memory' have changed: 1048576 bytes from 1052672 on are not "
              "those that were written");
}

TEST(PageFile, TellsWhatFailedToWhoeverWaits) {
  using Call = FaultyFile::Call;
  const Bytes numbers = page_bytes(3 * PageFile::kBlock, 1);
  const auto size = static_cast<std::int64_t>(numbers.size());
  PageFile full(std::make_unique<FaultyFile>(fails_from(Call::reserve, 2, "No space left")), 1);
  full.add("a page", size);
  EXPECT_EQ(error_of([&] { full.add("a page", size); }), "No space left");

  PageFile file(std::make_unique<FaultyFile>([](Call call, std::int64_t number) {
                  if (call == Call::write && number == 2) throw Error("Input/output error", ErrorKind::io);
                }),
                2);
  const std::size_t page = file.add("a page", size);
  EXPECT_EQ(error_of([&] { file.write(page, numbers.data()).wait(); }), "Input/output error");
  // What was not written is noticed, and what works again works.
  Bytes read(numbers.size());
  EXPECT_NE(error_of([&] { file.read(page, read.data()).wait(); }), "");
  file.write(page, numbers.data()).wait();
  file.read(page, read.data()).wait();
  EXPECT_TRUE(read == numbers);
}

TEST(ScratchFile, ThatHasNoRoomIsAnErrorThatNamesTheFolder) {
  const TemporaryFolder folder;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 1 << 16;
  const auto file = make_scratch_file(folder.path());
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string told = error_of([&] { file->reserve(0, 1 << 17); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(told, "cannot reserve 131072 bytes from 0 on in a file without a name in '" + folder.path() +
                      "': File too large");
}

TEST(ScratchFile, ReadsNothingBehindItsEnd) {
  const TemporaryFolder folder;
  const auto file = make_scratch_file(folder.path());
  const std::unique_ptr<void, decltype(&std::free)> sectors(std::aligned_alloc(4096, 8192), &std::free);
  file->reserve(0, 4096);
  const std::string told = error_of([&] { file->read(0, {static_cast<std::byte*>(sectors.get()), 8192}); });
  EXPECT_EQ(told, "cannot read 8192 bytes from 0 on in a file without a name in '" + folder.path() +
                      "': only 4096 bytes were moved");
}

TEST(ScratchFile, InAFolderThatCannotBeIsAnError) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of([&] { make_scratch_file("/proc/keel"); }), "");
  EXPECT_EQ(error_of([] { make_scratch_file(""); }), "a file of numbers needs a folder");
}

}  // namespace
}  // namespace keel
