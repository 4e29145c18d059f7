#include "keel/models/encoder_model.h"

namespace keel {

Variable EncoderModel::states(const EncoderInput& input, Forward& pass) const {
  const Scope scope(*this);
  return encode(input, pass);
}

Variable EncoderModel::operator()(const EncoderInput& input, Forward& pass) const {
  const Scope scope(*this);
  return apply_head(encode(input, pass), input, pass);
}

Variable EncoderModel::head_of(const Variable& states, const EncoderInput& input, Forward& pass) const {
  const Scope scope(*this);
  return apply_head(states, input, pass);
}

CrossEntropyLoss EncoderModel::masked_loss(const EncoderInput& input, const Tensor& labels, Forward& pass) const {
  const Scope scope(*this);
  return masked_loss_of(encode(input, pass), labels, pass);
}

}  // namespace keel
