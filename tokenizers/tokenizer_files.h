#pragma once
// Files that tokenizers are published in.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizers/tokenizer.h"

namespace keel {

// tokenizer.json of the Tokenizers library, version 1.0. `place` names the file in messages. What is not supported,
// unknown or malformed is an Error with file, key and what is supported.
TokenizerPtr read_tokenizer_json(std::string_view json, const std::string& place);

// What Tokenizer::to_json() gives: tokenizer.json, or keel's own of bytes, characters and SentencePiece's models.
TokenizerPtr parse_tokenizer(std::string_view json, const std::string& place);

// vocab.txt of BERT: a token a line. Lower case unless tokenizer_config.json beside it says otherwise.
TokenizerPtr read_word_piece_vocabulary(const std::string& path);

// vocab.json and merges.txt (or encoder.json and vocab.bpe) of GPT-2 and its relatives.
TokenizerPtr read_byte_level_bpe(const std::string& vocabulary, const std::string& merges);

// A model of SentencePiece, through libsentencepiece; a build without it says so.
TokenizerPtr read_sentence_piece(const std::string& path);
TokenizerPtr make_sentence_piece(std::string model);  // from the file's bytes

// The first of these that a folder has: tokenizer.json (keel's own, too), spiece.model / tokenizer.model /
// sentencepiece.bpe.model, vocab.json + merges.txt, encoder.json + vocab.bpe, vocab.txt. A file's path reads that file.
// None is an Error that says what was looked for.
TokenizerPtr load_tokenizer(const std::string& path);

// Names of files that say more of a tokenizer than how it cuts texts: its special tokens, and its chat template.
std::span<const std::string_view> files_beside_tokenizer();
// Files that a copy of the tokenizer needs (`keel get --format hf`), of those in the folder.
std::vector<std::string> tokenizer_files(const std::string& folder);

}  // namespace keel
