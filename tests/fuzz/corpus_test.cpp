// The fuzzers' corpus, read without them: what they found once stays mended.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "keel/runtime/file.h"
#include "tests/fuzz/target.h"

namespace keel::fuzz {
namespace {

using Reader = bool (*)(std::string_view);
#define KEEL_FUZZ_ROW(name) {#name, name},
const std::map<std::string, Reader> kReaders = {KEEL_FUZZ_TARGETS(KEEL_FUZZ_ROW)};
#undef KEEL_FUZZ_ROW

const std::filesystem::path kCorpus = KEEL_SOURCE_DIR "/tests/fuzz/corpus";

struct Input {
  std::string name, bytes;
};

std::vector<Input> corpus_of(const std::string& target) {
  std::vector<Input> inputs;
  for (const auto& file : std::filesystem::directory_iterator(kCorpus / target))
    inputs.push_back({file.path().filename().string(), read_text_file(file.path().string())});
  std::ranges::sort(inputs, {}, &Input::name);
  return inputs;
}

// A find is an exception that accepts() lets pass, and fails the test.
bool is_taken(Reader reader, std::string_view bytes, const std::string& what) {
  try {
    return reader(bytes);
  } catch (const std::exception& error) { ADD_FAILURE() << what << ": " << error.what(); }
  return false;
}

class Corpus : public ::testing::TestWithParam<std::string> {
 protected:
  Reader reader() const { return kReaders.at(GetParam()); }
};

TEST_P(Corpus, IsReadAndWhatIsGoodIsTaken) {
  int good = 0;
  for (const Input& input : corpus_of(GetParam())) {
    const bool is_good = input.name.starts_with("good");
    const bool taken = is_taken(reader(), input.bytes, input.name);
    if (!is_good) continue;
    ++good;
    EXPECT_TRUE(taken) << input.name << " is refused; where the format has changed: scripts/fuzz --make-corpus";
  }
  EXPECT_GT(good, 0);
}

// What a fuzzer does, without its eyes: for machines that have no clang.
TEST_P(Corpus, IsReadWhenBytesAreMissingOrWrong) {
  std::mt19937 engine(1);
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(engine() % bound); };
  for (const Input& input : corpus_of(GetParam())) {
    const std::string_view bytes = input.bytes;
    if (bytes.empty()) continue;
    for (int i = 0; i < 20; ++i) is_taken(reader(), bytes.substr(0, below(bytes.size())), input.name + ", cut");
    for (int i = 0; i < 40; ++i) {
      std::string changed = input.bytes;
      for (int k = 0; k <= i % 3; ++k) {
        const std::size_t at = below(changed.size());
        if (i % 2 == 0) changed[at] = static_cast<char>(changed[at] ^ 1 << below(8));
        else changed.replace(at, 1, bytes.substr(below(bytes.size()), below(9)));
      }
      is_taken(reader(), changed, concat(input.name, ", changed ", i));
    }
  }
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [name, reader] : kReaders) all.push_back(name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Targets, Corpus, ::testing::ValuesIn(names()), [](const auto& info) { return info.param; });

TEST(FuzzTargets, HaveAFolderOfTheCorpusEachAndNoOtherIsThere) {
  std::vector<std::string> folders;
  for (const auto& folder : std::filesystem::directory_iterator(kCorpus))
    folders.push_back(folder.path().filename().string());
  std::ranges::sort(folders);
  EXPECT_EQ(folders, names());
}

}  // namespace
}  // namespace keel::fuzz
