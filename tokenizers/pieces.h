#pragma once
// A text on its way through a tokenizer: cut into pieces, and rewritten, with the place that each byte came from.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizers/text_span.h"

namespace keel {

// What normalizers and pre-tokenizers hand on. The pieces lie in one buffer in the order of the text. A piece that is a
// token already (an added token) is left alone by all of them.
class Pieces {
 public:
  static constexpr std::uint32_t kNoToken = ~std::uint32_t{0};
  struct Piece {
    TextSpan bytes;                  // of bytes()
    std::uint32_t token = kNoToken;  // of an added token
    bool is_token() const { return token != kNoToken; }
  };

  // The whole text, valid UTF-8, as one piece; an empty text has none. `keep_origins` false: origin() is not asked for,
  // and rewriting is cheaper. A text of 4 GiB or more is an Error, here and as the result of rewriting.
  void reset(std::string_view text, bool keep_origins);

  std::string_view bytes() const { return bytes_; }
  std::string_view text(const Piece& piece) const {
    return std::string_view(bytes_).substr(piece.bytes.begin, piece.bytes.size());
  }
  std::span<const Piece> pieces() const { return pieces_; }
  bool keeps_origins() const { return keep_origins_; }
  // The bytes of the original text that a range of bytes() came from: from the first byte's origin to the end of the
  // last one's, whole characters. An empty range has an empty origin.
  TextSpan origin(TextSpan range) const;

  // Whether the piece's origin begins where the text does, which is known without origins, too.
  bool begins_text(const Piece& piece) const {
    return keep_origins_ ? origin(piece.bytes).begin == 0 : piece.bytes.begin < front_bytes_;
  }

  // Without origins: how many of the first bytes came from the text's first character.
  std::uint32_t front_bytes() const { return static_cast<std::uint32_t>(front_bytes_); }

  // Other borders over the same bytes. `pieces` ascend, do not overlap and hold every token there was; what lies
  // between them is dropped.
  void set_pieces(std::vector<Piece> pieces);

  // Writes the buffer anew, front to back. Old ranges ascend; what no call names is dropped. Every byte gets the origin
  // that the Tokenizers library gives: what replaces a range has that of the range's last byte, and what is inserted
  // that of the old byte which was named last. Nothing of a piece being named yet, inserted bytes have that of the next
  // one.
  class Rewrite {
   public:
    explicit Rewrite(Pieces& pieces);
    ~Rewrite();
    Rewrite(const Rewrite&) = delete;
    Rewrite& operator=(const Rewrite&) = delete;
    void keep(TextSpan old);                             // as it was
    void replace(TextSpan old, std::string_view bytes);  // no bytes: removes; an empty range: inserts before old.begin
    void insert(std::string_view bytes);
    void cut();                    // ends a piece here; one without bytes is none
    void token(const Piece& old);  // a token passes through, as a piece of its own
    // Takes the new buffer and pieces over, cutting at the end. Without it nothing changes.
    void done();

   private:
    void append(std::string_view bytes, TextSpan origin);
    void settle(TextSpan origin);
    void name_front(TextSpan old);
    void count_front(std::size_t bytes, bool is_front);

    Pieces& pieces_;
    std::string bytes_;
    std::vector<TextSpan> origins_;
    std::vector<Piece> made_;
    std::size_t began_ = 0;    // of the piece that is being written
    std::size_t pending_ = 0;  // bytes in front of it that wait for an origin
    bool has_last_ = false;
    TextSpan last_;  // the origin of the old byte that was named last in this piece
    // Without origins: whether that byte is one of the front's, and how many bytes written so far are.
    bool last_is_front_ = false, front_is_open_ = true;
    std::size_t front_bytes_ = 0;
  };

 private:
  std::string bytes_;
  std::vector<TextSpan> origins_;  // of each byte; empty: each is its own
  std::vector<Piece> pieces_;
  std::size_t front_bytes_ = 0;  // that came from the text's first character
  // What the last rewrite left, for the next one's use.
  std::string spare_bytes_;
  std::vector<TextSpan> spare_origins_;
  std::vector<Piece> spare_pieces_;
  bool keep_origins_ = true;
};

}  // namespace keel
