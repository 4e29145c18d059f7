#pragma once
// The first rows that a configuration trains on, as its model sees them.

#include <cstdint>
#include <memory>
#include <string>

#include "keel/data/batch.h"
#include "keel/runtime/json.h"
#include "keel/tokenizers/tokenizer.h"
#include "keel/trainer/config.h"

namespace keel::cli {

// A row of a batch as text: sequences of tokens side by side, the first `most` of them, each with its text where there
// is a tokenizer; other fields behind their names.
std::string row_text(const Batch& batch, std::int64_t row, const Tokenizer* tokenizer, std::int64_t most, int width);

struct ModelRowsOptions {
  std::int64_t rows = 3, tokens = 16;
  int width = 80;
};
// Opens the data of the configuration, says on standard output how many rows a step and each validation set have, and
// shows the first rows of the first step. Returns the same as JSON, with whole sequences.
Json show_model_rows(Config config, const ModelRowsOptions& options);

}  // namespace keel::cli
