#pragma once
// A source of which only the first steps of each epoch are taken.

#include <cstdint>
#include <memory>

#include "keel/data/batch.h"

namespace keel {

// The first `steps` steps, at least 1, of each epoch of `source`: step t of the result is step t mod `steps` of epoch
// t / `steps`, rounded down. The source itself where its epochs have no more. An Error where it has no epochs, or where
// they end inside a step.
std::shared_ptr<const BatchSource> limited_epochs(std::shared_ptr<const BatchSource> source, std::int64_t steps);

}  // namespace keel
