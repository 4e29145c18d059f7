#pragma once
// Files of data, each opened by the reader of its kind.

#include <string>
#include <string_view>

#include "keel/data/dataset.h"
#include "keel/data/line_file.h"

namespace keel {

enum class DataKind : unsigned char { tokens, columns, csv, jsonl, files, text };
// "a file of tokens", "a columnar file", "a table", "JSON lines", "a folder of files", "a text".
std::string_view name_of(DataKind kind);

// What a path is taken for: a folder is its files, or tokens where the first of them is; a pattern
// (keel/data/file_list.h) is what the first file is that it fits; files of tokens and columnar ones are known by what
// they begin with, tokens of other programs as keel/data/foreign_tokens.h says; the others by their names (.csv, .tsv,
// .tab, .jsonl, .ndjson, with .gz behind it or not), and all else is a text. A path that is not
// there, or cannot be read, is an Error.
DataKind kind_of_file(const std::string& path);

// The examples of a file: rows, objects, lines that are not empty, or files. Tokens have none by themselves: an Error
// (token_windows(), in keel/data/mixture.h, makes some). So is a pattern that fits several files.
DatasetPtr open_data(const std::string& name, const LineFileOptions& options = {});

}  // namespace keel
