#include "keel/data/foreign_tokens.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "keel/data/token_file.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// The header of llm.c: a magic number, a version and the count of tokens; the other words are zeros.
constexpr std::size_t kHeaderWords = 256;

struct LlmcFormat {
  std::int32_t magic, version;
  int token_bytes;
  std::int64_t vocabulary;
  std::string_view tokenizer;
};
constexpr LlmcFormat kLlmcFormats[] = {{20240520, 1, 2, 50257, "gpt2"}, {20240801, 7, 4, 128256, "llama3"}};

std::optional<ForeignTokens> of_llmc(const InputFile& file) {
  std::array<std::int32_t, 3> words = {};
  if (file.size() < sizeof words) return std::nullopt;
  file.read(0, std::as_writable_bytes(std::span(words)));
  const auto* format = std::find_if(std::begin(kLlmcFormats), std::end(kLlmcFormats),
                                    [&](const LlmcFormat& one) { return one.magic == words[0]; });
  if (format == std::end(kLlmcFormats)) return std::nullopt;
  KEEL_CHECK(words[1] == format->version, "it begins as llm.c's files do, but its version is ", words[1],
             "; this program reads version ", format->version);
  constexpr std::size_t header = kHeaderWords * sizeof(std::int32_t);
  KEEL_CHECK(file.size() >= header, "it has ", file.size(), " bytes, fewer than the ", header, " of llm.c's header");
  const std::uint64_t bytes = file.size() - header, width = static_cast<std::uint64_t>(format->token_bytes);
  KEEL_CHECK(words[2] >= 0 && bytes == static_cast<std::uint64_t>(words[2]) * width, "llm.c's header says ", words[2],
             " tokens of ", width, " bytes, but ", bytes, " bytes follow it",
             words[2] >= 0 && bytes < static_cast<std::uint64_t>(words[2]) * width ? ": it is truncated" : "");
  return ForeignTokens{.program = "llm.c",
                       .offset = header,
                       .count = words[2],
                       .token_bytes = format->token_bytes,
                       .vocabulary = format->vocabulary,
                       .tokenizer = format->tokenizer};
}

// Most bytes stand where keel's mark has them: such a file was keel's once.
bool resembles_keels(std::span<const std::byte> begin) {
  const std::size_t size = std::min(begin.size(), kTokenFileMagic.size());
  std::size_t same = 0;
  for (std::size_t i = 0; i < size; ++i) same += begin[i] == static_cast<std::byte>(kTokenFileMagic[i]) ? 1 : 0;
  return 2 * same >= size;
}

// Tokens below 256 have a byte of zeros, which no text has.
bool may_be_text(std::span<const std::byte> begin) {
  return std::find(begin.begin(), begin.end(), std::byte{0}) == begin.end();
}

}  // namespace

std::optional<ForeignTokens> foreign_tokens(const InputFile& file) {
  if (const auto llmc = of_llmc(file)) return llmc;
  if (!file.path().ends_with(".bin")) return std::nullopt;
  std::vector<std::byte> begin(std::min<std::uint64_t>(file.size(), 4096));
  file.read(0, begin);
  if (resembles_keels(begin) || may_be_text(begin)) return std::nullopt;
  KEEL_CHECK(file.size() % 2 == 0, "it has no header, as files of nanoGPT have none, but its ", file.size(),
             " bytes are no tokens of 2 bytes: it is truncated, or something else");
  return ForeignTokens{.program = "nanoGPT", .count = static_cast<std::int64_t>(file.size() / 2)};
}

}  // namespace keel
