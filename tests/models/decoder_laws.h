#pragma once
// What holds of every causal decoder of 61 tokens and blocks of 16.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "keel/autograd/backward.h"
#include "keel/models/causal_model.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel::testing {

inline Tensor token_ids(const Context& context, const Dims& shape) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < product(shape); ++i) ids.push_back(i * i * 7 % 61);
  return from_values(context, ids, shape);
}

// Read in parts, then one by one, tokens have the logits of the whole sequence.
inline void expect_logits_of_a_cache(const CausalModel& model, KeyValueCache& cache, std::int64_t time) {
  const Tensor tokens = token_ids(model.context(), {2, time});
  Forward pass;
  const Tensor whole = model(tokens, pass).value();
  model.next_logits(tokens.slice(1, 0, 5), cache);
  model.next_logits(tokens.slice(1, 5, 7), cache);
  for (std::int64_t t = 7; t < time; ++t) {
    const Tensor logits = model.next_logits(tokens.slice(1, t, t + 1), cache);
    ASSERT_EQ(logits.shape(), (Dims{2, 61}));
    EXPECT_LT(relative_error(doubles(logits), doubles(whole.select(1, t))), 1e-5) << t;
  }
}

inline Tensor tokens_at(const Tensor& tokens, const AttentionSpan& span) {
  return tokens.slice(0, span.row, span.row + 1).slice(1, span.begin, span.end);
}

// A document at each span, in order; they are counted in each row, and what lies between them is padding.
inline PackedDocuments documents_at(const Context& context, const Dims& shape,
                                    const std::vector<AttentionSpan>& spans) {
  std::vector<std::int32_t> documents(static_cast<std::size_t>(product(shape)), -1), positions(documents.size(), 0);
  std::int32_t document = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const auto& [row, begin, end] = spans[i];
    document = i > 0 && spans[i - 1].row == row ? document + 1 : 0;
    for (std::int64_t t = begin; t < end; ++t) {
      const auto at = static_cast<std::size_t>(shape[1] * row + t);
      documents[at] = document;
      positions[at] = static_cast<std::int32_t>(t - begin);
    }
  }
  PackedDocuments packed = {spans_of(from_values(context, documents, shape)), from_values(context, positions, shape)};
  EXPECT_EQ(*packed.spans, spans);
  return packed;
}

// Rows of a matrix product, by keel's own kernels, have the same bits whatever other rows there are.
inline void expect_bits_of_each_alone(const CausalModel& model, const Tensor& tokens, const PackedDocuments& packed) {
  Forward pass;
  const Tensor logits = model(tokens, pass, packed).value();
  for (const AttentionSpan& span : *packed.spans)
    EXPECT_EQ(doubles(model(tokens_at(tokens, span), pass).value().select(0, 0)),
              doubles(logits.select(0, span.row).slice(0, span.begin, span.end)))
        << span.row << ' ' << span.begin;
}

struct DecoderStep {
  std::size_t kept;             // bytes from forward to backward
  std::vector<double> results;  // the loss, and all gradients
};
// A step of training, whose dropout is drawn by one seed.
inline DecoderStep step_of(CausalModel& model, bool recompute, const Tensor& tokens) {
  const Context& context = tokens.context();
  model.recompute = recompute;
  const std::vector<FlatBuffer> buffers = materialize(model, context);
  const Tensor ids = token_ids(context, {tokens.dim(0)});
  const std::size_t before = context.memory().total.current;
  Forward pass{.training = true, .random = {.seed = 3}, .sample_ids = ids};
  const CrossEntropyLoss loss = model.loss(tokens, tokens, pass);
  DecoderStep step = {context.memory().total.current - before, doubles(loss.loss.value())};
  backward(loss.loss);
  for (const FlatBuffer& buffer : buffers)
    for (const double value : doubles(buffer.gradient)) step.results.push_back(value);
  return step;
}

// Why the model does not read tokens of a shape; empty: it does.
inline std::string refusal_of_tokens(const CausalModel& model, const Dims& shape) {
  return error_of([&] {
    Forward pass;
    model(zeros(model.context(), shape, DType::i64), pass);
  });
}

}  // namespace keel::testing
