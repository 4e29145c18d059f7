#pragma once
// Which parameters are matrices between hidden states, for optimizers that treat matrices as a whole.

#include <cstdint>
#include <map>
#include <vector>

#include "keel/nn/module.h"

namespace keel {

// By parameter, the rows of the matrices that it consists of, one below the other: a layer that is several in one
// product has one for each part. These are the weights of linear layers and of their adapters; not those of heads, nor
// what is also the table of an Embedding.
std::map<const Parameter::State*, std::vector<std::int64_t>> hidden_matrices(Module& model);

}  // namespace keel
