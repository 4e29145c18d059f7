#pragma once
// keel's columnar file: examples by blocks of rows, each column of a block in one piece (docs/columnar.md).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/data/dataset.h"

namespace keel {

inline constexpr std::string_view kColumnsMagic = "KEELCOL1";  // the first bytes of such a file

enum class ColumnType : unsigned char { text, f32, f64, u8, u16, i32, i64 };
enum class ColumnForm : unsigned char {
  single,  // one number a row
  fixed,   // numbers of one shape in all rows
  list,    // a sequence of numbers, each row its own length
};

// A column, which is a field of the examples: numbers of a float type are a number or Numbers, the others a whole
// number or Integers.
struct Column {
  std::string name;
  ColumnType type = ColumnType::f64;
  ColumnForm form = ColumnForm::single;  // text is single
  Dims shape = {};                       // of `fixed`
  bool nullable = false;                 // rows may have none: then the example has no such field
  bool operator==(const Column&) const = default;
};

struct ColumnsOptions {
  std::vector<std::string> fields = {};  // that are read; empty: all
};

// The examples of such a file, which may be larger than memory: of each block 8 bytes and 16 for each column are kept,
// and what is asked for is read. Whatever of the file does not fit, in its header, its list of columns, its directory,
// or where it is read, is an Error that names the file and the place; a file that shrinks is one, too. A field that the
// file does not have is an Error that lists those that it has.
DatasetPtr open_columns(const std::string& path, const ColumnsOptions& options = {});
// What the file has, in its order.
std::vector<Column> columns_of(const std::string& path);

// Writes such a file row by row, atomically (keel/runtime/file.h): it appears at commit().
class ColumnsWriter {
 public:
  // `block_bytes`: how large a block becomes before the next one begins.
  ColumnsWriter(std::string path, std::vector<Column> columns, std::size_t block_bytes = std::size_t{32} << 10);
  ~ColumnsWriter();
  // A field that is no column, one that is missing in a column that is not nullable, and a value of another kind or
  // shape, or that does not fit in the column's type, are Errors that name row and column.
  void append(const Example& example);
  void commit();

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

// The columns that hold these examples as they are: a field that some of them lack is nullable, one of sequences is
// fixed where all have one shape, and a list otherwise; whole numbers are i64, i32 where they fit. A field of different
// kinds is an Error that names it and two examples. Reads every example once.
std::vector<Column> columns_for(const Dataset& data);
// All examples as a columnar file with these columns.
void write_columns(const std::string& path, const Dataset& data);

}  // namespace keel
