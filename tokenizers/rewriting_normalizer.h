#pragma once
// Normalizers that leave most of a text as it is: what each of them says is where a change is due, and which.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "keel/tokenizers/normalizer.h"
#include "keel/tokenizers/pieces.h"

namespace keel {

class RewritingNormalizer : public Normalizer {
 public:
  void normalize(Pieces& pieces) const final;

 protected:
  // The new text of one piece, whose bytes lie from `begin` on in the old one.
  class Output {
   public:
    Output(Pieces::Rewrite& rewrite, std::string_view text, std::uint32_t begin, bool keeps_origins)
        : rewrite_(rewrite), text_(text), begin_(begin), keeps_origins_(keeps_origins) {}
    std::string_view text() const { return text_; }
    bool keeps_origins() const { return keeps_origins_; }
    void keep(std::size_t from, std::size_t to) { rewrite_.keep(span(from, to)); }
    void replace(std::size_t from, std::size_t to, std::string_view bytes) { rewrite_.replace(span(from, to), bytes); }
    void insert(std::string_view bytes) { rewrite_.insert(bytes); }

   private:
    TextSpan span(std::size_t from, std::size_t to) const {
      return {begin_ + static_cast<std::uint32_t>(from), begin_ + static_cast<std::uint32_t>(to)};
    }

    Pieces::Rewrite& rewrite_;
    std::string_view text_;
    std::uint32_t begin_;
    bool keeps_origins_;
  };

  // Where, at `from` or behind it, a change begins; the text's size: nowhere. `from` is where change() ended, or 0.
  virtual std::size_t find_change(std::string_view text, std::size_t from) const = 0;
  // Writes what begins at `at`, and perhaps more, and says where it ended, which is behind `at`.
  virtual std::size_t change(std::size_t at, Output& output) const = 0;
};

}  // namespace keel
