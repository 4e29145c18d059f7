#pragma once
// An optimizer that works on each number by itself.

#include <vector>

#include "learn/given/row.h"

namespace learn {

struct AdamState {
  std::vector<float> m = {}, v = {};  // means of the gradients and of their squares, 0 at first
  std::int64_t steps = 0;
};

// A step of Adam (Kingma and Ba, 2015). `weights`, `gradients` and the state have as many numbers, and may be
// a part of a model's: number i depends on numbers i alone.
void adam(Out weights, In gradients, AdamState& state);

}  // namespace learn
