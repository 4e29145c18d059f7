#pragma once
// Readers of bytes that nobody trusts, each as a function that libFuzzer and the tests call with any bytes at all.

#include <functional>
#include <string>
#include <string_view>

#include "keel/runtime/error.h"

namespace keel::fuzz {

// Each returns whether the reader took the bytes. What a reader throws is an Error of a kind that is not keel's own
// fault; what else comes out is a find: another exception, a law that does not hold, and whatever sanitizers report.
#define KEEL_FUZZ_TARGETS(X)                                                 \
  X(config)        /* a configuration in YAML */                             \
  X(foreign)       /* a configuration of another trainer's */                \
  X(json)          /* any JSON */                                            \
  X(report)        /* what `keel comm` has written, and predictions */       \
  X(safetensors)   /* weights, and the parts of them */                      \
  X(manifest)      /* a checkpoint's manifest.json */                        \
  X(state)         /* the state.json of formats 2 and 3 */                   \
  X(tokens)        /* token files, those of other programs too */            \
  X(csv)           /* tables, by commas and by tabs */                       \
  X(jsonl)         /* JSON lines, as examples */                             \
  X(columns)       /* columnar files, with the CRCs they should have, too */ \
  X(tokenizer)     /* tokenizer.json, and keel's own */                      \
  X(sentencepiece) /* models of SentencePiece */                             \
  X(frames)        /* what a rank hears over TCP */

#define KEEL_FUZZ_DECLARE(name) bool name(std::string_view bytes);
KEEL_FUZZ_TARGETS(KEEL_FUZZ_DECLARE)
#undef KEEL_FUZZ_DECLARE

// A law that holds whatever the bytes are.
inline void require(bool holds, std::string_view law) {
  if (!holds) throw Error(concat("this does not hold: ", law), ErrorKind::internal);
}

// Whether `read` comes to its end.
template <class F>
bool accepts(F&& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    switch (error.kind()) {
      case ErrorKind::input:
      case ErrorKind::io:
      case ErrorKind::unsupported:
      case ErrorKind::peer: return false;
      default: throw;
    }
  }
}

}  // namespace keel::fuzz
