#pragma once
// GPT-2: token and position embeddings, pre-norm blocks, a head tied to the token embedding.
//
// Radford et al. 2019, "Language models are unsupervised multitask learners". Weights start as
// N(0, 0.02), projections into the residual stream as N(0, 0.02 / sqrt(2 layers)), biases as zero.

#include <functional>
#include <span>
#include <string_view>

#include "keel/autograd/loss.h"
#include "keel/nn/transformer.h"

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

// Several documents in a row, which do not see each other. Null spans: a row is one text from position 0 on.
struct PackedDocuments {
  AttentionSpans spans = {};
  Tensor positions = {};  // i32 or i64 (batch, time): how far each token is from its document's beginning
};

class Gpt : public Module {
 public:
  GptOptions options;
  Embedding wte;  // (vocabulary, width); its weight is also the head's
  Embedding wpe;  // (block, width)
  std::vector<TransformerBlock> h;
  LayerNorm ln_f;
  Parameter head;          // tied to wte.weight
  bool recompute = false;  // keep only each block's input and compute it again during backward

  explicit Gpt(const GptOptions& options);

  // tokens: i32 or i64 (batch, time), time <= block -> logits (batch, time, vocabulary).
  // Packed documents have the logits that each has alone.
  Variable operator()(const Tensor& tokens, Forward& pass, const PackedDocuments& documents = {}) const;
  // Mean cross-entropy against targets (batch, time); targets equal to -100 do not count.
  CrossEntropyLoss loss(const Tensor& tokens, const Tensor& targets, Forward& pass,
                        const PackedDocuments& documents = {}) const;

  // Logits (batch, vocabulary) of the last position, for tokens that follow what the cache holds.
  Tensor next_logits(const Tensor& tokens, KeyValueCache& cache) const;
  KeyValueCache make_cache(std::int64_t batch) const;

  void visit(Visitor& v) override;

 private:
  Variable embed(const Tensor& tokens, std::int64_t first_position) const;
  Variable embed(const Tensor& tokens, const PackedDocuments& documents) const;
};

struct SamplingOptions {
  std::int64_t tokens = 100;
  double temperature = 1;  // 0 takes the likeliest token
  std::int64_t top_k = 0;  // 0 means all
  std::uint64_t seed = 1;
};
// Continues `prompt` (at least one token), calling on_token for each new one; returning false stops.
// Past the block length the context slides: the newer half is read again.
void generate(const Gpt& model, std::span<const std::int64_t> prompt, const SamplingOptions& options,
              const std::function<bool(std::int64_t token)>& on_token);

}  // namespace keel
