#pragma once
// Texts as files of tokens: several of them, on several threads, going on where an earlier run was ended.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/context.h"
#include "keel/tokenizers/tokenizer.h"

namespace keel {

// What is encoded by itself, so that no token reaches into the next one.
enum class Documents : unsigned char {
  by_kind,  // of .jsonl and tables the field `text` of each row; else the file
  file,
  line,  // each that is not empty, without its line feed
};

struct TokenizeOptions {
  std::vector<std::string>
      files;        // texts, also ones that gzip has compressed, or folders of them (keel/data/file_list.h)
  std::string out;  // "corpus.bin", or with shards corpus-00000.bin, corpus-00001.bin, ...
  std::int64_t shard_tokens = 0;  // of a shard, which may have more by its last document's part; 0: one file
  Documents documents = Documents::by_kind;
  std::optional<std::uint32_t> end_of_document = {};   // a token behind each document
  std::uint64_t save_every = std::uint64_t{64} << 20;  // bytes of text, after which a killed run can go on
  // Told how many of the texts' bytes are done; may throw.
  std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};
};

struct TokenizedFiles {
  std::vector<std::string> paths;  // of the files of tokens
  std::int64_t tokens = 0, documents = 0;
  std::uint64_t bytes = 0;       // of all texts
  std::uint64_t went_on_at = 0;  // of the bytes: done by an earlier run; 0: none was found
  std::string note = {};  // why what an earlier run left could not be gone on with; empty: it could, or there was none
};

// Encodes the files in their order. The tokens are those of each document by itself, whatever the number of threads and
// however often the work was ended between; a file that is one document is encoded by parts where the tokenizer has
// borders (Tokenizer::last_border()), else at once, which is an Error from 1 GiB on. While it works there are
// OUT.partial, OUT.partial.json and OUT.partial.lock; the files appear whole. A text that cannot be read or encoded is
// an Error that names the file.
TokenizedFiles tokenize_files(const Context& context, const Tokenizer& tokenizer, const TokenizeOptions& options);

// Whether it is the name of a file that such work keeps beside OUT until it has ended.
bool is_unended_tokenizing(std::string_view path);

}  // namespace keel
