#pragma once
// Matrices behind a small cache that counts, as the exercise blocked_product gets them.

#include <cstdint>
#include <source_location>
#include <vector>

namespace learn {

// A simulated cache: 512 lines of 64 bytes, 32 KiB in all. A line that is not there is loaded in place of the
// one that was used longest ago.
class Cache {
 public:
  static constexpr std::int64_t kBytes = 32768, kLineBytes = 64;
  static constexpr std::int64_t kNumbers = kBytes / 4, kLineNumbers = kLineBytes / 4;

  explicit Cache(std::int64_t lines) : links_(static_cast<std::size_t>(lines)) {}  // of the memory behind it
  void use(std::int64_t line);
  std::int64_t loads() const { return loads_; }

 private:
  struct Link {
    std::int64_t before = -1, after = -1;
    bool here = false;
  };
  void unlink(std::int64_t line);

  std::vector<Link> links_;  // of all lines; those that are here form a list, the latest first
  std::int64_t latest_ = -1, oldest_ = -1, here_ = 0, loads_ = 0;
};

// rows x columns numbers, row after row. Each use of a number goes through the cache. An index outside ends
// the check with its line.
class CachedMatrix {
 public:
  // Its numbers begin at the line `first_line`.
  CachedMatrix(std::int64_t rows, std::int64_t columns, std::int64_t first_line, Cache* cache);

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  float operator()(std::int64_t row, std::int64_t column,
                   std::source_location where = std::source_location::current()) const {
    return numbers_[place(row, column, where)];
  }
  float& operator()(std::int64_t row, std::int64_t column,
                    std::source_location where = std::source_location::current()) {
    return numbers_[place(row, column, where)];
  }

  // Past the cache.
  std::vector<float>& numbers() { return numbers_; }

 private:
  std::size_t place(std::int64_t row, std::int64_t column, const std::source_location& where) const;

  std::int64_t rows_, columns_, first_line_;
  Cache* cache_;
  std::vector<float> numbers_;
};

}  // namespace learn
