#pragma once
// What `keel comm` prints, in the look of nccl-tests.

#include <string>

#include "keel/dist/lab/comparison.h"
#include "keel/dist/lab/report.h"

namespace keel::cli {

// The columns and factors, for --help and docs/comm.md: one list.
std::string explain_columns();
std::string explain_contestants();

std::string table_header(std::string_view collective, std::int64_t ranks, std::string_view where);
std::string table_row(const lab::Record& record);

// `first` and `second` are the names of the files.
std::string comparison_text(const lab::Comparison& comparison, const std::string& first, const std::string& second);

}  // namespace keel::cli
