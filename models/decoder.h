#pragma once
// Llama, Mistral, Qwen: one class, whose options are what they differ in.
//
// Touvron et al. 2023, "LLaMA: Open and efficient foundation language models"; Jiang et al. 2023, "Mistral 7B"; Yang
// et al. 2025, "Qwen3 technical report". Modules are called as Hugging Face's are. Weights start as N(0, deviation),
// norms as one, biases as zero.

#include <cstdint>
#include <optional>
#include <vector>

#include "keel/models/causal_model.h"
#include "keel/models/decoder_layer.h"
#include "keel/nn/rotary.h"

namespace keel {

struct DecoderOptions {
  std::int64_t vocabulary = 32000;
  std::int64_t block = 2048;  // longest sequence
  int layers = 1;
  DecoderLayerOptions layer = {};   // of all; its window is that of the layers in `windowed`
  std::vector<bool> windowed = {};  // one for each layer, or none: no layer has the window
  RotaryOptions rotary = {};        // its head_size is the layer's
  bool tied = false;                // the head is the token embedding

  std::int64_t window(int i) const;  // of this layer; 0: none
};

// Floating-point operations of training on one token of a sequence of `block` tokens: 6 of each of the N parameters
// that multiply (a token embedding of its own is looked up), and in each layer 12 S K of S = heads head_size and the K
// keys that a token sees on average: T / 2 of T, or W - W^2 / 2T within a window of W.
double training_flops_of_token(const DecoderOptions& options, std::int64_t parameters);

class RotaryDecoder : public CausalModel {
 public:
  DecoderOptions options;
  Embedding embed_tokens;  // (vocabulary, width)
  std::vector<DecoderLayer> layers;
  RMSNorm norm;
  Linear lm_head;  // its weight is tied to embed_tokens.weight where the options say so

  explicit RotaryDecoder(const DecoderOptions& options);

  std::int64_t vocabulary() const override { return options.vocabulary; }
  std::int64_t block() const override { return options.block; }
  KeyValueCache make_cache(std::int64_t batch, std::int64_t positions = 0) const override;
  bool mixes_lengths() const override;
  const Linear& head() const override { return lm_head; }
  void visit(Visitor& v) override;

 protected:
  Variable states(const Tensor& tokens, Forward& pass, const PackedDocuments& documents) const override;
  Variable next_states(const Tensor& tokens, const CachedRows& rows) const override;

 private:
  Rotary rotary_of(const Tensor& tokens, std::int64_t first) const;
  // Each document is turned as it is alone, also where frequencies depend on its length.
  Rotary rotary_of(const Tensor& tokens, const PackedDocuments& documents) const;
  // An Error where tokens (batch, time) behind `first` others reach beyond the block.
  std::int64_t checked_end(const Tensor& tokens, std::int64_t first) const;
  RotaryPart part_of(std::int64_t length) const;
  const RotaryTable& table_of(const std::vector<RotaryPart>& parts) const;

  // Tables are made when a pass needs them: a model's longest text may be much longer than what it ever reads.
  struct Turns {
    std::vector<RotaryPart> parts;
    RotaryTable table;
  };
  mutable std::optional<Turns> turns_;
};

}  // namespace keel
