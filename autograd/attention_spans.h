#pragma once
// Attention within stretches of rows: documents that share a row do not see each other.

#include <cstdint>
#include <memory>
#include <vector>

#include "keel/autograd/attention.h"

namespace keel {

// Positions [begin, end) of a row of a batch.
struct AttentionSpan {
  std::int64_t row = 0, begin = 0, end = 0;
  bool operator==(const AttentionSpan&) const = default;
};
using AttentionSpans = std::shared_ptr<const std::vector<AttentionSpan>>;

// The documents of packed rows: neighbours of equal numbers in `documents`, i32 (batch, time) in the processor's
// memory. What is below 0 is padding, and no document.
AttentionSpans spans_of(const Tensor& documents);
// An Error where spans are outside of qkv (batch, time, ...) or go with options that they have no place for. Returns
// how many positions they have.
std::int64_t check_spans(const std::vector<AttentionSpan>& spans, const Tensor& qkv, const AttentionOptions& options);

// attention_packed() (keel/autograd/attention.h) of each span for itself, with the bits that a batch of that span alone
// has; the work is that of the spans, not of the rows. Outside the spans, which must not overlap, output and gradient
// are 0. Null: the same as attention_packed(). A window counts as usual; dropout takes its masks from places in the
// row, so that the sample's id is the row's. Spans with an offset, starts or lengths, or outside of the rows, are an
// Error.
Variable attention_packed(const Variable& qkv, int heads, int kv_heads, const AttentionSpans& spans,
                          const AttentionOptions& options);

}  // namespace keel
