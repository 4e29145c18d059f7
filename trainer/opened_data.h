#pragma once
// What a run learns: its data, tokenizer and model shape, opened and checked before anything is written.

#include <memory>
#include <string>

#include "keel/data/batch.h"
#include "keel/data/tokenizer.h"
#include "keel/nn/models/gpt.h"
#include "keel/trainer/config.h"

namespace keel {

struct OpenedData {
  std::shared_ptr<const BatchSource> training;    // endless; batch.global rows a step
  std::shared_ptr<const BatchSource> validation;  // null where nothing is held out
  std::int64_t validation_batches = 0;            // of one evaluation
  bool answers = false;                           // held-out tasks are right or wrong as a whole: report exact match
  std::shared_ptr<const Tokenizer> tokenizer;     // null for a token file without one
  std::int64_t vocabulary = 0;                    // tokens of the data
  std::string note;                               // on what the data was taken for; empty: nothing
  std::string fingerprint = {};                   // of the file's tokens (data_fingerprint.h); empty without a file
};

// Opens the data. Missing, empty, too short or malformed data is an Error that says what to do.
OpenedData open_data(const Config& config, const Context& context);

// The model's shape; `vocabulary` is that of the data. A model that cannot hold the data is an Error.
GptOptions gpt_options(const Config& config, std::int64_t vocabulary);

// A warning where most rows of the model's embedding belong to no token of the data; else empty.
std::string unused_rows_note(const Config& config, std::int64_t vocabulary);

}  // namespace keel
