#pragma once
// How a columnar file is laid out (docs/columnar.md): what its reader and its writer share.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/data/columns.h"

namespace keel {

struct ColumnsHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t columns;
  std::uint64_t rows;
  std::uint64_t blocks;
  std::uint64_t schema_at;     // to where the directory begins
  std::uint64_t directory_at;  // to the file's end
  std::uint32_t schema_crc;
  std::uint32_t directory_crc;
  std::uint32_t unused;
  std::uint32_t crc;  // of the 60 bytes before
};
static_assert(sizeof(ColumnsHeader) == 64);
inline constexpr std::uint32_t kColumnsVersion = 1;

// Of the directory: for each block its rows, and for each column where its part lies.
struct BlockEntry {
  std::uint32_t rows, unused;
};
struct ChunkEntry {
  std::uint64_t at;
  std::uint32_t bytes, crc;
};

inline constexpr std::uint32_t kMostColumns = 4096, kMostBlockRows = 1 << 20;
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 28;  // of a row of a fixed column

struct ColumnTypeName {
  ColumnType type;
  std::string_view name;
  std::size_t bytes;  // of an element
};
inline constexpr ColumnTypeName kColumnTypes[] = {
    {ColumnType::text, "text", 1}, {ColumnType::f32, "f32", 4}, {ColumnType::f64, "f64", 8}, {ColumnType::u8, "u8", 1},
    {ColumnType::u16, "u16", 2},   {ColumnType::i32, "i32", 4}, {ColumnType::i64, "i64", 8}};

std::size_t element_bytes(ColumnType type);
// Whether rows have offsets: they are of different lengths.
inline bool has_offsets(const Column& column) {
  return column.type == ColumnType::text || column.form == ColumnForm::list;
}
inline bool is_float(ColumnType type) { return type == ColumnType::f32 || type == ColumnType::f64; }

// The list of columns as JSON, and back; what it should not be is an Error.
std::string text_of(const std::vector<Column>& columns);
std::vector<Column> columns_from(std::string_view text);
void check_columns(const std::vector<Column>& columns);

std::uint32_t crc_of(const ColumnsHeader& header);

// Calls f(T{}) with the type of a column's elements; char for texts.
template <class F>
auto with_element(ColumnType type, F&& f) {
  switch (type) {
    case ColumnType::text: return f(char{});
    case ColumnType::f32: return f(float{});
    case ColumnType::f64: return f(double{});
    case ColumnType::u8: return f(std::uint8_t{});
    case ColumnType::u16: return f(std::uint16_t{});
    case ColumnType::i32: return f(std::int32_t{});
    default: return f(std::int64_t{});
  }
}

}  // namespace keel
