#pragma once
// What all decoders have in common: next tokens from those before, for training and, with a cache, for generation.

#include <algorithm>
#include <cstdint>

#include "keel/autograd/attention_spans.h"
#include "keel/autograd/loss.h"
#include "keel/nn/layers.h"
#include "keel/nn/transformer.h"

namespace keel {

// Several documents in a row, which do not see each other. Null spans: a row is one text from position 0 on.
struct PackedDocuments {
  AttentionSpans spans = {};
  Tensor positions = {};  // i32 or i64 (batch, time): how far each token is from its document's beginning
};

class CausalModel : public Module {
 public:
  virtual std::int64_t vocabulary() const = 0;
  virtual std::int64_t block() const = 0;  // longest sequence, in tokens

  // tokens: i32 or i64 (batch, time), time <= block -> logits (batch, time, vocabulary).
  // Packed documents have the logits that each has alone.
  Variable operator()(const Tensor& tokens, Forward& pass, const PackedDocuments& documents = {}) const;
  // Mean cross-entropy against targets (batch, time); targets equal to -100 do not count.
  CrossEntropyLoss loss(const Tensor& tokens, const Tensor& targets, Forward& pass,
                        const PackedDocuments& documents = {}) const;

  // Logits (n, vocabulary) of n positions, i64 (n), each counted through all of (batch, time).
  Variable logits_at(const Tensor& positions, const Tensor& tokens, Forward& pass,
                     const PackedDocuments& documents = {}) const;

  // Logits (batch, vocabulary) of the last position, for tokens that follow what the cache holds: of all of its rows,
  // or of `rows` alone.
  Tensor next_logits(const Tensor& tokens, KeyValueCache& cache) const;
  Tensor next_logits(const Tensor& tokens, CachedRows rows) const;
  // Whether one pass may read rows of different lengths.
  virtual bool mixes_lengths() const { return true; }
  // Room for so many positions, but no more than block(); 0: block().
  virtual KeyValueCache make_cache(std::int64_t batch, std::int64_t positions = 0) const = 0;

  // Keep only each block's input and compute it again during backward.
  bool recompute = false;

  const Context& context() const { return head().weight.value().context(); }

  // (vocabulary, width), without a bias: logits of what states() gives.
  virtual const Linear& head() const = 0;

 protected:
  // Behind the last norm, (batch, time, width); called within the model's Scope.
  virtual Variable states(const Tensor& tokens, Forward& pass, const PackedDocuments& documents) const = 0;
  // The same without gradients, of tokens behind what the rows hold, which their keys and values join.
  virtual Variable next_states(const Tensor& tokens, const CachedRows& rows) const = 0;
  // The default has logits of a block of rows and classes at a time, and keeps all of them on a processor where they
  // are few (kLogitsWorthKeeping in keel/autograd/linear_cross_entropy.h).
  virtual CrossEntropyLoss loss_of(const Variable& states, const Tensor& targets, Forward& pass) const;

  std::int64_t cache_positions(std::int64_t asked) const { return asked > 0 ? std::min(asked, block()) : block(); }
};

}  // namespace keel
