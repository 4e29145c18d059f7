#pragma once
// Data sets that a function makes of others: tokens of texts, parts of long documents, those that fit.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "keel/data/dataset.h"

namespace keel {

// What becomes of example i: none, one or several. A pure function, called from several threads.
using MapFunction = std::function<std::vector<Example>(const Example& example, std::int64_t i)>;

// All that f makes, in order. At the start every example below is read once, to count what becomes of it; 4 bytes for
// each are kept. `version` changes when f does: it is part of the fingerprint. With `cache_folder`, which is made where
// it is missing, what f makes is written there, and f is not called again as long as fingerprint and version are the
// same; the memory does not grow with the examples then, and their lengths are known. A file of the cache that is not
// whole is made again; an example that was damaged in it is an Error that names the file.
DatasetPtr map(DatasetPtr below, MapFunction f, const std::string& version, const std::string& cache_folder = {});

// A function of one example to one, which needs no count; called whenever an example, or its length, is asked for.
DatasetPtr map_each(DatasetPtr below, std::function<Example(const Example& example)> f, const std::string& version);
// The same of a function that is told the example's number, such as for messages.
DatasetPtr map_numbered(DatasetPtr below, std::function<Example(const Example& example, std::int64_t i)> f,
                        const std::string& version);

}  // namespace keel
