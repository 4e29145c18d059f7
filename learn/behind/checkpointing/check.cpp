#include "learn/given/chain.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "learn/behind/check.h"

learn::Activation gradient(learn::Chain& chain, learn::Activation x, learn::Random& random);

namespace learn {
namespace {

constexpr std::size_t kWidth = 8;  // numbers of an activation
std::int64_t alive = 0, peak = 0;  // activations that are not empty

void born() { peak = std::max(peak, ++alive); }

// SplitMix64's finaliser (Steele, Lea and Flood 2014).
std::uint64_t scrambled(std::uint64_t z) {
  z = (z + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

Activation::Activation(const Activation& other)
    : numbers_(other.numbers_), place_(other.place_), gradient_(other.gradient_), draw_(other.draw_) {
  if (!empty()) born();
}
Activation::~Activation() {
  if (!empty()) --alive;
}
void Activation::swap(Activation& other) noexcept {
  numbers_.swap(other.numbers_);
  std::swap(place_, other.place_);
  std::swap(gradient_, other.gradient_);
  std::swap(draw_, other.draw_);
}

Chain::Chain(int layers, float dropout) : dropout_(dropout) {
  const std::vector<float> numbers = draw(3 * layers, static_cast<std::uint64_t>(layers));
  for (std::size_t i = 0; i < numbers.size(); i += 3)
    layers_.push_back(
        {.weight = 1.2F + 0.3F * numbers[i], .neighbour = numbers[i + 1], .bias = 0.2F * numbers[i + 2]});
}

Activation Chain::input() {
  Activation x;
  x.numbers_ = draw(kWidth, 77);
  born();
  return x;
}

std::int64_t Chain::forwards() const {
  std::int64_t sum = 0;
  for (const Layer& layer : layers_) sum += layer.forwards;
  return sum;
}

Chain::Layer& Chain::at(int layer) {
  if (layer < 0 || layer >= size())
    wrong(
        "Layer {} was asked for, and the chain has {}: 0 to {}.\nThe last segment is shorter, where the "
        "number of layers is no multiple of its length.",
        layer, size(), size() - 1);
  return layers_[static_cast<std::size_t>(layer)];
}

float Chain::mask(std::uint64_t draw, std::size_t i) const {
  const std::uint64_t bits = scrambled(draw * kWidth + i) >> 40;
  return static_cast<float>(bits) * 0x1p-24F < dropout_ ? 0 : 1 / (1 - dropout_);
}

// y[i] = mask[i] tanh(weight x[i] + neighbour x[i + 1] + bias), around in a ring.
std::vector<float> Chain::output(const Layer& layer, const std::vector<float>& x, std::uint64_t draw) const {
  std::vector<float> y(kWidth);
  for (std::size_t i = 0; i < kWidth; ++i)
    y[i] =
        mask(draw, i) * std::tanh(layer.weight * x[i] + layer.neighbour * x[(i + 1) % kWidth] + layer.bias);
  return y;
}

Activation Chain::forward(int layer, const Activation& x, Random& random) {
  Layer& self = at(layer);
  if (x.empty())
    wrong("forward({}) was given an activation that is empty: it was moved away, or never computed.", layer);
  if (x.gradient_) wrong("forward({}) was given a gradient in place of an activation.", layer);
  if (x.place_ != layer)
    wrong("forward({}) was given {}, and needs {}.", layer,
          x.place_ == 0 ? std::string("x of the chain") : fmt::format("y of layer {}", x.place_ - 1),
          layer == 0 ? std::string("x of the chain") : fmt::format("y of layer {}", layer - 1));
  Activation y;
  y.place_ = layer + 1;
  y.draw_ = scrambled(random.seed) + random.next++;
  if (self.forwards++ == 0) self.first_draw = y.draw_;
  y.numbers_ = output(self, x.numbers_, y.draw_);
  born();
  return y;
}

Activation Chain::loss_gradient(const Activation& y) {
  if (y.empty() || y.gradient_ || y.place_ != size())
    wrong("loss_gradient() was given {}, and needs y of the last layer, {}.",
          y.empty()       ? std::string("an activation that is empty")
          : y.gradient_   ? std::string("a gradient")
          : y.place_ == 0 ? std::string("x of the chain")
                          : fmt::format("y of layer {}", y.place_ - 1),
          size() - 1);
  Activation dy;
  for (const float v : y.numbers_) dy.numbers_.push_back(2 * v + 0.25F);
  born();
  dy.place_ = size();
  dy.gradient_ = true;
  return dy;
}

Activation Chain::backward(int layer, const Activation& x, const Activation& y, const Activation& dy) {
  Layer& self = at(layer);
  for (const auto& [name, given, place, gradient] :
       {std::tuple("x", &x, layer, false), std::tuple("y", &y, layer + 1, false),
        std::tuple("dy", &dy, layer + 1, true)}) {
    if (given->empty())
      wrong("backward({}) was given an empty {}: it was moved away, or never computed.", layer, name);
    if (given->gradient_ != gradient)
      wrong("backward({}) was given {} as {}.", layer, gradient ? "an activation" : "a gradient", name);
    if (given->place_ != place)
      wrong("backward({}) was given a {} that belongs {} layer {}, and needs that {} layer {}.", layer, name,
            place == layer ? "in front of" : "behind", place == layer ? given->place_ : given->place_ - 1,
            place == layer ? "in front of" : "behind", layer);
  }
  if (dropout_ > 0 && y.draw_ != self.first_draw)
    wrong(
        "Layer {} was computed once more with another random number than in the first pass, so its dropout "
        "mask is another, too, and the gradient is that of another function. Keep a copy of `random` from "
        "before the segment, and begin with a copy of that again.",
        layer);
  if (y.numbers_ != output(self, x.numbers_, y.draw_))
    wrong("backward({}) was given a y that was computed from another x.", layer);
  if (self.backwards++ > 0)
    wrong("backward({}) was called a second time: its weights' gradients would count twice.", layer);
  Activation dx;
  dx.numbers_.resize(kWidth);
  born();
  dx.place_ = layer;
  dx.gradient_ = true;
  for (std::size_t i = 0; i < kWidth; ++i) {
    const std::size_t next = (i + 1) % kWidth;
    const float t = std::tanh(self.weight * x.numbers_[i] + self.neighbour * x.numbers_[next] + self.bias);
    const float inside = dy.numbers_[i] * mask(y.draw_, i) * (1 - t * t);
    dx.numbers_[i] += self.weight * inside;
    dx.numbers_[next] += self.neighbour * inside;
    self.weight_gradient += inside * x.numbers_[i];
    self.neighbour_gradient += inside * x.numbers_[next];
    self.bias_gradient += inside;
  }
  return dx;
}

}  // namespace learn

namespace {

using learn::Activation, learn::Chain, learn::Random;

// Without checkpointing.
Activation by_keeping_all(Chain& chain, Random& random) {
  std::vector<Activation> all;
  all.push_back(Chain::input());
  for (int i = 0; i < chain.size(); ++i) all.push_back(chain.forward(i, all.back(), random));
  Activation dy = chain.loss_gradient(all.back());
  for (int i = chain.size() - 1; i >= 0; --i)
    dy = chain.backward(i, all[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(i) + 1], dy);
  return dy;
}

struct Bounds {
  bool memory = false, forwards = false, random = false;
};

void expect_memory(int n) {
  const auto root = static_cast<int>(std::ceil(std::sqrt(n)));
  const std::int64_t most = 2 * root + 6;
  if (learn::peak <= most) return;
  std::string what = fmt::format(
      "Of {} layers, {} activations were alive at a time, gradients among them, and 2 x {} + 6 = {} are "
      "allowed.\n",
      n, learn::peak, root, most);
  if (learn::peak >= n)
    what +=
        "That is as many as without checkpointing: keep only what goes into each segment, and let go of a "
        "segment's inside when its backward is over.";
  else
    what += fmt::format(
        "With segments of {} layers about {} inputs are kept, and as many activations are inside of one. The "
        "segments have a fixed length, are much longer or shorter than that, or their inside is kept too "
        "long.",
        root, root);
  learn::wrong(what);
}

void expect_forwards(const Chain& chain) {
  const std::int64_t n = chain.size(), made = chain.forwards();
  if (made <= 2 * n) return;
  std::string what =
      fmt::format("Of {} layers, {} forward passes of a layer were made, and 2 x {} = {} are allowed.\n", n,
                  made, n, 2 * n);
  const auto most = std::ranges::max_element(chain.layers(), {}, &Chain::Layer::forwards);
  const auto layer = most - chain.layers().begin();
  what += fmt::format("Layer {} was computed {} times. ", layer, most->forwards);
  what += most->forwards > n / 2 ? "Each layer's input is computed from the beginning of the chain: keep the "
                                   "input of each segment, and begin there."
                                 : "A segment has to be computed once more as a whole, and its inside kept "
                                   "until it is gone back through.";
  learn::wrong(what);
}

void expect(int layers, float dropout, const Bounds& bounds) {
  Chain plain(layers, dropout), chain(layers, dropout);
  const Random start = {.seed = 5, .next = 1000};
  Random once = start, random = start;
  const Activation expected = by_keeping_all(plain, once);
  learn::alive = learn::peak = 0;  // what is alive outside of gradient() does not count
  Activation x = Chain::input();
  const Activation dx = gradient(chain, std::move(x), random);
  if (chain.forwards() == 0 && dx.empty())
    learn::wrong("gradient() has not gone through the chain yet, and what it returned is empty.");
  for (int i = 0; i < layers; ++i)
    if (chain.layers()[static_cast<std::size_t>(i)].backwards != 1)
      learn::wrong("Of {} layers, the backward of layer {} was not called.", layers, i);
  if (dx.empty() || Chain::place_of(dx) != 0)
    learn::wrong("gradient() has to return dx of layer 0, and returned {}.",
                 dx.empty() ? "an activation that is empty" : "another");
  if (Chain::numbers_of(dx) != Chain::numbers_of(expected))
    learn::wrong("Of {} layers, dx[0] is {:.9g}, and {:.9g} without checkpointing.", layers,
                 Chain::numbers_of(dx)[0], Chain::numbers_of(expected)[0]);
  for (std::size_t i = 0; i < plain.layers().size(); ++i)
    if (chain.layers()[i].weight_gradient != plain.layers()[i].weight_gradient)
      learn::wrong("The gradient of layer {}'s weight is {:.9g}, and {:.9g} without checkpointing.", i,
                   chain.layers()[i].weight_gradient, plain.layers()[i].weight_gradient);
  if (bounds.memory) expect_memory(layers);
  if (bounds.forwards) expect_forwards(chain);
  if (bounds.random && random != once)
    learn::wrong("{} layers have drawn {} numbers, and `random` has moved on by {}. {}", layers, layers,
                 static_cast<std::int64_t>(random.next - start.next),
                 random.next < once.next ? "Whoever draws next draws the numbers of this one again: let a "
                                           "segment that is computed once more move a copy."
                                         : "What comes next would depend on checkpointing: let a segment "
                                           "that is computed once more move a copy.");
}

}  // namespace

int main() {
  return learn::run({
      {"one layer gives its gradient", [] { expect(1, 0, {}); }},
      {"four layers give theirs, the last one first", [] { expect(4, 0, {}); }},
      {"of 64 layers at most 22 activations are alive", [] { expect(64, 0, {.memory = true}); }},
      {"no layer is computed more than twice on the average",
       [] { expect(64, 0, {.memory = true, .forwards = true}); }},
      {"dropout has the same masks when a segment is computed once more",
       [] { expect(36, 0.5F, {.memory = true}); }},
      {"`random` has moved on as after one forward pass",
       [] {
         expect(36, 0.5F, {true, true, true});
       }},
      {"so it is for any number of layers",
       [] {
         for (const int layers : {1, 2, 3, 5, 7, 10, 17, 50, 99, 101})
           expect(layers, 0.25F, {true, true, true});
       }},
      {"of 400 layers at most 46 activations are alive",
       [] {
         expect(400, 0.1F, {true, true, true});
       }},
  });
}
