#include <algorithm>
#include <cstring>
#include <vector>

#include "keel/data/token_file.h"
#include "keel/runtime/random.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/target.h"

namespace keel::fuzz {
namespace {

void read_all(const std::string& path) {
  const TokenFile file = open_token_file(path);
  std::vector<std::int32_t> window(100);
  for (std::int64_t at = 0; at < file.tokens.size(); at += std::ssize(window)) {
    window.resize(static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(window), file.tokens.size() - at)));
    file.tokens.copy(at, window);
    for (const std::int64_t token : window)
      require(0 <= token && token < file.tokens.vocabulary_size(), "a token belongs to the vocabulary");
  }
}

// The same header with the hash that it should have, so that what comes behind it is tried, too.
std::string with_hash(std::string_view bytes) {
  constexpr std::size_t kHashed = 56;
  std::string file(bytes);
  if (!bytes.starts_with(kTokenFileMagic) || bytes.size() < kHashed + 8) return file;
  const std::uint64_t hash = fnv1a64(bytes.substr(0, kHashed));
  std::memcpy(file.data() + kHashed, &hash, sizeof hash);
  return file;
}

}  // namespace

// The name says what a file without a mark is.
bool tokens(std::string_view bytes) {
  const bool by_name = accepts([&] { read_all(write_scratch("tokens.bin", bytes)); });
  const bool by_mark = accepts([&] { read_all(write_scratch("tokens", with_hash(bytes))); });
  return by_name || by_mark;
}

}  // namespace keel::fuzz
