#include "keel/data/document_pieces.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "keel/data/data_file.h"
#include "keel/data/gzip.h"
#include "keel/data/lines.h"
#include "keel/data/token_file.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::uint64_t kPartBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kLongestWhole = std::uint64_t{1} << 30;
constexpr std::int64_t kRowsAtOnce = 256;

// Null where the file is one document.
DatasetPtr rows_of(const std::string& path, Documents documents) {
  if (documents == Documents::line) return open_lines(path);
  if (documents == Documents::file) return nullptr;
  switch (kind_of_file(path)) {
    case DataKind::jsonl:
    case DataKind::csv:
    case DataKind::columns: return open_data(path);
    case DataKind::tokens: throw Error(concat("'", path, "' is a token file already; name a text"));
    default: return nullptr;
  }
}

}  // namespace

DocumentPieces::DocumentPieces(const std::string& path, Documents documents, const Tokenizer& tokenizer,
                               std::uint64_t place)
    : path_(path), tokenizer_(tokenizer), rows_(rows_of(path, documents)), at_(place) {
  if (rows_) {
    end_ = static_cast<std::uint64_t>(rows_->size());
  } else {
    file_ = std::make_unique<InputFile>(is_gzip(path) ? decompress_once(path) : path);
    end_ = file_->size();
  }
  KEEL_CHECK(end_ > 0, "'", path, "' is empty; name a text");
  KEEL_CHECK(at_ <= end_, "'", path, "' has become shorter");
}

DocumentPiece DocumentPieces::next_part(std::uint64_t wished) {
  DocumentPiece piece;
  for (std::uint64_t bytes = wished;; bytes *= 2) {
    piece.text.resize(std::min(bytes, end_ - at_));
    file_->read(at_, std::as_writable_bytes(std::span(piece.text)));
    KEEL_CHECK(at_ > 0 || !piece.text.starts_with(kTokenFileMagic), "'", path_,
               "' is a token file already; name a text");
    piece.ends_document = at_ + piece.text.size() == end_;
    if (!piece.ends_document) piece.text.resize(tokenizer_.last_border(piece.text));
    if (!piece.text.empty()) break;
    KEEL_CHECK(bytes < kLongestWhole, "'", path_, "' has ", end_,
               " bytes, and its tokenizer encodes a document at once, of 1 GiB ",
               "at most: let each line be a document, or cut the file");
  }
  at_ += piece.text.size();
  piece.next = at_;
  return piece;
}

std::vector<DocumentPiece> DocumentPieces::next(std::uint64_t bytes) {
  std::vector<DocumentPiece> pieces;
  std::uint64_t read = 0;
  while (at_ < end_ && read < bytes) {
    if (!rows_) {
      pieces.push_back(next_part(std::min(kPartBytes, bytes)));
      read += pieces.back().text.size();
      continue;
    }
    std::vector<std::int64_t> numbers(std::min<std::uint64_t>(kRowsAtOnce, end_ - at_));
    std::iota(numbers.begin(), numbers.end(), static_cast<std::int64_t>(at_));
    for (const Example& row : rows_->examples(numbers)) {
      pieces.push_back({row.text("text"), true, ++at_});
      read += pieces.back().text.size();
    }
  }
  return pieces;
}

}  // namespace keel
