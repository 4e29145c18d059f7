#pragma once
// What stands on an encoder's states: see EncoderHead.

#include <memory>

#include "keel/models/encoder_model.h"
#include "keel/nn/layers.h"

namespace keel {

struct EncoderOptions;

// activation(layer(x)), in one product where there is one for it.
Variable activated(const Linear& layer, ActivationKind activation, const Variable& x, Forward& pass);

// visit() gives names from the model's root on.
class EncoderHeadPart : public Module {
 public:
  // states: (batch, time, width).
  virtual Variable operator()(const Variable& states, Forward& pass) const = 0;
  // The default refuses: the head does not say which token stood where.
  virtual CrossEntropyLoss masked_loss(const Variable& states, const Tensor& labels) const;
};

// `words`: the table of token embeddings, (vocabulary, embedding width). Null for EncoderHead::none; an Error where the
// family has no such head, or the number of outputs is missing.
std::unique_ptr<EncoderHeadPart> make_encoder_head(const EncoderOptions& options, const HeadOptions& head,
                                                   const Parameter& words);

}  // namespace keel
