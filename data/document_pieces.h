#pragma once
// A text file's documents, in parts that a tokenizer encodes one by one.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "keel/data/dataset.h"
#include "keel/data/tokenize_files.h"
#include "keel/runtime/file.h"

namespace keel {

// Where a reader stands: in a file of documents the number of the next one, else the next byte.
struct DocumentPiece {
  std::string text;
  bool ends_document = false;
  std::uint64_t next = 0;  // place behind it
};

// Pure: reading again from a place gives the same pieces.
class DocumentPieces {
 public:
  // Of one file, from a place that a piece of it told; 0: its beginning.
  DocumentPieces(const std::string& path, Documents documents, const Tokenizer& tokenizer, std::uint64_t place);

  // Places of the whole file.
  std::uint64_t end() const { return end_; }
  // At most about so many bytes; empty: the file is done.
  std::vector<DocumentPiece> next(std::uint64_t bytes);

 private:
  // Of about so many bytes.
  DocumentPiece next_part(std::uint64_t wished);

  std::string path_;
  const Tokenizer& tokenizer_;
  DatasetPtr rows_;                  // null: the file is one document
  std::unique_ptr<InputFile> file_;  // of that
  std::uint64_t at_ = 0, end_ = 0;
};

}  // namespace keel
