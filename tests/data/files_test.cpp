#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "keel/data/csv.h"
#include "keel/data/data_file.h"
#include "keel/data/file_dataset.h"
#include "keel/data/file_list.h"
#include "keel/data/gzip.h"
#include "keel/data/jsonl.h"
#include "keel/data/text_dataset.h"
#include "keel/data/token_file.h"
#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

// Bytes as gzip writes them, without compression: blocks that are stored (RFC 1951, 1952).
std::string gzipped(const std::string& text) {
  std::uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0);
  }
  std::string file("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  const auto put = [&](std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) file += static_cast<char>(value >> (8 * i));
  };
  std::size_t at = 0;
  do {
    const std::size_t count = std::min<std::size_t>(65535, text.size() - at);
    put(at + count == text.size() ? 1 : 0, 1);
    put(count, 2);
    put(~count, 2);
    file.append(text, at, count);
    at += count;
  } while (at < text.size());
  put(~crc, 4);
  put(text.size(), 4);
  return file;
}

std::string written(const TemporaryFolder& folder, std::string_view name, const std::string& bytes) {
  std::ofstream(folder / name, std::ios::binary) << bytes;
  return folder / name;
}

TEST(FilesAt, AreThoseOfAFolderOrPatternByName) {
  const TemporaryFolder folder;
  for (const char* name : {"b_2.bin", "b_10.bin", "a_1.txt", ".hidden", "x.jsonl.keel-index"})
    written(folder, name, "x");
  std::filesystem::create_directory(folder / "inner");
  const auto names = [&](const std::string& path) {
    std::string all;
    for (const std::string& file : files_at(path)) all += std::filesystem::path(file).filename().string() + ' ';
    return all;
  };
  EXPECT_EQ(names(folder.path()), "a_1.txt b_10.bin b_2.bin ");
  EXPECT_EQ(names(folder / "b_*.bin"), "b_10.bin b_2.bin ");
  EXPECT_EQ(names(folder / "b_?.bin"), "b_2.bin ");
  EXPECT_EQ(files_at(folder / "no"), (std::vector<std::string>{folder / "no"}));
  written(folder, "odd*.bin", "x");
  EXPECT_EQ(names(folder / "odd*.bin"), "odd*.bin ") << "a file of this very name";
  EXPECT_EQ(error_of([&] { files_at(folder / "c*"); }), "no file fits '" + folder / "c*" + "'");
  EXPECT_EQ(error_of([&] { files_at(folder / "inner"); }), "there is no file in the folder '" + folder / "inner" + "'");
  EXPECT_NE(error_of([&] { files_at(folder / "missing/*.bin"); }).find("cannot be read"), std::string::npos);
}

TEST(OpenFiles, MakesAnExampleOfEach) {
  const TemporaryFolder folder;
  const std::vector<std::string> paths = {written(folder, "a", "one\ntwo"), written(folder, "b", "")};
  const DatasetPtr files = open_files(paths);
  ASSERT_EQ(files->size(), 2);
  EXPECT_EQ(files->example(0), Example().set("name", paths[0]).set("text", "one\ntwo"));
  EXPECT_EQ(files->example(1), Example().set("name", paths[1]).set("text", ""));
  EXPECT_EQ(files->length(0), 7);
  const std::string before = files->fingerprint();
  EXPECT_EQ(open_files(paths)->fingerprint(), before);
  written(folder, "b", "x");
  EXPECT_NE(open_files(paths)->fingerprint(), before);
  EXPECT_EQ(error_of([&] { files->example(1); }), "'" + paths[1] + "' has changed since it was opened");
  written(folder, "b", "line\nab\xff");
  EXPECT_EQ(error_of([&] { open_files(paths); }), "'" + paths[1] + "', line 2, byte 3: this is not UTF-8");
  std::filesystem::remove(paths[1]);
  EXPECT_NE(error_of([&] { open_files(paths); }).find(paths[1]), std::string::npos);
}

TEST(TokenShards, AreOneSequence) {
  const TemporaryFolder folder;
  std::vector<std::uint32_t> all;
  for (std::uint32_t shard = 0; shard < 4; ++shard) {
    TokenFileWriter writer(folder / ("s" + std::to_string(shard) + ".bin"), 100, "byte");
    std::vector<std::uint32_t> tokens(shard == 1 ? 0 : 10 + shard);
    for (auto& token : tokens) {
      token = static_cast<std::uint32_t>(all.size() % 97);
      all.push_back(token);
    }
    writer.append(tokens);
    writer.commit();
  }
  const Tokens joined = open_token_files(files_at(folder / "s*.bin")).tokens;
  ASSERT_EQ(joined.size(), std::ssize(all));
  joined.check();
  for (std::int64_t begin = 0; begin <= joined.size(); ++begin) {
    for (std::int64_t end = begin; end <= joined.size(); ++end) {
      const Tokens slice = joined.slice(begin, end);
      std::vector<std::int32_t> values(static_cast<std::size_t>(end - begin));
      slice.copy(0, values);
      ASSERT_TRUE(std::equal(values.begin(), values.end(), all.begin() + begin)) << begin << ' ' << end;
    }
  }
  const TextDataset dataset = open_tokens(folder.path(), {.validation = 0.25, .block = 2});
  EXPECT_EQ(dataset.train.size() + dataset.validation.size(), joined.size());
  TokenFileWriter(folder / "s9.bin", 100, "character").commit();
  EXPECT_EQ(error_of([&] { open_token_files(files_at(folder.path())); }),
            "'" + folder / "s9.bin" + "' was made by tokenizer 'character', and '" + folder / "s0.bin" +
                "' by 'byte'; shards of one sequence have one tokenizer");
}

TEST(TokenShards, NameTheShardOfABadToken) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b"}) {
    TokenFileWriter writer(folder / name, 50, "x");
    writer.append(std::vector<std::uint32_t>(5, 7));
    writer.commit();
  }
  std::string bad = read_text_file(folder / "b");
  bad[64 + 2 * 3] = 60;
  written(folder, "b", bad);
  EXPECT_EQ(error_of([&] {
              open_token_files({folder / "a", folder / "b"});
            }),
            "token 60 at position 3 of '" + folder / "b" + "' is outside the vocabulary of 50 tokens");
}

TEST(Gzip, FilesAreReadAsWhatTheyHold) {
  if (!reads_gzip()) GTEST_SKIP() << "this build has no zlib";
  const TemporaryFolder folder;
  std::string table = "a,b\n";
  for (int i = 0; i < 30000; ++i) table += std::to_string(i) + "," + std::to_string(i % 7) + ".5\n";
  const std::string path = written(folder, "t.csv.gz", gzipped(table));
  EXPECT_TRUE(is_gzip(path));
  for (const std::string other : {"", "\x1f", "\x1fx", "x\x8b", "\x8b\x1f"})
    EXPECT_FALSE(is_gzip(written(folder, "o", other)));
  const std::string plain = decompress_once(path, {.cache_folder = folder / "cache"});
  EXPECT_EQ(read_text_file(plain), table);
  EXPECT_EQ(decompress_once(path, {.cache_folder = folder / "cache"}), plain);
  const CsvOptions options{.separator = ',', .lines = {.cache_folder = folder / "cache"}};
  const DatasetPtr data = open_csv(path, options);
  ASSERT_EQ(data->size(), 30000);
  EXPECT_EQ(data->example(29999).number("a"), 29999);
  EXPECT_EQ(data->fingerprint(), open_csv(written(folder, "t.csv", table))->fingerprint());
  // Another state of the file is decompressed anew; several parts are one text.
  written(folder, "t.csv.gz", gzipped("a,b\n1,2\n") + gzipped("3,x\n"));
  const DatasetPtr changed = open_csv(path, options);
  ASSERT_EQ(changed->size(), 2);
  EXPECT_EQ(error_of([&] { changed->example(1); }),
            "'" + path + "', line 3, column 2 ('b'): expected a finite number, found 'x'");
  EXPECT_EQ(open_jsonl(written(folder, "j.gz", gzipped("{\"x\": 1}")), {.cache_folder = folder / "cache"})->size(), 1);
  EXPECT_EQ(open_files({path})->example(0), Example().set("name", path).set("text", "a,b\n1,2\n3,x\n"));
  EXPECT_EQ(open_text(path, "byte", {.validation = 0}).whole.size(), 12);
}

TEST(Gzip, DamagedFilesAreRefusedAndLeaveNothing) {
  if (!reads_gzip()) GTEST_SKIP() << "this build has no zlib";
  const TemporaryFolder folder;
  const std::string whole = gzipped("{\"x\": 1}\n");
  const auto refusal = [&](const std::string& bytes) {
    const std::string path = written(folder, "bad.gz", bytes);
    const std::string message = error_of([&] { open_jsonl(path, {.cache_folder = folder / "cache"}); });
    EXPECT_TRUE(message.starts_with("'" + path + "' is not a whole file of gzip: ")) << message;
    return message;
  };
  for (std::size_t size = 11; size < whole.size(); ++size) refusal(whole.substr(0, size));
  std::string flipped = whole;
  flipped[20] ^= 1;
  refusal(flipped);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "cache"));
}

TEST(OpenData, OfAPatternIsTheOneFileThatItFits) {
  const TemporaryFolder folder;
  written(folder, "a1.csv", "x,y\n1,2\n");
  written(folder, "b1.txt", "one\ntwo\n");
  EXPECT_EQ(open_data(folder / "a*.csv")->example(0).number("y"), 2);
  EXPECT_EQ(open_data(folder / "b?.txt")->size(), 2);
  written(folder, "a2.csv", "x,y\n1,2\n");
  EXPECT_EQ(error_of([&] { open_data(folder / "a*.csv"); }),
            "'" + folder / "a*.csv" + "' fits 2 files, '" + folder / "a1.csv" +
                "' the first of them; a pattern names several files of tokens alone: name one file, or a folder of "
                "texts");
  EXPECT_EQ(error_of([&] { open_data(folder / "c*"); }), "no file fits '" + folder / "c*" + "'");
  for (const char* name : {"t1.bin", "t2.bin"}) TokenFileWriter(folder / name, 100, "byte").commit();
  for (const char* name : {"t1.bin", "t*.bin"})
    EXPECT_NE(error_of([&] { open_data(folder / name); }).find("read them where data.type=tokens"), std::string::npos);
}

TEST(OpenData, OfAFolderWhoseFirstFileCannotBeReadSaysWhy) {
  const std::string unreadable = "/sys/bus/platform/drivers_probe";  // nobody may read it, not even root
  const TemporaryFolder folder;
  if (!std::filesystem::exists(unreadable) || std::ifstream(unreadable))
    GTEST_SKIP() << "there is no file here that root may not read";
  std::filesystem::create_symlink(unreadable, folder / "a.bin");
  written(folder, "b.bin", "x");
  EXPECT_NE(error_of([&] { kind_of_file(folder.path()); }).find("a.bin"), std::string::npos);
}

TEST(OpenFiles, HaveAFingerprintOfTheirNamesAndContents) {
  const TemporaryFolder folder;
  const std::string a = written(folder, "a", "same"), b = written(folder, "b", "same");
  const std::string c = written(folder, "c", "other");
  const auto print = [](const std::vector<std::string>& paths) { return open_files(paths)->fingerprint(); };
  const std::vector<std::vector<std::string>> lists = {{}, {a}, {b}, {c}, {a, b}, {b, a}, {a, c}, {c, a}, {a, b, c}};
  for (const auto& one : lists)
    for (const auto& other : lists) EXPECT_EQ(print(one) == print(other), one == other);
}

}  // namespace
}  // namespace keel
