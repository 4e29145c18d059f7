#pragma once
// A source whose sequences are cut to a length that depends on the step.

#include <cstdint>
#include <functional>
#include <memory>

#include "keel/data/batch.h"

namespace keel {

// Positions of a step that are kept, from 1 to `whole`.
using LengthOfStep = std::function<std::int64_t(std::int64_t step)>;

// The batches of `source`, of whose sequences the first positions stay. A field of two extents or more whose second is
// `whole` is one of sequences; "lengths" are those of what is left. The weight `tokens` is counted again: by "lengths"
// where the batch has it, else by the labels that are not kIgnoreTarget, and by them, too, where `tokens` was their
// number in whole sequences; `positions` is all that is left, and `rows` stays. A batch with another weight, or without
// sequences of that length, is an Error.
std::shared_ptr<const BatchSource> shortened(std::shared_ptr<const BatchSource> source, std::int64_t whole,
                                             LengthOfStep length);

}  // namespace keel
