// A file of 2 GB, read with little memory.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "keel/data/jsonl.h"
#include "keel/data/sampler.h"
#include "tests/dist/checkpoint/resident.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

constexpr std::int64_t kFileBytes = std::int64_t{2} << 30, kMostResident = 200'000'000;

std::string line_of(std::int64_t i) {
  return concat("{\"id\": ", i, ", \"text\": \"", std::string(static_cast<std::size_t>(700 + i % 601), 'x'), "\"}\n");
}

struct HugeFile {
  std::int64_t lines = 0;
  std::int64_t cut = 0;  // the one that is truncated, from 0 on
};

// Lines of 700 to 1,300 bytes, of which the middle one ends within its text.
HugeFile write_lines(const std::string& path) {
  HugeFile made;
  std::ofstream out(path, std::ios::binary);
  std::string piece;
  for (std::int64_t bytes = 0; bytes < kFileBytes; ++made.lines) {
    std::string line = line_of(made.lines);
    if (made.cut == 0 && bytes > kFileBytes / 2) {
      made.cut = made.lines;
      line = line.substr(0, 100) + '\n';
    }
    bytes += std::ssize(line);
    piece += line;
    if (piece.size() < 1 << 20 && bytes < kFileBytes) continue;
    out << piece;
    piece.clear();
  }
  out.close();
  KEEL_CHECK(out.good(), "cannot write '", path, "'");
  return made;
}

// Reads every line in order, but for the one that is cut, and some at random places. Ids are the lines' numbers.
std::string read_lines(const std::string& path, const HugeFile& file) {
  constexpr std::int64_t kAtOnce = 4096;
  const DatasetPtr data = open_jsonl(path);
  KEEL_CHECK(data->size() == file.lines, "there are ", file.lines, " lines, not ", data->size());
  std::int64_t read = 0;
  const auto take = [&](const std::vector<std::int64_t>& numbers) {
    const std::vector<Example> examples = data->examples(numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      KEEL_CHECK(examples[i].integer("id") == numbers[i] && examples[i].text("text").back() == 'x', "line ",
                 numbers[i]);
    read += std::ssize(examples);
  };
  for (std::int64_t begin = 0; begin < file.lines; begin += kAtOnce) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(std::min(kAtOnce, file.lines - begin)));
    std::iota(numbers.begin(), numbers.end(), begin);
    std::erase(numbers, file.cut);
    take(numbers);
  }
  KEEL_CHECK(read == file.lines - 1, read, " lines were read in order");
  const SamplerPtr order = shuffled(file.lines, {.rows = 64, .seed = 1});
  for (std::int64_t step = 0; step < 200; ++step) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t row = 0; row < 64; ++row) numbers.push_back(order->example(step, row));
    std::erase(numbers, file.cut);
    take(numbers);
  }
  return error_of([&] { (void)data->example(file.cut); });
}

TEST(SlowHugeFile, IsReadWithLittleMemoryAndItsBadLineIsNamedByNumber) {
  if (!testing::kCountsResident) GTEST_SKIP() << "a sanitizer keeps memory that was given back";
  const TemporaryFolder place;
  const std::string path = place / "huge.jsonl", told = place / "told";
  const HugeFile file = write_lines(path);
  ASSERT_GE(std::filesystem::file_size(path), static_cast<std::uintmax_t>(kFileBytes));
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said, failure = error_of([&] { said = read_lines(path, file); });
    std::ofstream(told) << testing::of_process("VmHWM") << '\n' << failure << '\n' << said << '\n';
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  std::ifstream lines(told);
  std::int64_t peak = 0;
  std::string failure, said;
  lines >> peak;
  lines.ignore();
  std::getline(lines, failure);
  std::getline(lines, said);
  RecordProperty("peak_resident_bytes", std::to_string(peak));
  EXPECT_GT(peak, 1 << 20) << "it is measured";
  EXPECT_LT(peak, kMostResident);
  EXPECT_EQ(failure, "");
  EXPECT_NE(said.find(concat("huge.jsonl', line ", file.cut + 1, ", column ")), std::string::npos) << said;
}

}  // namespace
}  // namespace keel
