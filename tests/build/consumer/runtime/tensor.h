#pragma once
// The embedding code's own tensor, which has nothing to do with keel's.

namespace consumer {
struct Tensor {
  double values[3] = {1, 2, 3};
};
}  // namespace consumer
