#include "keel/data/tokens.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"

namespace keel {
namespace {

void check_vocabulary(std::int64_t size, const std::string& source) {
  KEEL_CHECK(size > 0 && size <= kMaxVocabulary, "'", source, "': a vocabulary has 1 to ", kMaxVocabulary,
             " tokens, not ", size);
}

// `values` begin at `position` of the source.
template <class T>
void check_range(std::span<const T> values, std::int64_t position, std::int64_t vocabulary, const std::string& source) {
  T largest = 0;
  for (const T value : values) largest = std::max(largest, value);
  if (largest < vocabulary) return;
  const auto bad = std::find_if(values.begin(), values.end(), [&](T value) { return value >= vocabulary; });
  throw Error(concat("token ", *bad, " at position ", position + (bad - values.begin()), " of '", source,
                     "' is outside the vocabulary of ", vocabulary, " tokens"));
}

}  // namespace

int token_bytes(std::int64_t vocabulary_size) { return vocabulary_size <= 65536 ? 2 : 4; }

Tokens::Tokens(std::span<const std::uint32_t> values, std::int64_t vocabulary_size, std::string source)
    : size_(static_cast<std::int64_t>(values.size())),
      vocabulary_size_(vocabulary_size),
      bytes_(token_bytes(vocabulary_size)) {
  check_vocabulary(vocabulary_size, source);
  check_range(values, 0, vocabulary_size, source);
  const auto keep = [&]<class T>(std::vector<T> copy) {
    const auto owner = std::make_shared<const std::vector<T>>(std::move(copy));
    source_ =
        std::make_shared<const Source>(Source{.owner = owner, .memory = owner->data(), .name = std::move(source)});
  };
  if (bytes_ == 2) keep(std::vector<std::uint16_t>(values.begin(), values.end()));
  else keep(std::vector<std::uint32_t>(values.begin(), values.end()));
}

Tokens::Tokens(std::shared_ptr<const InputFile> file, std::uint64_t offset, std::int64_t size, int bytes,
               std::int64_t vocabulary_size)
    : size_(size), vocabulary_size_(vocabulary_size), bytes_(bytes) {
  const std::string& name = file->path();
  check_vocabulary(vocabulary_size, name);
  KEEL_CHECK(bytes == 2 || bytes == 4, "'", name, "': a token has 2 or 4 bytes, not ", bytes);
  KEEL_CHECK(size >= 0 && offset <= file->size() &&
                 static_cast<std::uint64_t>(size) <= (file->size() - offset) / static_cast<std::uint64_t>(bytes),
             "'", name, "' has no ", size, " tokens of ", bytes, " bytes behind its first ", offset);
  source_ = std::make_shared<const Source>(Source{.file = std::move(file), .offset = offset, .name = name});
}

Tokens Tokens::joined(std::vector<Tokens> shards) {
  if (shards.size() == 1) return std::move(shards.front());
  Tokens all;
  auto source = std::make_shared<Source>();
  for (const Tokens& shard : shards) {
    source->begins.push_back(all.size_);
    all.size_ += shard.size_;
    all.vocabulary_size_ = std::max(all.vocabulary_size_, shard.vocabulary_size_);
  }
  source->shards = std::move(shards);
  all.source_ = std::move(source);
  return all;
}

template <class F>
void Tokens::visit_shards(std::int64_t begin, std::int64_t count, F&& f) const {
  const std::vector<std::int64_t>& begins = source_->begins;
  auto shard = static_cast<std::size_t>(std::ranges::upper_bound(begins, begin) - begins.begin()) - 1;
  for (std::int64_t done = 0; done < count; ++shard) {
    const Tokens& tokens = source_->shards[shard];
    const std::int64_t first = begin + done - begins[shard];
    const std::int64_t here = std::min(count - done, tokens.size_ - first);
    if (here > 0) f(tokens, first, here, done);
    done += here;
  }
}

template <class F>
void Tokens::visit(std::int64_t begin, std::int64_t count, F&& f) const {
  const auto pieces = [&]<class T>(T) {
    if (!source_->file)
      return f(std::span(static_cast<const T*>(source_->memory) + begin, static_cast<std::size_t>(count)), begin);
    constexpr std::int64_t kPiece = 1 << 13;  // tokens
    std::array<T, kPiece> piece;
    for (std::int64_t done = 0; done < count; done += kPiece) {
      const auto here = static_cast<std::size_t>(std::min(kPiece, count - done));
      const std::span values(piece.data(), here);
      source_->file->read(source_->offset + static_cast<std::uint64_t>(begin + done) * sizeof(T),
                          std::as_writable_bytes(values));
      f(std::span<const T>(values), begin + done);
    }
  };
  if (bytes_ == 2) pieces(std::uint16_t{});
  else pieces(std::uint32_t{});
}

std::uint32_t Tokens::operator[](std::int64_t i) const {
  std::int32_t value = 0;
  copy(i, std::span(&value, 1));
  return static_cast<std::uint32_t>(value);
}

Tokens Tokens::slice(std::int64_t begin, std::int64_t end) const {
  KEEL_CHECK(0 <= begin && begin <= end && end <= size_, "tokens [", begin, ", ", end, ") are outside a sequence of ",
             size_);
  Tokens part = *this;
  part.begin_ += begin;
  part.size_ = end - begin;
  return part;
}

void Tokens::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  KEEL_CHECK(0 <= begin && begin <= size_ && count <= size_ - begin, count, " tokens at ", begin,
             " reach past a sequence of ", size_);
  if (count == 0) return;
  if (!source_->shards.empty())
    return visit_shards(
        begin_ + begin, count, [&](const Tokens& shard, std::int64_t first, std::int64_t here, std::int64_t done) {
          shard.copy(first, out.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(here)));
        });
  visit(begin_ + begin, count, [&](auto values, std::int64_t position) {
    check_range(values, position, vocabulary_size_, source_->name);
    std::copy(values.begin(), values.end(), out.begin() + (position - begin_ - begin));
  });
}

void Tokens::check() const {
  if (size_ == 0) return;
  if (!source_->shards.empty())
    return visit_shards(begin_, size_,
                        [](const Tokens& shard, std::int64_t first, std::int64_t here, std::int64_t /*done*/) {
                          shard.slice(first, first + here).check();
                        });
  visit(begin_, size_,
        [&](auto values, std::int64_t position) { check_range(values, position, vocabulary_size_, source_->name); });
}

}  // namespace keel
