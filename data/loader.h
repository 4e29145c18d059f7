#pragma once
// Loaders of token windows: at random places, in order, or each once in random order.
//
// A window of `block` inputs at position p has the tokens p to p + block - 1 as inputs and p + 1 to p + block as
// targets. Draws are counter-based (keel/runtime/random.h) with the key (seed, what is drawn).

#include <cstdint>
#include <string>

#include "keel/data/batch.h"
#include "keel/data/tokens.h"

namespace keel {

struct WindowOptions {
  std::int64_t rows = 1;         // windows of a global batch
  std::int64_t block = 1;        // inputs of a window
  std::uint64_t seed = 0;        // not used by SequentialLoader
  std::string fingerprint = {};  // of the tokens, or of what they are a part of; empty: not told
};

// Every window begins at a place drawn uniformly from all that leave room for its targets. Endless.
class RandomWindowLoader final : public BatchSource {
 public:
  // At least block + 1 tokens.
  RandomWindowLoader(Context context, Tokens tokens, const WindowOptions& options);
  std::int64_t rows(std::int64_t) const override { return options_.rows; }
  Batch load(std::int64_t step, Rows range) const override;
  std::string fingerprint() const override { return options_.fingerprint; }

 private:
  Context context_;
  Tokens tokens_;
  WindowOptions options_;
};

// Each token after the first is a target exactly once, in order, as the validation loss of a whole sequence needs it.
// The last window may be shorter: its row is padded with input 0 and ignored targets. The last batch may have fewer
// rows.
class SequentialLoader final : public BatchSource {
 public:
  // At least 2 tokens.
  SequentialLoader(Context context, Tokens tokens, const WindowOptions& options);
  std::int64_t steps() const override;
  std::int64_t rows(std::int64_t step) const override;
  Batch load(std::int64_t step, Rows range) const override;
  std::string fingerprint() const override { return options_.fingerprint; }

 private:
  std::int64_t windows() const { return (tokens_.size() - 2) / options_.block + 1; }

  Context context_;
  Tokens tokens_;
  WindowOptions options_;
};

// The windows that begin at multiples of the block, each once an epoch, in an order drawn for each epoch. A batch
// may end one epoch and begin the next. Tokens after the last whole window are left out. Endless.
class EpochLoader final : public BatchSource {
 public:
  // At least block + 1 tokens.
  EpochLoader(Context context, Tokens tokens, const WindowOptions& options);
  // Windows of an epoch.
  std::int64_t windows() const { return (tokens_.size() - 1) / options_.block; }
  std::int64_t rows(std::int64_t) const override { return options_.rows; }
  Batch load(std::int64_t step, Rows range) const override;

 private:
  Context context_;
  Tokens tokens_;
  WindowOptions options_;
};

}  // namespace keel
