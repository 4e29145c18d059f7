#include "keel/data/line_scan.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::uint64_t kScanBytes = std::uint64_t{1} << 20;
constexpr std::int64_t kScansAtOnce = 64;
constexpr std::int64_t kScansOfAThread = 8;
constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

// The place of a byte in [from, end) of a text, or `end`.
std::size_t find_byte(std::string_view text, char byte, std::size_t from, std::size_t end) {
  const void* found = std::memchr(text.data() + from, byte, end - from);
  return found == nullptr ? end : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace

// Whether a line feed ends a line depends on the quotes before it. A piece is read before those are known, so all that
// it says is said twice: if it begins outside of quotes [0], and if it begins inside [1].
struct LineScan::Piece {
  struct Group {
    std::uint64_t lines = 0;  // that begin in it
    std::uint32_t first = 0;
  };
  std::array<std::vector<Group>, 2> groups;
  std::array<std::uint64_t, 2> stray_quote = {kNowhere, kNowhere};
  std::array<std::uint64_t, 2> first_empty = {kNowhere, kNowhere}, last_line = {kNowhere, kNowhere};
  std::uint64_t last_quote = 0;
  bool odd_quotes = false;
  Hash128 hash;
};

LineScan::LineScan(LineIndex& index)
    : index_(index), size_(index.file_.size()), piece_bytes_(std::max(kScanBytes, index.group_bytes_)) {
  std::array<char, 3> mark = {};
  index_.file_.read(0, std::as_writable_bytes(std::span(mark).first(std::min<std::size_t>(3, size_))));
  if (std::string_view(mark.data(), mark.size()) == "\xef\xbb\xbf") text_begin_ = mark.size();
}

void LineScan::run() {
  ContextOptions two_threads;
  two_threads.threads = 2;
  const Context context = Context::create(two_threads);
  const auto pieces = static_cast<std::int64_t>((size_ + piece_bytes_ - 1) / piece_bytes_);
  std::vector<Piece> round;
  for (std::int64_t done = 0; done < pieces;) {
    const std::int64_t count = std::min(kScansAtOnce, pieces - done);
    round.assign(static_cast<std::size_t>(count), {});
    parallel_for(context, count, kScansOfAThread, [&](std::int64_t begin, std::int64_t end) {
      std::vector<char> buffer;
      for (std::int64_t i = begin; i < end; ++i)
        read_piece(static_cast<std::uint64_t>(done + i) * piece_bytes_, buffer, round[static_cast<std::size_t>(i)]);
    });
    for (const Piece& piece : round) append(piece);
    done += count;
    if (index_.options_.progress)
      index_.options_.progress(std::min(size_, static_cast<std::uint64_t>(done) * piece_bytes_), size_);
  }
  if (inside_quotes_) refuse_quote(last_quote_, "the quote that opens here is never closed");
  index_.lines_before_.push_back(static_cast<std::uint64_t>(index_.lines_));
  index_.hash_ = hashes_.hash();
}

void LineScan::read_piece(std::uint64_t begin, std::vector<char>& buffer, Piece& piece) const {
  // One byte before the piece and one behind it say what stands at its edges.
  const std::uint64_t end = std::min(begin + piece_bytes_, size_);
  const std::uint64_t from = begin == 0 ? 0 : begin - 1, to = std::min(end + 1, size_);
  buffer.resize(static_cast<std::size_t>(piece_bytes_ + 2));
  const std::span<char> bytes = std::span(buffer).first(static_cast<std::size_t>(to - from));
  index_.file_.read(from, std::as_writable_bytes(bytes));
  const std::string_view text(bytes.data(), bytes.size());
  const std::uint64_t group_bytes = index_.group_bytes_;
  const auto own = static_cast<std::size_t>(begin - from), own_end = static_cast<std::size_t>(end - from);
  piece.hash = xxh3(std::as_bytes(bytes).subspan(own, own_end - own));

  const char separator = index_.options_.separator;
  for (auto& groups : piece.groups) groups.resize(static_cast<std::size_t>((end - begin - 1) / group_bytes + 1));
  const auto begin_line = [&](std::size_t at, bool inside) {
    const std::size_t beginning = inside ? 1 : 0;
    if (is_empty_line(text.substr(at))) {
      piece.first_empty[beginning] = std::min(piece.first_empty[beginning], from + at);
      return;
    }
    piece.last_line[beginning] = from + at;
    const std::uint64_t distance = at - own;
    Piece::Group& group = piece.groups[beginning][static_cast<std::size_t>(distance / group_bytes)];
    if (group.lines++ == 0) group.first = static_cast<std::uint32_t>(distance % group_bytes);
  };
  // What lies between two quotes; `inside` is how the piece must begin for these line feeds to end lines.
  const auto read_between = [&](std::size_t at, std::size_t last, bool inside) {
    for (at = find_byte(text, '\n', at, last); at < last; at = find_byte(text, '\n', at + 1, last))
      if (at + 1 < own_end) begin_line(at + 1, inside);
  };

  if (begin == 0 && text_begin_ < size_) begin_line(static_cast<std::size_t>(text_begin_), false);
  if (begin != 0 && text[0] == '\n') begin_line(own, false);
  std::size_t at = own;
  while (separator != 0) {
    const std::size_t quote = find_byte(text, '"', at, own_end);
    read_between(at, quote, piece.odd_quotes);
    at = quote;
    if (quote == own_end) break;
    const std::uint64_t place = from + quote;
    const char before = place == text_begin_ ? '\n' : text[quote - 1];
    const char behind = place + 1 == size_ ? '\n' : text[quote + 1];
    const bool opens = before == separator || before == '\n' || before == '"';
    const bool closes = behind == separator || behind == '\n' || behind == '\r' || behind == '"';
    // It opens a field if the piece began as the quotes so far say, and closes one otherwise.
    std::uint64_t& stray_opening = piece.stray_quote[piece.odd_quotes ? 1 : 0];
    std::uint64_t& stray_closing = piece.stray_quote[piece.odd_quotes ? 0 : 1];
    if (!opens) stray_opening = std::min(stray_opening, place);
    if (!closes) stray_closing = std::min(stray_closing, place);
    piece.odd_quotes = !piece.odd_quotes;
    piece.last_quote = place;
    ++at;
  }
  read_between(at, own_end, piece.odd_quotes);
}

void LineScan::append(const Piece& piece) {
  const std::size_t beginning = inside_quotes_ ? 1 : 0;
  if (piece.stray_quote[beginning] != kNowhere)
    refuse_quote(
        piece.stray_quote[beginning],
        "a quote may only stand around a whole field; put the field into quotes and write \"\" for one inside it");
  for (const Piece::Group& group : piece.groups[beginning]) {
    index_.lines_before_.push_back(static_cast<std::uint64_t>(index_.lines_));
    index_.first_line_.push_back(group.first);
    index_.lines_ += static_cast<std::int64_t>(group.lines);
  }
  if (!first_empty_ && piece.first_empty[beginning] != kNowhere) first_empty_ = piece.first_empty[beginning];
  const std::uint64_t last = piece.last_line[beginning];
  if (first_empty_ && last != kNowhere && last > *first_empty_) index_.empty_at_ = first_empty_;
  if (piece.odd_quotes) inside_quotes_ = !inside_quotes_;
  if (piece.last_quote != 0) last_quote_ = piece.last_quote;
  hashes_.add(std::as_bytes(std::span(&piece.hash, 1)));
}

void LineScan::refuse_quote(std::uint64_t offset, std::string_view what) const {
  // The column: bytes since the last line feed.
  std::uint64_t begin = offset;
  char byte = 0;
  while (begin > text_begin_) {
    index_.file_.read(begin - 1, std::as_writable_bytes(std::span(&byte, 1)));
    if (byte == '\n') break;
    --begin;
  }
  throw Error(
      concat("'", index_.path(), "', line ", index_.line_at(offset), ", byte ", offset - begin + 1, ": ", what));
}

}  // namespace keel
