#pragma once
// Whether ranks, and sessions of a run, train on the same data.

#include <string>

#include "keel/dist/comm/communicator.h"

namespace keel {

struct Config;

// How the ranks' fingerprints differ, the same text on every rank: "ranks 0 and 2 have ..., rank 1 has ..."; empty
// where they do not. Every rank calls it.
std::string compare_fingerprints(Communicator& ranks, const std::string& fingerprint);

// What messages call the data: "'corpus.txt'", the file that data.path names, or "the task's data".
std::string name_of_data(const Config& config);

}  // namespace keel
