#pragma once
// A model of several layers, of which each rank has shards, and memory for whole layers, which is counted.

#include <cstdint>

#include "learn/given/ranks.h"

namespace learn {

// Memory for `count` numbers, given back at the end of its life.
class Buffer {
 public:
  explicit Buffer(std::int64_t count);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Out row() { return learn::row(numbers_); }

 private:
  std::vector<float> numbers_;
};

// The layers 0, 1, ... of a rank.
class Layers {
 public:
  virtual ~Layers() = default;
  virtual int count() const = 0;
  virtual std::int64_t weights(int layer) const = 0;  // how many the whole layer has
  virtual In shard(int layer) const = 0;              // those that the rank has
  virtual Out gradient(int layer) = 0;                // of the same weights; for the sum over all ranks

  // Need all weights of the layer, in a Buffer.
  virtual void forward(int layer, In weights) = 0;
  // Writes the rank's own gradient of all weights of the layer, of which there are as many.
  virtual void backward(int layer, In weights, Out gradients) = 0;
};

}  // namespace learn
