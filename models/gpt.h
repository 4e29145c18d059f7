#pragma once
// GPT-2: token and position embeddings, pre-norm blocks, a head tied to the token embedding.
//
// Radford et al. 2019, "Language models are unsupervised multitask learners". Weights start as
// N(0, 0.02), projections into the residual stream as N(0, 0.02 / sqrt(2 layers)), biases as zero.

#include <cstdint>
#include <string_view>
#include <vector>

#include "keel/models/causal_model.h"

namespace keel {

struct GptOptions {
  std::int64_t vocabulary = 50257;
  std::int64_t block = 1024;  // longest sequence
  int layers = 12;
  int heads = 12;
  std::int64_t width = 768;
  double dropout = 0;            // of embeddings and of what each part adds to the stream
  double attention_dropout = 0;  // of attention's weights
  bool bias = true;
};
// gpt2, gpt2-medium, gpt2-large, gpt2-xl; an Error lists them.
GptOptions gpt_by_name(std::string_view name);

// Floating-point operations of training on one token of a sequence of `block` tokens, for a share of a device's peak
// (MFU): 6 N + 6 L C T. Each of the N parameters, those of embeddings and norms among them, takes part in one
// multiplication and one addition forward and two of each backward; in each layer a token attends to T / 2 others on
// average, by two products over C. What is computed again is not counted. The formula is llm.c's; with 12 L C T, as
// others have it, for whom a token attends to all, the same speed is a higher share (by 7 % for gpt2).
double training_flops_of_token(const GptOptions& options, std::int64_t parameters);

class Gpt : public CausalModel {
 public:
  GptOptions options;
  Embedding wte;  // (vocabulary, width); its weight is also the head's
  Embedding wpe;  // (block, width)
  std::vector<TransformerBlock> h;
  LayerNorm ln_f;
  Linear lm_head;  // its weight is tied to wte.weight

  explicit Gpt(const GptOptions& options);

  std::int64_t vocabulary() const override { return options.vocabulary; }
  std::int64_t block() const override { return options.block; }
  KeyValueCache make_cache(std::int64_t batch, std::int64_t positions = 0) const override;
  const Linear& head() const override { return lm_head; }
  void visit(Visitor& v) override;

 protected:
  Variable states(const Tensor& tokens, Forward& pass, const PackedDocuments& documents) const override;
  Variable next_states(const Tensor& tokens, const CachedRows& rows) const override;
  // By logits of all positions at once: GPT-2's bits are golden.
  CrossEntropyLoss loss_of(const Variable& states, const Tensor& targets, Forward& pass) const override;

 private:
  void check(const Tensor& tokens, std::int64_t first_position) const;
  Variable embed(const Tensor& tokens, std::int64_t first_position) const;
  Variable embed(const Tensor& tokens, const PackedDocuments& documents) const;
};

}  // namespace keel
