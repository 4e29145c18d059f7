#pragma once
// An index of lines in a file of its own, beside the file whose lines it knows.
//
// 104 bytes of header, then lines before each group and before the file's end (u64), then where first lines begin
// (u32), little-endian. The last 16 bytes of the header are the XXH3 of all else.

#include "keel/data/line_index.h"

namespace keel {

class KeptIndex {
 public:
  // Of an index whose file is open, and whose groups are laid out.
  explicit KeptIndex(LineIndex& index);
  // Fills the index from the first file that belongs to it; false where there is none. One that is damaged, or of
  // another state of the file, is as none.
  bool load();
  // Where it is worth it and can be written.
  void save();

 private:
  struct Header;
  Header header() const;
  bool load_from(const std::string& place);

  LineIndex& index_;
  std::vector<std::string> places_;         // that come into question, the best first; none for a small file
  std::int64_t written_ = 0, changed_ = 0;  // times of the file, in nanoseconds since 1970
};

}  // namespace keel
