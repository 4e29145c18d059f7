#pragma once
// `keel predict` of the task `masked_language`: which tokens stand where a text has the mask token.

#include <cstdint>
#include <memory>
#include <string>

#include "keel/data/batch.h"
#include "keel/models/encoder_model.h"
#include "keel/tasks/predictions.h"
#include "keel/tasks/task.h"
#include "keel/tokenizers/tokenizer.h"

namespace keel {

struct MaskedTexts {
  TokenizerPtr tokenizer;
  std::int32_t mask_token = 0, padding_token = 0;
  std::int64_t length = 1;  // tokens of a text at most, special ones among them
};
// The texts of a file, in order, with special tokens. One without a mask token, or of more tokens, is an Error.
std::shared_ptr<const BatchSource> masked_texts(const TaskSite& site, const std::string& path, const MaskedTexts& form);

// {"masks":[[{"token":"sea","probability":0.25},...],...]}: of each mask in the text's order the five likeliest tokens.
void fill_masks(const EncoderModel& model, const MaskedTexts& form, const Batch& batch, Forward& pass,
                Predictions& out);

// Logits (n, vocabulary) of n positions, i64 (n), each counted through all of (batch, time).
Tensor logits_at(const EncoderModel& model, const EncoderInput& input, const Tensor& positions, Forward& pass);

}  // namespace keel
