#include "keel/data/token_documents.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "keel/data/token_fingerprint.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::int64_t kTokensAtOnce = 1 << 16;

class TokenDocuments final : public Dataset {
 public:
  TokenDocuments(Tokens tokens, std::uint32_t end,
                 const std::function<void(std::uint64_t done, std::uint64_t all)>& progress)
      : tokens_(std::move(tokens)), end_(end) {
    std::vector<std::int32_t> piece(kTokensAtOnce);
    const std::int64_t all = tokens_.size();
    for (std::int64_t begin = 0; begin < all; begin += kTokensAtOnce) {
      const std::span here(piece.data(), static_cast<std::size_t>(std::min(kTokensAtOnce, all - begin)));
      tokens_.copy(begin, here);
      for (std::size_t i = 0; i < here.size(); ++i)
        if (static_cast<std::uint32_t>(here[i]) == end_) ends_.push_back(begin + static_cast<std::int64_t>(i) + 1);
      if (progress) progress(static_cast<std::uint64_t>(begin + std::ssize(here)), static_cast<std::uint64_t>(all));
    }
    if (all > 0 && (ends_.empty() || ends_.back() < all)) ends_.push_back(all);
  }

  std::int64_t size() const override { return std::ssize(ends_); }
  std::int64_t length(std::int64_t i) const override {
    check_index(i);
    return ends_[static_cast<std::size_t>(i)] - begin_of(i);
  }
  Example example(std::int64_t i) const override {
    const std::int64_t count = length(i);
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    tokens_.copy(begin_of(i), values);
    return Example().set("input_ids", Integers{{count}, {values.begin(), values.end()}});
  }
  std::string fingerprint() const override {
    return concat("documents up to token ", end_, " of ", fingerprint_of(tokens_));
  }

 private:
  std::int64_t begin_of(std::int64_t i) const { return i == 0 ? 0 : ends_[static_cast<std::size_t>(i - 1)]; }

  Tokens tokens_;
  std::uint32_t end_;
  std::vector<std::int64_t> ends_;  // one behind each document's last token
};

}  // namespace

DatasetPtr token_documents(Tokens tokens, std::uint32_t end,
                           const std::function<void(std::uint64_t done, std::uint64_t all)>& progress) {
  return std::make_shared<TokenDocuments>(std::move(tokens), end, progress);
}

}  // namespace keel
