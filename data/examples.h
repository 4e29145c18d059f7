#pragma once
// Batches of separate examples, where only some tokens of each are learnt.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "keel/data/batch.h"

namespace keel {

struct TokenExample {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> learnt;  // as many as tokens: 1 where the token is a target
};

// A batch of rows of `block` inputs. Token i + 1 is the target of input i where it is learnt, else kIgnoreTarget; short
// examples are filled up with `padding` and ignored targets. An example may have block + 1 tokens, a longer one is an
// Error. Sample ids count from `first_sample`.
Batch collate(const Context& context, std::span<const TokenExample> examples, std::int64_t block, std::int32_t padding,
              std::int64_t first_sample);

struct ExampleOptions {
  std::int64_t rows = 1;   // examples of a global batch
  std::int64_t block = 1;  // inputs of a row
  std::int32_t padding = 0;
  std::int64_t count = BatchSource::kEndless;  // examples in all; the last batch may have fewer rows
};

// Loads what a function makes: a pure function of (step, row), called from any thread.
class ExampleLoader final : public BatchSource {
 public:
  using Source = std::function<TokenExample(std::int64_t step, std::int64_t row)>;
  ExampleLoader(Context context, Source source, const ExampleOptions& options);
  std::int64_t steps() const override;
  std::int64_t rows(std::int64_t step) const override;
  Batch load(std::int64_t step, Rows range) const override;

 private:
  Context context_;
  Source source_;
  ExampleOptions options_;
};

// Each example of a list once an epoch, in an order drawn for each epoch from the seed. Endless.
ExampleLoader shuffled_examples(Context context, std::vector<TokenExample> examples, ExampleOptions options,
                                std::uint64_t seed);

}  // namespace keel
