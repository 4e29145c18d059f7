#pragma once
// How many files this program has opened, and how many bytes it has read at places of files (pread).

#include <cstdint>

namespace keel::testing {

std::int64_t opened_files();
std::int64_t bytes_read();

}  // namespace keel::testing
