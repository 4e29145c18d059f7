#pragma once
// Reads a file from end to end to find where its lines begin, in pieces that several threads take.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "keel/data/line_index.h"

namespace keel {

// Fills the index.
class LineScan {
 public:
  explicit LineScan(LineIndex& index);
  void run();

 private:
  struct Piece;
  void read_piece(std::uint64_t begin, std::vector<char>& buffer, Piece& piece) const;
  // Joins a piece to those before it.
  void append(const Piece& piece);
  [[noreturn]] void refuse_quote(std::uint64_t offset, std::string_view what) const;

  LineIndex& index_;
  std::uint64_t size_, piece_bytes_;
  std::uint64_t text_begin_ = 0;  // behind a mark of UTF-8
  bool inside_quotes_ = false;    // where the pieces so far end
  std::uint64_t last_quote_ = 0;
  std::optional<std::uint64_t> first_empty_;  // where the first empty line so far begins
  Xxh3 hashes_;
};

// Whether a line that begins here is empty: a line feed, maybe with a carriage return before it. `text` begins there
// and has a second byte unless the file ends.
inline bool is_empty_line(std::string_view text) {
  return text.empty() || text[0] == '\n' || (text[0] == '\r' && (text.size() == 1 || text[1] == '\n'));
}

}  // namespace keel
