#pragma once
// Documents packed into rows of one length, as a data set of rows.

#include <cstdint>
#include <functional>
#include <string>

#include "keel/data/collator.h"
#include "keel/data/dataset.h"

namespace keel {

// Fields of a row beside kInputIds and kLabels: the document that a token belongs to, from 0 on in each row and -1 in
// padding; and how far the token is from its document's beginning, 0 in padding.
inline constexpr std::string_view kDocuments = "documents", kPositions = "positions";

struct PackOptions {
  std::int64_t length = 0;           // tokens of a row, at least 1
  std::string tokens = "input_ids";  // the field of the examples below: a sequence of whole numbers
  // A field of as many numbers: what each token is as a target, -100 for none. Empty: the tokens themselves.
  std::string labels = {};
  std::int64_t padding = 0;    // the token that rows are filled up with
  std::int64_t window = 1024;  // neighbouring examples that may share rows, at most 2^32
  // Told how many of the examples below are counted.
  std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};
};

// Rows of `length` tokens: every document, the tokens of an example below, lies whole in one row, and every token in
// one place of one row. A document that is longer is cut after every `length` tokens, into documents of their own. Rows
// are filled by first fit, the longest document first (Johnson, "Near-optimal bin packing algorithms", 1973), from
// windows of neighbouring examples; examples without tokens are left out.
//
// Fields: input_ids, labels, documents and positions, each of `length` whole numbers. A label is the target that the
// next token of the document is, also where a long document was cut; -100 behind the last one and in padding. Attention
// that keeps documents apart, and positions, make a row compute what its documents do alone.
//
// Rows are made once, at the start, which reads every example below; 12 bytes for each of them and 8 for each row are
// kept. So they are the same in every epoch: a sampler orders them, an epoch has as many steps each time, and any step
// is found without those before it.
DatasetPtr pack(DatasetPtr below, const PackOptions& options);

// Stacks the fields, and counts as weight `tokens` the labels that are not -100: of rows that pack() or token_windows()
// makes. An Error where they have no labels. Documents stay on the host: attention asks where they begin.
Collator next_tokens();

}  // namespace keel
