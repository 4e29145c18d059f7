#pragma once
// Whether ranks, and sessions of a run, train and validate on the same data.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/tasks/task.h"

namespace keel {

struct Config;

// How fingerprints of ranks differ: "ranks 0 and 2 have ..., rank 1 has ..."; empty where they do not.
std::string differences_of(const std::vector<std::string>& fingerprints);

// Of validation sets, by name; none of those that have no fingerprint.
std::map<std::string, std::string> fingerprints_of_sets(const Data& data);

// Where what the ranks train or validate on differs: an AgreedError, or with data.allow_changes a warning, which every
// rank hears. Without data to train on the validation sets alone count. Every rank calls it.
void check_same_data(const Config& config, const Data& data, Communicator& ranks,
                     const std::function<void(const std::string& text)>& warn);

// What messages call the data: "'corpus.txt'", the file that data.path names, or "the task's data".
std::string name_of_data(const Config& config);
// Likewise: "'dev.txt', the validation set 'dev'".
std::string name_of_set(const Config& config, const ValidationSet& set);

}  // namespace keel
