#pragma once
// A bidirectional transformer with layer norms behind each part: BERT and its relatives (models/encoder_family.h).
//
// Weights start as N(0, 0.02), biases as zero, as Devlin et al. 2019 have them.

#include <cstdint>
#include <memory>
#include <vector>

#include "keel/models/encoder_family.h"
#include "keel/models/encoder_head.h"
#include "keel/models/encoder_model.h"

namespace keel {

struct EncoderOptions {
  const EncoderFamily* family = nullptr;
  std::int64_t vocabulary = 0;
  std::int64_t block = 512;  // longest sequence
  int layers = 12;
  int heads = 12;
  std::int64_t width = 768;
  std::int64_t hidden = 0;       // of the feed-forward part; 0: 4 width
  std::int64_t embedding = 0;    // width of the embeddings; 0: width. Another one is projected to it
  std::int64_t token_types = 2;  // 0: there are none
  std::int64_t padding_token = 0;
  double dropout = 0;            // of embeddings and of what each part adds
  double attention_dropout = 0;  // of attention weights
  double head_dropout = 0;       // of heads' inputs
  double epsilon = 1e-12;
  ActivationKind activation = ActivationKind::gelu;

  std::int64_t inner_width() const { return hidden == 0 ? 4 * width : hidden; }
  std::int64_t embedding_width() const { return embedding == 0 ? width : embedding; }
  // The row of position 0 in the table of positions, which has `block` more.
  std::int64_t first_position() const { return family->positions_after_padding ? padding_token + 1 : 0; }
};

// y = norm(x + attention(x)), then norm(y + outer(activation(inner(y)))).
class EncoderLayer : public Module {
 public:
  Linear qkv;  // queries, keys and values in one product
  Linear attention_output;
  LayerNorm attention_norm;
  Linear inner, outer;
  LayerNorm norm;
  explicit EncoderLayer(const EncoderOptions& options);
  // x: (batch, time, width) -> the same shape. lengths: as EncoderInput has it.
  Variable operator()(const Variable& x, const Tensor& lengths, Forward& pass) const;
  void visit(Visitor& v) override;
  bool is_unit() const override { return true; }

 private:
  const EncoderFamily* family_;
  int heads_;
  ActivationKind activation_;
  Dropout dropout_;
  double attention_dropout_;
};

class Encoder : public EncoderModel {
 public:
  EncoderOptions options;
  HeadOptions head_options;
  Embedding words, positions;
  std::unique_ptr<Embedding> types;  // null: there are none
  LayerNorm embedding_norm;
  std::unique_ptr<Linear> projection;  // of embeddings to the width; null: they have it
  std::vector<EncoderLayer> layers;
  std::unique_ptr<EncoderHeadPart> head;  // null: EncoderHead::none

  Encoder(const EncoderOptions& options, const HeadOptions& head_options);

  std::int64_t vocabulary() const override { return options.vocabulary; }
  std::int64_t block() const override { return options.block; }
  std::int64_t token_types() const override { return options.token_types; }
  // With a head, names of the encoder begin with the family's `base`, as in transformers' files.
  void visit(Visitor& v) override;

 protected:
  Variable encode(const EncoderInput& input, Forward& pass) const override;
  Variable apply_head(const Variable& states, const EncoderInput& input, Forward& pass) const override;
  CrossEntropyLoss masked_loss_of(const Variable& states, const Tensor& labels, Forward& pass) const override;

 private:
  Variable embed(const EncoderInput& input) const;
  void check(const EncoderInput& input) const;
};

}  // namespace keel
