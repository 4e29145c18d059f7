#pragma once
// Whether ranks, and sessions of a run, train on the same data.

#include <string>

#include "keel/data/tokens.h"
#include "keel/dist/comm/communicator.h"

namespace keel {

// The number of the tokens and a hash of some, such as "4071 tokens, 9a3c51de02f1b644": of all where there are up to
// 2^20, else of 1024 pieces of 1024 tokens, at even distances from the first to the last.
std::string fingerprint_of(const Tokens& tokens);

// How the ranks' fingerprints differ, the same text on every rank: "ranks 0 and 2 have ..., rank 1 has ..."; empty
// where they do not. Every rank calls it.
std::string compare_fingerprints(Communicator& ranks, const std::string& fingerprint);

}  // namespace keel
