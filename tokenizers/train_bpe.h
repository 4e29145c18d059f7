#pragma once
// Training of a byte-level BPE.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/context.h"
#include "keel/tokenizers/pre_tokenizer.h"

namespace keel {

struct BpeTraining {
  std::int64_t vocabulary_size = 30000;
  std::int64_t min_frequency = 0;          // of a pair that is merged
  std::vector<std::string> specials = {};  // the first tokens, in this order
  std::int64_t longest_token = 0;          // in characters, at least 2; 0: any
  bool all_bytes = true;                   // the 256 bytes are tokens, whether the text has them or not
};

struct TrainedBpe {
  std::vector<std::string> tokens;  // by id, in the characters of the byte level
  std::vector<std::pair<std::string, std::string>> merges;
};

// Counts the pieces of texts, then merges the most frequent pair again and again; of pairs as frequent, the one of the
// lower ids (Sennrich, Haddow, Birch 2016). The same texts give the same tokens on any number of threads, and those of
// the Tokenizers library.
class BpeTrainer {
 public:
  BpeTrainer(const Context& context, PreTokenizerPtr pre_tokenizer, BpeTraining options);
  ~BpeTrainer();
  void feed(std::string_view text);  // valid UTF-8
  // `progress(done, all)` is called between merges and may throw.
  TrainedBpe train(const std::function<void(std::int64_t, std::int64_t)>& progress = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace keel
