#include "keel/data/line_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

std::string write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// Byte by byte: the lines of a text, of which those within quotes are none where there is a separator.
std::vector<std::string> naive_lines(const std::string& text, bool with_quotes) {
  std::vector<std::string> lines(1);
  bool inside = false;
  for (const char byte : text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text) {
    if (with_quotes && byte == '"') inside = !inside;
    if (byte == '\n' && !inside) lines.emplace_back();
    else lines.back() += byte;
  }
  for (std::string& line : lines)
    if (line.ends_with('\r')) line.pop_back();
  std::erase(lines, "");
  return lines;
}

// The number of the first line without a character that others stand behind.
std::optional<std::int64_t> naive_empty_line(const std::string& text, bool with_quotes) {
  std::optional<std::int64_t> empty;
  std::int64_t line_feeds = 0, begins_at = 0;  // of all, and of those before the line
  std::string line;
  bool inside = false;
  const std::string all = text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text;
  for (std::size_t i = 0; i <= all.size(); ++i) {
    const char byte = i < all.size() ? all[i] : '\n';
    if (with_quotes && byte == '"') inside = !inside;
    if (byte != '\n' || inside) {
      line += byte;
      line_feeds += byte == '\n' ? 1 : 0;
      continue;
    }
    const bool is_empty = line.empty() || line == "\r";
    if (!is_empty && empty) return empty;
    if (is_empty && !empty) empty = begins_at + 1;
    begins_at = ++line_feeds;
    line.clear();
  }
  return std::nullopt;
}

std::vector<std::string> lines_of(const LineIndex& index, const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> lines;
  index.read(numbers, [&](const Line& line) {
    EXPECT_EQ(line.number, numbers[lines.size()]);
    lines.emplace_back(line.text);
  });
  return lines;
}

std::vector<std::int64_t> all_of(const LineIndex& index) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(index.size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Lines of all kinds of lengths and ends; in csv some with quotes, with line feeds and quotes inside them.
std::string random_text(std::size_t bytes, bool csv, std::uint64_t seed, std::size_t longest) {
  std::mt19937_64 engine(seed);
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(engine() % bound); };
  std::string text = below(2) == 0 ? "\xef\xbb\xbf" : "";
  while (text.size() < bytes) {
    const std::size_t kind = below(10);
    if (kind == 0) text += below(2) == 0 ? "\n" : "\r\n";
    std::string field(below(2) == 0 ? below(longest) : below(20), 'a');
    for (std::size_t i = 0; i < field.size(); ++i) field[i] = static_cast<char>('a' + (i * 7 + seed) % 26);
    if (csv && kind < 4) {
      for (std::size_t i = 0; i < field.size(); i += 1 + below(9)) field[i] = '\n';
      for (std::size_t i = 0; i + 1 < field.size(); i += 2 + below(30)) field.replace(i, 2, "\"\"");
      text += concat("x,\"", field, "\",y");
    } else {
      text += field;
    }
    text += below(8) == 0 ? "\r\n" : "\n";
  }
  if (below(2) == 0) text += csv ? "\"last\n\"" : "last";
  return text;
}

void expect_lines(const TemporaryFolder& folder, const std::string& text, char separator) {
  const LineIndex index(write_file(folder / "text", text), {.separator = separator});
  const std::vector<std::string> wanted = naive_lines(text, separator != 0);
  ASSERT_EQ(index.size(), std::ssize(wanted));
  EXPECT_EQ(lines_of(index, all_of(index)), wanted);
  EXPECT_EQ(index.empty_line(), naive_empty_line(text, separator != 0));
  if (wanted.empty()) return;
  std::mt19937_64 engine(1);
  std::vector<std::int64_t> numbers;
  while (numbers.size() < (text.size() > 200000 ? 5u : 200u)) {
    const auto first = static_cast<std::int64_t>(engine() % wanted.size());
    const auto count = std::min<std::int64_t>(static_cast<std::int64_t>(engine() % 40), index.size() - first);
    for (std::int64_t i = 0; i < std::max<std::int64_t>(count, 1); ++i) numbers.push_back(first + i);
  }
  const std::vector<std::string> found = lines_of(index, numbers);
  ASSERT_EQ(found.size(), numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(found[i], wanted[static_cast<std::size_t>(numbers[i])]);
}

TEST(LineIndex, FindsTheLinesThatANaiveReaderFinds) {
  const TemporaryFolder folder;
  std::uint64_t seed = 0;
  for (const char separator : {'\0', ','})
    for (const auto& [bytes, longest] :
         {std::pair<std::size_t, std::size_t>{200, 5}, {5000, 30}, {20000, 200}, {100000, 30000}, {100000, 3}})
      for (int i = 0; i < 8; ++i) expect_lines(folder, random_text(bytes, separator != 0, ++seed, longest), separator);
}

// A piece that is scanned has a megabyte, and a round of pieces 64 of them.
TEST(LineIndex, FindsLinesAcrossPieces) {
  const TemporaryFolder folder;
  for (const char separator : {'\0', ','})
    for (const std::size_t longest : {100u, 3000000u})
      expect_lines(folder, random_text(3 << 20, separator != 0, longest, longest), separator);
}

// Line feeds, carriage returns and quotes at each place around the edges of groups and pieces.
TEST(LineIndex, FindsLinesAtEveryPlaceOfAnEdge) {
  const TemporaryFolder folder;
  const std::vector<std::string> middles = {
      "\n", "\r\n", "\n\n", "\n\r\n", "\r\n\r\n\n", "\n\"q\n\"\n", "\n\"\"\"\n\n\"\"\"\n", "\nab,\"\",\"\n\"\r\n"};
  for (const std::string& middle : middles)
    for (std::size_t before = 0; before < 8; ++before) {
      std::string text(4096 - before, 'x');
      text[10] = '\n';
      expect_lines(folder, text + middle + "end", ',');
      if (middle.find('"') == std::string::npos) expect_lines(folder, text + middle, 0);
    }
  // A piece, too: short lines before it, of which one more or fewer would be seen.
  std::string lines;
  while (lines.size() < (1u << 20) - 16) lines += "0123456\n";
  for (const std::string& middle : {middles[3], middles[6], middles[7]})
    for (std::size_t before = 0; before < 8; ++before) {
      const std::string text = lines + std::string(16 - before, 'x') + middle + "end";
      const LineIndex index(write_file(folder / "text", text), {.separator = ','});
      const std::vector<std::string> wanted = naive_lines(text.substr(lines.size()), true);
      ASSERT_EQ(index.size(), std::ssize(lines) / 8 + std::ssize(wanted)) << before;
      std::vector<std::int64_t> last(wanted.size());
      std::iota(last.begin(), last.end(), std::ssize(lines) / 8);
      EXPECT_EQ(lines_of(index, last), wanted) << before;
    }
}

TEST(LineIndex, OfNothingHasNoLines) {
  const TemporaryFolder folder;
  for (const std::string text : {"", "\n", "\r\n", "\n\n\r\n", "\xef\xbb\xbf", "\xef\xbb\xbf\n", "\r"})
    expect_lines(folder, text, 0);
  EXPECT_EQ(LineIndex(write_file(folder / "text", "")).size(), 0);
}

TEST(LineIndex, SaysWhichLineOfTheFileAByteIsOn) {
  const TemporaryFolder folder;
  const std::string text = random_text(300000, true, 5, 50);
  const LineIndex index(write_file(folder / "text", text), {.separator = ','});
  index.read(std::vector<std::int64_t>{0, 7, index.size() - 1}, [&](const Line& line) {
    EXPECT_EQ(index.line_at(line.offset),
              1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(line.offset), '\n'));
  });
  EXPECT_NE(error_of([&] { lines_of(index, {index.size()}); }).find("outside the"), std::string::npos);
  EXPECT_NE(error_of([&] { lines_of(index, {-1}); }), "");
}

TEST(LineIndex, HashesEveryByte) {
  const TemporaryFolder folder;
  std::string text = random_text(3 << 20, false, 1, 100);
  const Hash128 hash = LineIndex(write_file(folder / "text", text)).hash();
  EXPECT_EQ(hash, LineIndex(write_file(folder / "other", text)).hash());
  for (const std::size_t at : {std::size_t{0}, (std::size_t{1} << 20) - 1, std::size_t{1} << 20, text.size() - 1}) {
    text[at] ^= 1;
    EXPECT_NE(hash, LineIndex(write_file(folder / "text", text)).hash()) << at;
    text[at] ^= 1;
  }
}

TEST(LineIndex, NamesAQuoteThatStandsInTheMidstOfAField) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& text) {
    return error_of([&] { LineIndex(write_file(folder / "bad", text), {.separator = ','}); });
  };
  EXPECT_EQ(refusal("a,b\n1,\"2\"\n3,4\"\n"), "'" + folder / "bad" +
                                                  "', line 3, byte 4: a quote may only stand around a whole field; put "
                                                  "the field into quotes and write \"\" for one inside it");
  EXPECT_NE(refusal("\"a\"b\n").find("line 1, byte 3"), std::string::npos);
  EXPECT_NE(refusal("a, \"b\"\n").find("line 1, byte 4"), std::string::npos);
  EXPECT_NE(refusal("a\n\n\"x\ny\nz").find("line 3, byte 1: the quote that opens here is never closed"),
            std::string::npos);
  for (const char* good : {"\"\"", "\"\",\"\"", "\"a\"\"b\"\r\n", "\"\n\"", "\xef\xbb\xbf\"a\"", "a,\"\"\"\"\"\"\n"})
    EXPECT_EQ(refusal(good), "") << good;
  // Far behind the first piece, and after one that ends inside of quotes.
  std::string text = "\"" + std::string(3 << 20, '\n') + "\"\n";
  EXPECT_EQ(refusal(text), "");
  EXPECT_NE(refusal(text + "ok\na\"b\n").find(concat("line ", (3 << 20) + 3, ", byte 2")), std::string::npos);
}

LineIndexOptions kept(const TemporaryFolder& folder) { return {.kept_from = 0, .cache_folder = folder / "caches"}; }

TEST(LineIndex, IsKeptBesideTheFileAndServesAsLongAsTheFileIsTheSame) {
  const TemporaryFolder folder;
  const std::string text = random_text(100000, false, 1, 60), path = write_file(folder / "text", text);
  const LineIndex made(path, kept(folder));
  EXPECT_FALSE(made.was_kept());
  EXPECT_EQ(made.kept_at(), path + ".keel-index");
  const LineIndex again(path, kept(folder));
  EXPECT_TRUE(again.was_kept());
  EXPECT_EQ(again.hash(), made.hash());
  EXPECT_EQ(lines_of(again, all_of(again)), naive_lines(text, false));
  // Of another kind, of another size, and of the same size but written since.
  LineIndexOptions quotes = kept(folder);
  quotes.separator = ';';
  EXPECT_FALSE(LineIndex(path, quotes).was_kept());
  EXPECT_FALSE(LineIndex(path, kept(folder)).was_kept());
  write_file(path, text + "more\n");
  EXPECT_FALSE(LineIndex(path, kept(folder)).was_kept());
  EXPECT_TRUE(LineIndex(path, kept(folder)).was_kept());
  std::string changed = text + "m\nre\n";
  write_file(path, changed);
  EXPECT_FALSE(LineIndex(path, kept(folder)).was_kept());
  const auto time = std::filesystem::last_write_time(path);
  // Even where somebody turned the time of writing back.
  write_file(path, text + "more\n");
  std::filesystem::last_write_time(path, time);
  const LineIndex last(path, kept(folder));
  EXPECT_FALSE(last.was_kept());
  EXPECT_EQ(lines_of(last, all_of(last)), naive_lines(text + "more\n", false));
  EXPECT_FALSE(std::filesystem::exists(folder / "caches"));
}

TEST(LineIndex, ThatIsDamagedIsMadeAgain) {
  const TemporaryFolder folder;
  const std::string text = random_text(20000, false, 1, 60), path = write_file(folder / "text", text);
  const std::string place = LineIndex(path, kept(folder)).kept_at(), good = read_text_file(place);
  for (std::size_t at = 0; at < good.size() + 1; at += 5) {
    std::string damaged = good;
    if (at < good.size()) damaged[at] = static_cast<char>(damaged[at] ^ 4);
    else damaged += 'x';
    write_file(place, damaged);
    const LineIndex index(path, kept(folder));
    EXPECT_FALSE(index.was_kept()) << at;
    EXPECT_EQ(index.size(), std::ssize(naive_lines(text, false)));
    EXPECT_EQ(read_text_file(place), good);
  }
}

TEST(LineIndex, LiesInTheCacheFolderWhereTheFilesOwnCannotBeWritten) {
  const TemporaryFolder folder;
  const std::string path = write_file(folder / "text", "a\nb\n");
  std::filesystem::create_directory(path + ".keel-index");
  const LineIndex made(path, kept(folder));
  EXPECT_TRUE(made.kept_at().starts_with(folder / "caches/")) << made.kept_at();
  EXPECT_TRUE(LineIndex(path, kept(folder)).was_kept());
  EXPECT_EQ(LineIndex(path).kept_at(), "") << "a small file needs none";
  // Nor there: then it is nowhere.
  write_file(folder / "file", "");
  LineIndexOptions nowhere = kept(folder);
  nowhere.cache_folder = folder / "file";
  EXPECT_EQ(LineIndex(path, nowhere).kept_at(), "");
}

TEST(LineIndex, NoticesAFileThatShrinksOrChanges) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 30000; ++i) text += "0123456789\n";
  const std::string path = write_file(folder / "text", text);
  const LineIndex index(path);
  std::filesystem::resize_file(path, 200000);
  EXPECT_EQ(lines_of(index, {5}).front(), "0123456789");
  EXPECT_NE(error_of([&] { lines_of(index, {29000}); }).find("cut short"), std::string::npos);
  std::string fewer = text, more = text;
  std::replace(fewer.begin() + 1000, fewer.begin() + 2000, '\n', '.');
  std::fill(more.begin() + 5, more.begin() + 200, '\n');
  for (std::size_t i = 5; i < 200; i += 2) more[i] = 'x';
  for (const auto& [changed, what] : {std::pair(fewer, "fewer lines"), std::pair(more, "more lines")}) {
    write_file(path, changed);
    EXPECT_NE(error_of([&] { lines_of(index, all_of(index)); }).find(what), std::string::npos) << what;
  }
}

TEST(LineIndex, IsReadByThreadsAtOnce) {
  const TemporaryFolder folder;
  const std::string text = random_text(300000, false, 2, 100);
  const LineIndex index(write_file(folder / "text", text));
  const std::vector<std::string> wanted = naive_lines(text, false);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      if (lines_of(index, all_of(index)) != wanted) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(LineIndex, TellsHowFarItIs) {
  const TemporaryFolder folder;
  const std::string path = write_file(folder / "text", std::string(70 << 20, 'x') + "\nlast");
  std::vector<std::uint64_t> told;
  const LineIndex index(path, {.kept_from = ~std::uint64_t{0}, .progress = [&](std::uint64_t done, std::uint64_t all) {
                                 EXPECT_EQ(all, (70u << 20) + 5);
                                 told.push_back(done);
                               }});
  EXPECT_EQ(told, (std::vector<std::uint64_t>{64u << 20, (70u << 20) + 5}));
  EXPECT_EQ(index.size(), 2);
  EXPECT_EQ(lines_of(index, {1}).front(), "last");
}

TEST(LineIndex, KnowsAnEmptyLineWithoutReadingTheFileAgain) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 300000; ++i) text += "0123456789\n";
  const std::string path = write_file(folder / "text", text);
  const LineIndex made(path, kept(folder)), again(path, kept(folder));
  EXPECT_TRUE(again.was_kept());
  write_file(path, "");
  EXPECT_EQ(made.empty_line(), std::nullopt);
  EXPECT_EQ(again.empty_line(), std::nullopt);
  // In a piece by itself, and with the line behind it in another one.
  for (const std::size_t at :
       {std::size_t{1100}, std::size_t{1} << 20, (std::size_t{1} << 20) - 1, std::size_t{3} << 20}) {
    std::string gap = text;
    const std::size_t line = std::min(at, gap.size() - 11) / 11;
    gap.insert(line * 11, "\n");
    write_file(path, gap);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(LineIndex(path, kept(folder)).empty_line(), std::int64_t(line) + 1) << at;
  }
  write_file(path, text + "\r\n\n");
  EXPECT_EQ(LineIndex(path, kept(folder)).empty_line(), std::nullopt) << "nothing stands behind them";
}

}  // namespace
}  // namespace keel
