#include <string_view>

#include "keel/tokenizers/tokenizer_files.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/use_tokenizer.h"

namespace keel::fuzz {

bool tokenizer(std::string_view bytes) {
  return accepts([&] { use_tokenizer(*parse_tokenizer(bytes, "tokenizer.json")); });
}

}  // namespace keel::fuzz
