#pragma once
// What all encoders have in common: each token is seen among all others of its text, and a head says what of it is
// learnt.

#include <cstdint>
#include <string>
#include <vector>

#include "keel/autograd/loss.h"
#include "keel/nn/module.h"

namespace keel {

struct EncoderInput {
  Tensor tokens;        // i32 or i64 (batch, time)
  Tensor types = {};    // likewise: of a pair, which text a token belongs to; undefined: 0
  Tensor lengths = {};  // i64 (batch): what is at or past it is padding; undefined: nothing is
};

enum class EncoderHead : unsigned char {
  none,             // the states themselves
  masked_language,  // which token stood here: (batch, time, vocabulary)
  sequence,         // numbers of the whole text: (batch, outputs)
  tokens,           // numbers of each token: (batch, time, outputs)
  replaced,         // whether a token was replaced: (batch, time), one logit
};

// What the outputs of `sequence` are learnt by.
enum class HeadProblem : unsigned char {
  unspecified,
  regression,    // squared differences
  single_label,  // softmax
  multi_label,   // a sigmoid each
};

struct HeadOptions {
  EncoderHead head = EncoderHead::none;
  std::int64_t outputs = 0;  // classes, or numbers of a regression; of `sequence` and `tokens`
  // For config.json alone.
  std::vector<std::string> labels = {};  // of outputs; none: LABEL_0, LABEL_1, ...
  HeadProblem problem = HeadProblem::unspecified;
};

class EncoderModel : public Module {
 public:
  virtual std::int64_t vocabulary() const = 0;
  virtual std::int64_t block() const = 0;  // longest sequence, in tokens
  virtual std::int64_t token_types() const = 0;

  // (batch, time, width), behind the last layer. What stands at padding has no meaning.
  Variable states(const EncoderInput& input, Forward& pass) const;
  // What the head gives; see EncoderHead. An Error without a head.
  Variable operator()(const EncoderInput& input, Forward& pass) const;
  // What the head gives of states, of which masked_language takes any number of positions, (..., width).
  Variable head_of(const Variable& states, const EncoderInput& input, Forward& pass) const;
  // Of masked_language: mean cross-entropy of the labels (batch, time), i32 or i64, that are not -100, without logits
  // of the others. Labels in the processor's memory, which those of a model on a device may be, leave the others out of
  // the head's other layers, too.
  CrossEntropyLoss masked_loss(const EncoderInput& input, const Tensor& labels, Forward& pass) const;

  // Keep only each layer's input and compute it again during backward.
  bool recompute = false;

 protected:
  // Both are called within the model's Scope.
  virtual Variable encode(const EncoderInput& input, Forward& pass) const = 0;
  virtual Variable apply_head(const Variable& states, const EncoderInput& input, Forward& pass) const = 0;
  virtual CrossEntropyLoss masked_loss_of(const Variable& states, const Tensor& labels, Forward& pass) const = 0;
};

}  // namespace keel
