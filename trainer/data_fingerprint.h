#pragma once
// Whether ranks, and sessions of a run, train on the same data.

#include <string>

#include "keel/dist/comm/communicator.h"

namespace keel {

class BatchSource;
class TrainObserver;
struct Config;

// How the ranks' fingerprints differ, the same text on every rank: "ranks 0 and 2 have ..., rank 1 has ..."; empty
// where they do not. Every rank calls it.
std::string compare_fingerprints(Communicator& ranks, const std::string& fingerprint);

// Where the ranks' sources differ: an AgreedError, or with data.allow_changes a warning. Every rank calls it.
void check_same_data(const Config& config, const BatchSource& source, TrainObserver& observer, Communicator& ranks);

// What messages call the data: "'corpus.txt'", the file that data.path names, or "the task's data".
std::string name_of_data(const Config& config);

}  // namespace keel
