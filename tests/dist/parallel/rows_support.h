#pragma once
// What tests of gradients that are kept as rows share: tables, what each step looks up, and an optimizer.

#include <gtest/gtest.h>

#include "keel/optim/catalog.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel::testing {

// None is a multiple of the number of ranks or of the flat alignment.
inline constexpr std::int64_t kWords = 101, kTags = 10, kFeatures = 6;

// Two tables that are trained, in different units, and one that is frozen.
struct Tables : Module {
  struct Tagger : Module {
    Embedding tags{kTags, kFeatures, Initializer::normal(1), true};
    Variable operator()(const Tensor& ids) const {
      const Scope scope(*this);
      return tags(ids);
    }
    void visit(Visitor& v) override { v("tags", tags); }
    bool is_unit() const override { return true; }
  };
  Embedding words{kWords, kFeatures, Initializer::normal(1), true};
  Embedding fixed{kWords, kFeatures};
  Tagger tagger;
  Tables() { fixed.weight.set_trainable(false); }
  Variable operator()(const Tensor& ids, const Tensor& tags) const {
    return mul(add(words(ids), fixed(ids)), tagger(tags));
  }
  void visit(Visitor& v) override {
    v("words", words);
    v("fixed", fixed);
    v("tagger", tagger);
  }
};

inline std::unique_ptr<Optimizer> sparse_adam(bool stochastic = false) {
  return make_optimizer(find_optimizer("sparse_adam"), {.stochastic_rounding = stochastic}, 3);
}

inline constexpr std::int64_t kSamples = 24;

// Words that the step `step` uses: few, and each more than once. Never kUnused.
inline constexpr std::int64_t kUnused = 100;
inline std::int64_t word_of(int step, std::int64_t sample) { return (sample * sample + 17 * step) % 23 * 4; }
inline std::int64_t tag_of(int step, std::int64_t sample) { return (sample / 3 + step) % 4; }

inline Tensor ids_of(const Context& context, int step, Span samples, std::int64_t (*id)(int, std::int64_t)) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = samples.begin; i < samples.end; ++i) ids.push_back(id(step, i));
  return from_values(context, ids, {samples.count()});
}

// Whole multiples of 1/8, so that gradients of the first step are exact if the weights are.
inline Variable loss_of(const Tables& net, const Context& context, int step, Span samples) {
  const Variable out = net(ids_of(context, step, samples, word_of), ids_of(context, step, samples, tag_of));
  const std::vector<double> factors = uniform(kSamples * kFeatures, static_cast<std::uint64_t>(step) + 1, -16, 16);
  std::vector<double> mine;
  for (std::int64_t i = samples.begin * kFeatures; i < samples.end * kFeatures; ++i)
    mine.push_back(std::round(factors[static_cast<std::size_t>(i)]) / 8);
  return mean(mul(out, Variable(tensor_of(context, mine, out.shape(), out.dtype()))));
}

inline void train_tables(Sharded& engine, const Tables& net, int first, int last, int micros = 1) {
  for (int step = first; step < last; ++step) {
    const Span mine = part({0, kSamples}, engine.size(), engine.rank());
    for (int micro = 0; micro < micros; ++micro) {
      const Span samples = part(mine, micros, micro);
      engine.backward(loss_of(net, engine.context(), step, samples),
                      {.weight = samples.count(), .last = micro + 1 == micros});
    }
    EXPECT_TRUE(engine.step(1e-2 / (1 + step)).get().taken);
  }
}

}  // namespace keel::testing
