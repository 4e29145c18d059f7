#pragma once
// A chain of layers, as the exercise checkpointing trains it. What is alive and what is computed is counted.

#include <cstdint>
#include <utility>
#include <vector>

namespace learn {

// A place in a stream of random numbers. Who begins with a copy gets the same numbers again.
struct Random {
  std::uint64_t seed = 0, next = 0;
  bool operator==(const Random&) const = default;
};

// What a layer reads or writes, or the derivative of the loss with respect to it. A copy takes as much memory
// again; an activation that was moved from, or made of nothing, is empty and takes none.
class Activation {
 public:
  Activation() = default;
  Activation(const Activation& other);
  Activation(Activation&& other) noexcept { swap(other); }
  Activation& operator=(Activation other) noexcept {
    swap(other);
    return *this;
  }
  ~Activation();
  bool empty() const { return numbers_.empty(); }

 private:
  friend class Chain;
  void swap(Activation& other) noexcept;

  std::vector<float> numbers_;
  int place_ = 0;  // i: between layer i - 1 and layer i
  bool gradient_ = false;
  std::uint64_t draw_ = 0;  // the random number that chose its dropout mask
};

class Chain {
 public:
  Chain(int layers, float dropout);

  int size() const { return static_cast<int>(layers_.size()); }

  // y of layer `layer`, which is counted from 0. The layer drops some of y at random, and moves `random` on.
  Activation forward(int layer, const Activation& x, Random& random);
  // dy of the last layer, whose y this is.
  Activation loss_gradient(const Activation& y);
  // dx of layer `layer`, which has made y from x. Its weights' gradients are added up inside of the chain.
  Activation backward(int layer, const Activation& x, const Activation& y, const Activation& dy);

  // ---- for the check ----
  struct Layer {
    float weight, neighbour, bias;
    float weight_gradient = 0, neighbour_gradient = 0, bias_gradient = 0;
    int forwards = 0, backwards = 0;
    std::uint64_t first_draw = 0;
  };
  const std::vector<Layer>& layers() const { return layers_; }
  std::int64_t forwards() const;
  static Activation input();
  static const std::vector<float>& numbers_of(const Activation& activation) { return activation.numbers_; }
  static int place_of(const Activation& activation) { return activation.gradient_ ? activation.place_ : -1; }

 private:
  Layer& at(int layer);
  float mask(std::uint64_t draw, std::size_t i) const;
  std::vector<float> output(const Layer& layer, const std::vector<float>& x, std::uint64_t draw) const;

  std::vector<Layer> layers_;
  float dropout_;
};

}  // namespace learn
