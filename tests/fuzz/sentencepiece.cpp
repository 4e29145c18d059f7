#include <string>
#include <string_view>

#include "keel/tokenizers/tokenizer_files.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/use_tokenizer.h"

namespace keel::fuzz {

bool sentencepiece(std::string_view bytes) {
  return accepts([&] {
    try {
      use_tokenizer(*make_sentence_piece(std::string(bytes)));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported) throw;  // else this build has no library that could read them
    }
  });
}

}  // namespace keel::fuzz
