#include "keel/tokenizers/pieces.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"

namespace keel {
namespace {

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// The character of `text` that the byte at `at` is of.
TextSpan character_around(std::string_view text, std::size_t at) {
  std::size_t begin = at, end = at + 1;
  while (begin > 0 && continues_character(text[begin])) --begin;
  while (end < text.size() && continues_character(text[end])) ++end;
  return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
}

void require_countable(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(
        concat("a text of ", bytes, " bytes is too long to be tokenized at once: divide it into texts below 4 GiB"));
  }
}

}  // namespace

void Pieces::reset(std::string_view text, bool keep_origins) {
  require_countable(text.size());
  bytes_.assign(text);
  origins_.clear();
  pieces_.clear();
  keep_origins_ = keep_origins;
  front_bytes_ = text.empty() ? 0 : character_around(text, 0).size();
  if (!text.empty()) pieces_.push_back({{0, static_cast<std::uint32_t>(text.size())}});
}

TextSpan Pieces::origin(TextSpan range) const {
  const auto of_byte = [&](std::uint32_t at) { return origins_.empty() ? character_around(bytes_, at) : origins_[at]; };
  if (range.size() > 0) return {of_byte(range.begin).begin, of_byte(range.end - 1).end};
  if (bytes_.empty()) return {};
  const std::uint32_t place = range.begin < bytes_.size() ? of_byte(range.begin).begin : of_byte(range.begin - 1).end;
  return {place, place};
}

void Pieces::set_pieces(std::vector<Piece> pieces) { pieces_ = std::move(pieces); }

Pieces::Rewrite::Rewrite(Pieces& pieces)
    : pieces_(pieces),
      bytes_(std::move(pieces.spare_bytes_)),
      origins_(std::move(pieces.spare_origins_)),
      made_(std::move(pieces.spare_pieces_)) {
  bytes_.clear();
  origins_.clear();
  made_.clear();
  bytes_.reserve(pieces.bytes_.size());
  if (pieces.keep_origins_) origins_.reserve(pieces.bytes_.size());
}

Pieces::Rewrite::~Rewrite() {
  pieces_.spare_bytes_ = std::move(bytes_);
  pieces_.spare_origins_ = std::move(origins_);
  pieces_.spare_pieces_ = std::move(made_);
}

void Pieces::Rewrite::append(std::string_view bytes, TextSpan origin) {
  bytes_ += bytes;
  if (pieces_.keep_origins_) origins_.insert(origins_.end(), bytes.size(), origin);
}

// The piece's first origin is known: bytes that wait have it, too.
void Pieces::Rewrite::settle(TextSpan origin) {
  if (pending_ > 0) std::fill(origins_.end() - static_cast<std::ptrdiff_t>(pending_), origins_.end(), origin);
  pending_ = 0;
  has_last_ = true;
}

// Without origins: `old` is named, of which bytes that wait have the first byte's origin.
void Pieces::Rewrite::name_front(TextSpan old) {
  if (!front_is_open_) return;
  count_front(pending_, old.begin < pieces_.front_bytes_);
  pending_ = 0;
  has_last_ = true;
  last_is_front_ = (old.size() > 0 ? old.end - 1 : old.begin) < pieces_.front_bytes_;
}

void Pieces::Rewrite::count_front(std::size_t bytes, bool is_front) {
  if (!front_is_open_ || bytes == 0) return;
  if (is_front) front_bytes_ += bytes;
  else front_is_open_ = false;
}

void Pieces::Rewrite::keep(TextSpan old) {
  if (old.size() == 0) return;
  const std::string_view text = std::string_view(pieces_.bytes_).substr(old.begin, old.size());
  if (pieces_.keep_origins_) {
    settle(pieces_.origin({old.begin, old.begin + 1}));
    const std::size_t written = origins_.size();
    origins_.resize(written + old.size());
    TextSpan* origin = origins_.data() + written;
    if (!pieces_.origins_.empty()) {
      std::copy_n(pieces_.origins_.data() + old.begin, old.size(), origin);
    } else {
      for (std::uint32_t at = old.begin; at < old.end; ++at) {
        const bool is_ascii = static_cast<unsigned char>(pieces_.bytes_[at]) < 0x80;
        *origin++ = is_ascii ? TextSpan{at, at + 1} : character_around(pieces_.bytes_, at);
      }
    }
    last_ = origins_.back();
  } else {
    name_front(old);
    const std::size_t of_front = old.begin < pieces_.front_bytes_ ? pieces_.front_bytes_ - old.begin : 0;
    count_front(std::min<std::size_t>(of_front, old.size()), true);
    if (of_front < old.size()) front_is_open_ = false;
  }
  bytes_ += text;
}

void Pieces::Rewrite::replace(TextSpan old, std::string_view bytes) {
  if (!pieces_.keep_origins_) {
    if (old.size() > 0 || !has_last_) name_front(old);
    count_front(bytes.size(), last_is_front_);
    bytes_ += bytes;
  } else if (old.size() > 0) {
    settle(pieces_.origin({old.begin, old.begin + 1}));
    last_ = pieces_.origin({old.end - 1, old.end});
    append(bytes, last_);
  } else if (has_last_) {
    append(bytes, last_);
  } else {
    settle(pieces_.origin(old));
    last_ = pieces_.origin(old);
    append(bytes, last_);
  }
}

void Pieces::Rewrite::insert(std::string_view bytes) {
  if (!has_last_) pending_ += bytes.size();
  else if (!pieces_.keep_origins_) count_front(bytes.size(), last_is_front_);
  append(bytes, last_);
}

void Pieces::Rewrite::cut() {
  if (bytes_.size() > began_) {
    require_countable(bytes_.size());
    made_.push_back({{static_cast<std::uint32_t>(began_), static_cast<std::uint32_t>(bytes_.size())}});
  }
  began_ = bytes_.size();
  if (!pieces_.keep_origins_) count_front(pending_, true);
  pending_ = 0;
  has_last_ = false;
}

void Pieces::Rewrite::token(const Piece& old) {
  cut();
  keep(old.bytes);
  cut();
  made_.back().token = old.token;
}

void Pieces::Rewrite::done() {
  cut();
  pieces_.front_bytes_ = front_bytes_;
  std::swap(pieces_.bytes_, bytes_);
  std::swap(pieces_.origins_, origins_);
  std::swap(pieces_.pieces_, made_);
}

}  // namespace keel
