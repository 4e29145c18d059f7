#include "keel/data/token_file.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "keel/data/file_list.h"
#include "keel/data/foreign_tokens.h"
#include "keel/data/token_header.h"
#include "keel/data/tokenize_files.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::int64_t kGpt2Vocabulary = 50257;

TokenHeader checked_header(const InputFile& file) {
  KEEL_CHECK(file.size() >= sizeof(TokenHeader), "it has ", file.size(), " bytes, fewer than the header's ",
             sizeof(TokenHeader));
  TokenHeader header;
  file.read(0, std::as_writable_bytes(std::span(&header, 1)));
  KEEL_CHECK(std::string_view(header.magic, sizeof header.magic) == kTokenFileMagic, "it does not begin with ",
             kTokenFileMagic);
  KEEL_CHECK(header.version == kTokenFileVersion || header.version == kTokenFileEndVersion, "its version is ",
             header.version, "; this program reads versions ", kTokenFileVersion, " and ", kTokenFileEndVersion);
  KEEL_CHECK(header.hash == hash_of(header), "its header is damaged: the hash does not match");
  KEEL_CHECK(header.vocabulary_size > 0 && header.vocabulary_size <= kMaxVocabulary, "its vocabulary has ",
             header.vocabulary_size, " tokens; 1 to ", kMaxVocabulary, " are possible");
  KEEL_CHECK(header.token_bytes == 2 || header.token_bytes == 4, "its tokens have ", header.token_bytes,
             " bytes, not 2 or 4");
  const std::uint64_t data_bytes = file.size() - sizeof(TokenHeader);
  KEEL_CHECK(data_bytes % header.token_bytes == 0 && data_bytes / header.token_bytes == header.count, "it should hold ",
             header.count, " tokens of ", header.token_bytes, " bytes, but ", data_bytes, " bytes follow the header",
             data_bytes / header.token_bytes < header.count ? ": it is truncated" : "");
  const auto end = end_of_document_of(header);
  const std::size_t last = sizeof header.tokenizer - 1 - (end ? sizeof *end : 0);
  KEEL_CHECK(header.tokenizer[last] == '\0', "the tokenizer's name has no end");
  KEEL_CHECK(!end || *end < header.vocabulary_size, "token ", *end, " ends its documents, and is outside of its ",
             header.vocabulary_size);
  return header;
}

// The largest of the tokens, and one more.
std::int64_t vocabulary_of(const Tokens& tokens) {
  std::vector<std::int32_t> piece(1 << 16);
  std::int64_t vocabulary = 0;
  for (std::int64_t done = 0; done < tokens.size(); done += std::ssize(piece)) {
    const auto here = std::span(piece).first(
        static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(piece), tokens.size() - done)));
    tokens.copy(done, here);
    vocabulary = std::max<std::int64_t>(vocabulary, std::int64_t{*std::max_element(here.begin(), here.end())} + 1);
  }
  return vocabulary;
}

TokenFile of_another_program(const std::shared_ptr<const InputFile>& file, const ForeignTokens& found) {
  const auto view = [&](std::int64_t vocabulary) {
    return Tokens(file, found.offset, found.count, found.token_bytes, vocabulary);
  };
  std::int64_t vocabulary = found.vocabulary;
  if (vocabulary == 0)
    vocabulary = found.count > kScannedTokens ? kGpt2Vocabulary : vocabulary_of(view(kMaxVocabulary));
  return {view(vocabulary), std::string(found.tokenizer),
          concat("'", file->path(), "' was read as a file of ", found.program, "'s: ", found.count, " tokens of ",
                 found.token_bytes, " bytes, of a vocabulary of ", vocabulary)};
}

std::string shown_end(const std::optional<std::uint32_t>& end) { return end ? concat("token ", *end) : "no token"; }

}  // namespace

TokenFile open_token_file(const std::string& path) {
  const auto opened = std::make_shared<const InputFile>(path);
  TokenFile file;
  try {
    if (const auto foreign = foreign_tokens(*opened)) {
      file = of_another_program(opened, *foreign);
    } else {
      const TokenHeader header = checked_header(*opened);
      file.tokenizer = header.tokenizer;
      file.end_of_document = end_of_document_of(header);
      file.tokens = Tokens(opened, sizeof header, static_cast<std::int64_t>(header.count),
                           static_cast<int>(header.token_bytes), static_cast<std::int64_t>(header.vocabulary_size));
    }
  } catch (const Error& error) { throw Error(concat("'", path, "' is not a valid token file: "), error); }
  if (file.tokens.size() <= kScannedTokens) file.tokens.check();
  return file;
}

std::vector<std::string> token_files_at(const std::string& path) {
  std::vector<std::string> files = files_at(path);
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return files;
  std::erase_if(files, [](const std::string& file) {
    return std::filesystem::path(file).filename() == "tokenizer.json" || is_unended_tokenizing(file);
  });
  KEEL_CHECK(!files.empty(), "there is no file of tokens in the folder '", path, "'");
  return files;
}

TokenFile open_token_files(const std::vector<std::string>& paths) {
  KEEL_CHECK(!paths.empty(), "there is no token file to be opened");
  TokenFile all;
  std::vector<Tokens> shards;
  std::optional<std::uint32_t> first_end;
  for (const std::string& path : paths) {
    TokenFile shard = open_token_file(path);
    if (shards.empty()) all = shard, first_end = shard.end_of_document;
    KEEL_CHECK(shard.tokenizer == all.tokenizer, "'", path, "' was made by tokenizer '", shard.tokenizer, "', and '",
               paths.front(), "' by '", all.tokenizer, "'; shards of one sequence have one tokenizer");
    if (shard.end_of_document != first_end && all.why_no_end.empty()) {
      all.end_of_document.reset();
      all.why_no_end = concat("'", paths.front(), "' says that ", shown_end(first_end), " ends a document, and '", path,
                              "' that ", shown_end(shard.end_of_document), " does");
    }
    shards.push_back(std::move(shard.tokens));
  }
  if (paths.size() > 1 && !all.note.empty()) all.note += concat("; so were ", paths.size() - 1, " more shards");
  all.tokens = Tokens::joined(std::move(shards));
  return all;
}

TokenFileWriter::TokenFileWriter(std::string path, std::int64_t vocabulary_size, std::string tokenizer)
    : file_(std::move(path)), vocabulary_size_(vocabulary_size), tokenizer_(std::move(tokenizer)) {
  const TokenHeader header = token_header(file_.path(), vocabulary_size_, tokenizer_, 0);
  file_.write(std::as_bytes(std::span(&header, 1)));
}

void TokenFileWriter::append(std::span<const std::uint32_t> tokens) {
  file_.write(token_bytes_of(file_.path(), tokens, vocabulary_size_, count_));
  count_ += std::ssize(tokens);
}

void TokenFileWriter::commit() {
  const TokenHeader header = token_header(file_.path(), vocabulary_size_, tokenizer_, count_);
  file_.rewrite(0, std::as_bytes(std::span(&header, 1)));
  file_.commit();
}

}  // namespace keel
