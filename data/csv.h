#pragma once
// Tables as data sets: csv (RFC 4180) and tsv.

#include <string>
#include <vector>

#include "keel/data/dataset.h"
#include "keel/data/line_file.h"

namespace keel {

// A field and the columns that make it: one, several ("a,b,c") or a range ("p0..p63"), in this order. One column of
// numbers is a single number, several are a vector. What the cells are is said by a mark before the columns: "#" whole
// numbers, "$" text (of one column). Without a mark they are what the first line after the header has: numbers, or
// text.
struct FieldColumns {
  std::string field, columns;
};

struct CsvOptions {
  std::vector<FieldColumns> fields = {};  // none: a field for each column, by its name
  bool header = true;                     // the first line names the columns; else they are 0, 1, ...
  char separator = 0;                     // 0: by the path's ending, a tab for .tsv and .tab, else a comma
  bool quotes = true;                     // false: a quote is a character as any other, and cells have no line feeds
  LineFileOptions lines = {};
};

// Names of columns, in which ranges such as "p0..p63" become the names that they stand for.
std::vector<std::string> expanded_columns(const std::vector<std::string>& names);

// Each line but the header is an example. A cell in double quotes may hold separators, line feeds, and quotes that are
// doubled. Lines that are empty are left out, or refused; spaces around numbers do not count. The file is indexed at
// once (large ones: once, see keel/data/line_index.h), and cells are read when they are asked for. A column that is
// missing, a line of more or fewer columns than the header, a number that is none or not finite: an Error with file,
// line and column.
DatasetPtr open_csv(const std::string& path, const CsvOptions& options = {});

}  // namespace keel
