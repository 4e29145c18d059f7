#pragma once
// Which cells of a table's line become which values of an example.

#include <span>
#include <string>
#include <vector>

#include "keel/data/csv.h"

namespace keel {

enum class CellKind : unsigned char { number, whole, text };

// A field of the examples.
struct CsvField {
  std::string name;
  CellKind kind = CellKind::number;
  bool is_marked = false;  // else the first line decides its kind
  std::vector<std::size_t> columns = {};
};

// The fields that are asked for; of each column one where none are. `names` are those of the columns. An Error for a
// column that is not there, begins with the path of the table.
std::vector<CsvField> csv_fields(const std::vector<FieldColumns>& wanted, const std::vector<std::string>& names,
                                 const std::string& path);

}  // namespace keel
