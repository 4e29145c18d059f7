#pragma once
// Rows of tokens without targets, for models that see each token among all others.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "keel/data/dataset.h"
#include "keel/data/tokens.h"

namespace keel {

struct DocumentRowOptions {
  std::int64_t length = 0;                          // tokens of a row at most, at least 1
  std::vector<std::string> fields = {"input_ids"};  // sequences of whole numbers, of one length in each example
  // Told how many of the examples below are counted.
  std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};
};

// Each example is a row; one that is longer is cut after every `length` tokens, and one without tokens is left out.
DatasetPtr cut_documents(DatasetPtr below, const DocumentRowOptions& options);

// Examples one behind the other, cut after every `length` tokens; the last row may have fewer. Every example is read
// once at the start, to be counted; 8 bytes for each are kept.
DatasetPtr joined_documents(DatasetPtr below, const DocumentRowOptions& options);

// The same of tokens, as field input_ids. `fingerprint`: of all tokens that these are of.
DatasetPtr cut_tokens(Tokens tokens, std::int64_t length, const std::string& fingerprint);

}  // namespace keel
