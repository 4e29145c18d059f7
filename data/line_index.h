#pragma once
// Where the lines of a text file lie, or the records of a csv file, so that any of them is read without those before.
//
// The file is cut into groups of equal bytes, at most 2^20 of them and 4 KiB at least. Of each group the index knows
// how many lines begin before it, and where its first one does: 12 bytes. A line is found by reading its group.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/data/line_file.h"
#include "keel/runtime/file.h"
#include "keel/runtime/parallel.h"
#include "keel/runtime/xxh3.h"

namespace keel {

struct LineIndexOptions {
  // 0: a line feed ends a line. Else one inside double quotes does not (RFC 4180), and quotes that stand anywhere but
  // around a field, which ends at this separator, are an Error with line and column in bytes.
  char separator = 0;
  // Indices of files from so many bytes on are kept as NAME.keel-index beside the file; where that cannot be written,
  // in `cache_folder`, or in $XDG_CACHE_HOME/keel or ~/.cache/keel where that is empty; else not.
  std::uint64_t kept_from = std::uint64_t{64} << 20;
  std::string cache_folder = {};  // also of what a file holds that gzip has compressed (keel/data/gzip.h)
  // Called now and then while the file is indexed, with the bytes done and those of the file.
  std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};
};

// Bytes behind the text of a line that may be read, so that what reads eight at once need not look where it ends.
inline constexpr std::size_t kReadableBehindLine = 32;

// One line, without its line feed and a carriage return before that.
struct Line {
  std::int64_t number = 0;   // of lines that are not empty, from 0 on
  std::uint64_t offset = 0;  // in the file
  std::string_view text;     // while the function runs that it was given to
};

// Lines that are empty are left out, and so is a mark of UTF-8 at the beginning. Every function may be called from
// several threads.
class LineIndex {
 public:
  // Reads the whole file once, with two threads, or an index that was made of it: of the same size and the same times
  // of writing and of change. A file that gzip has compressed is decompressed into a cache first; lines and bytes are
  // those of its contents. An Error where the file cannot be read.
  explicit LineIndex(std::string path, LineIndexOptions options = {});

  const std::string& path() const { return path_; }
  std::int64_t size() const { return lines_; }
  // Of all bytes of the file.
  Hash128 hash() const { return hash_; }
  // The first line without a character that others stand behind, as editors number lines; none: there is no such. The
  // index knows; its number is counted from the file's beginning on.
  std::optional<std::int64_t> empty_line() const;
  // Where it is kept; empty where it is not.
  const std::string& kept_at() const { return kept_at_; }
  // Whether an index that was kept served.
  bool was_kept() const { return was_kept_; }

  // Calls f for each of these lines, in their order; numbers outside [0, size()) are an Error. What lies side by side
  // is read together. A file that has been cut short or changed, so that its lines lie elsewhere, is an Error.
  void read(std::span<const std::int64_t> numbers, FunctionRef<void(const Line& line)> f) const;
  // How many line feeds come before this byte, and one more: the number that editors show. Reads the file up to there.
  std::int64_t line_at(std::uint64_t offset) const;

 private:
  friend class LineScan;
  friend class KeptIndex;

  // Of the group in which a line begins.
  std::size_t group_of(std::int64_t number) const;
  // Where the first line of a group begins, or of the first group behind it that has one.
  std::uint64_t begin_of(std::size_t group) const;
  void read_run(std::int64_t first, std::int64_t end, std::vector<char>& buffer,
                FunctionRef<void(const Line& line)> f) const;

  std::string path_;  // as it was given
  LineIndexOptions options_;
  InputFile file_;  // that path, or the cache of what it holds
  std::uint64_t group_bytes_ = 0;
  std::vector<std::uint64_t> lines_before_;  // of each group, and of the file's end
  std::vector<std::uint32_t> first_line_;    // of each group: how far from its begin
  std::int64_t lines_ = 0;
  std::optional<std::uint64_t> empty_at_;  // where the line of empty_line() begins
  Hash128 hash_;
  std::string kept_at_;
  bool was_kept_ = false;
};

// An Error where the rule refuses an empty line that there is.
void check_empty_lines(const LineIndex& index, EmptyLines rule);

// "line 7", as editors number them, of the line of this number. Reads the file up to there.
std::string line_of(const LineIndex& index, std::int64_t number);

}  // namespace keel
