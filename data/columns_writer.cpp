#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "keel/data/columns_format.h"
#include "keel/data/crc32.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

template <class T>
void append_value(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T, class Number>
void append_number(std::string& bytes, Number number) {
  if constexpr (std::is_integral_v<T>)
    KEEL_CHECK(std::in_range<T>(number), number, " does not fit in the type of the column");
  append_value(bytes, static_cast<T>(number));
}

// Appends the elements of a value to a column of elements T.
template <class T>
void append_elements(std::string& bytes, const Value& value, const Column& column) {
  if constexpr (std::is_same_v<T, char>) {
    bytes += *text_or_json(value);
  } else {
    using Single = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
    using Several = std::conditional_t<std::is_floating_point_v<T>, Numbers, Integers>;
    if (column.form == ColumnForm::single) return append_number<T>(bytes, std::get<Single>(value));
    for (const auto number : std::get<Several>(value).values) append_number<T>(bytes, number);
  }
}

// What a column takes, as kind_of() says it; empty where this value is such.
std::string complaint_about(const Value& value, const Column& column) {
  const bool floats = is_float(column.type);
  if (column.type == ColumnType::text) return text_or_json(value) != nullptr ? "" : "a text";
  if (column.form == ColumnForm::single) {
    const bool fits = floats ? std::holds_alternative<double>(value) : std::holds_alternative<std::int64_t>(value);
    return fits ? "" : floats ? "a number" : "a whole number";
  }
  const auto* numbers = std::get_if<Numbers>(&value);
  const auto* integers = std::get_if<Integers>(&value);
  const Dims* shape = floats && numbers != nullptr     ? &numbers->shape
                      : !floats && integers != nullptr ? &integers->shape
                                                       : nullptr;
  const std::string kind = floats ? "numbers" : "whole numbers";
  if (column.form == ColumnForm::list) return shape != nullptr && shape->size() == 1 ? "" : "a sequence of " + kind;
  return shape != nullptr && *shape == column.shape ? "" : concat(kind, ' ', column.shape);
}

}  // namespace

struct ColumnsWriter::Work {
  // What the block has of one column so far.
  struct ColumnPart {
    std::vector<bool> present = {};
    std::vector<std::uint32_t> offsets = {0};
    std::string values = {};
  };

  Work(std::string path, std::vector<Column> given, std::size_t bytes)
      : file(std::move(path)), columns(std::move(given)), block_bytes(bytes), parts(columns.size()) {}

  AtomicFile file;
  std::vector<Column> columns;
  std::size_t block_bytes;
  std::vector<ColumnPart> parts;
  std::uint32_t block_rows = 0;
  std::uint64_t rows = 0, blocks = 0;
  std::string directory = {};

  // Where it is refused, the row has left nothing in any column.
  void append(const Example& example) {
    for (const auto& [name, value] : example.fields())
      KEEL_CHECK(std::ranges::find(columns, name, &Column::name) != columns.end(), "row ", rows, " has a field '",
                 printable(name, 64), "', which is no column");
    std::vector<std::string> bytes(columns.size());
    std::vector<const Value*> values;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      values.push_back(example.find(columns[i].name));
      bytes[i] = bytes_of(values.back(), columns[i]);
    }
    for (std::size_t i = 0; i < columns.size(); ++i) {
      ColumnPart& part = parts[i];
      part.present.push_back(values[i] != nullptr);
      part.values += bytes[i];
      KEEL_CHECK(part.values.size() <= std::numeric_limits<std::uint32_t>::max() / 2, "row ", rows, " has ",
                 bytes[i].size(), " bytes in column '", printable(columns[i].name, 64), "'; split it");
      part.offsets.push_back(static_cast<std::uint32_t>(part.values.size() / element_bytes(columns[i].type)));
    }
    ++rows;
    std::size_t held = 0;
    for (const ColumnPart& part : parts) held += part.values.size();
    if (++block_rows == kMostBlockRows || held >= block_bytes) end_block();
  }

  std::string bytes_of(const Value* value, const Column& column) const {
    const auto place = [&] { return concat("row ", rows, ", column '", printable(column.name, 64), "': "); };
    std::string bytes;
    if (value == nullptr) {
      KEEL_CHECK(column.nullable, place(), "it is missing");
      if (!has_offsets(column))
        bytes.assign(static_cast<std::size_t>(product(column.shape)) * element_bytes(column.type), '\0');
      return bytes;
    }
    const std::string wanted = complaint_about(*value, column);
    KEEL_CHECK(wanted.empty(), place(), "expected ", wanted, ", found ", kind_of(*value));
    try {
      with_element(column.type, [&]<class T>(T) { append_elements<T>(bytes, *value, column); });
    } catch (const Error& error) { throw Error(place(), error); }
    return bytes;
  }

  void end_block() {
    if (block_rows == 0) return;
    append_value(directory, BlockEntry{block_rows, 0});
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::string chunk = bytes_of_part(parts[i], columns[i]);
      append_value(directory, ChunkEntry{file.size(), static_cast<std::uint32_t>(chunk.size()),
                                         crc32(std::as_bytes(std::span(chunk)))});
      file.write(chunk);
      parts[i] = {};
    }
    block_rows = 0;
    ++blocks;
  }

  static std::string bytes_of_part(const ColumnPart& part, const Column& column) {
    std::string bytes;
    if (column.nullable) {
      bytes.assign((part.present.size() + 7) / 8, '\0');
      for (std::size_t row = 0; row < part.present.size(); ++row)
        if (part.present[row]) bytes[row / 8] = static_cast<char>(bytes[row / 8] | (1 << (row % 8)));
    }
    if (has_offsets(column))
      bytes.append(reinterpret_cast<const char*>(part.offsets.data()), part.offsets.size() * sizeof(std::uint32_t));
    return bytes + part.values;
  }

  void commit() {
    end_block();
    const std::string schema = text_of(columns);
    ColumnsHeader header = {};
    kColumnsMagic.copy(header.magic, sizeof header.magic);
    header.version = kColumnsVersion;
    header.columns = static_cast<std::uint32_t>(columns.size());
    header.rows = rows;
    header.blocks = blocks;
    header.schema_at = file.size();
    header.directory_at = header.schema_at + schema.size();
    header.schema_crc = crc32(std::as_bytes(std::span(schema)));
    header.directory_crc = crc32(std::as_bytes(std::span(directory)));
    header.crc = crc_of(header);
    file.write(schema);
    file.write(directory);
    file.rewrite(0, std::as_bytes(std::span(&header, 1)));
    file.commit();
  }
};

ColumnsWriter::ColumnsWriter(std::string path, std::vector<Column> columns, std::size_t block_bytes) {
  try {
    check_columns(columns);
  } catch (const Error& error) { throw Error(concat("'", path, "': "), error); }
  work_ = std::make_unique<Work>(std::move(path), std::move(columns), block_bytes);
  const ColumnsHeader header = {};
  work_->file.write(std::as_bytes(std::span(&header, 1)));
}

ColumnsWriter::~ColumnsWriter() = default;
void ColumnsWriter::append(const Example& example) { work_->append(example); }
void ColumnsWriter::commit() { work_->commit(); }

namespace {

// What is known of a field after some examples.
struct Found {
  Column column;
  std::int64_t first = 0, times = 0;  // the first example that has it, and how many have
};

Column column_for(const std::string& name, const Value& value) {
  Column column{.name = name};
  const auto several = [&](const Dims& shape) {
    column.form = ColumnForm::fixed;
    column.shape = shape;
  };
  const auto whole = [](std::span<const std::int64_t> values) {
    const bool fits =
        std::ranges::all_of(values, [](std::int64_t value) { return std::in_range<std::int32_t>(value); });
    return fits ? ColumnType::i32 : ColumnType::i64;
  };
  if (text_or_json(value) != nullptr) column.type = ColumnType::text;
  if (const auto* single = std::get_if<std::int64_t>(&value)) column.type = whole(std::span(single, 1));
  if (const auto* numbers = std::get_if<Numbers>(&value)) {
    column.type = ColumnType::f32;
    several(numbers->shape);
  }
  if (const auto* integers = std::get_if<Integers>(&value)) {
    column.type = whole(integers->values);
    several(integers->shape);
  }
  return column;
}

// The column that holds both; none where there is none.
std::optional<Column> joined(const Column& a, const Column& b) {
  Column both = a;
  const bool whole = !is_float(a.type) && !is_float(b.type) && a.type != ColumnType::text && b.type != ColumnType::text;
  if (a.type != b.type && !whole) return std::nullopt;
  if (a.type != b.type) both.type = ColumnType::i64;
  const bool several = a.form != ColumnForm::single;
  if (several != (b.form != ColumnForm::single)) return std::nullopt;
  if (!several || (a.form == b.form && a.shape == b.shape)) return both;
  const auto is_sequence = [](const Column& column) {
    return column.form == ColumnForm::list || column.shape.size() == 1;
  };
  if (!is_sequence(a) || !is_sequence(b)) return std::nullopt;
  both.form = ColumnForm::list;
  both.shape = {};
  return both;
}

}  // namespace

std::vector<Column> columns_for(const Dataset& data) {
  std::vector<Found> found;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const Example example = data.example(i);
    for (const auto& [name, value] : example.fields()) {
      const Column column = column_for(name, value);
      const auto known = std::ranges::find(found, name, [](const Found& each) { return each.column.name; });
      if (known == found.end()) {
        found.push_back({column, i, 1});
        continue;
      }
      const std::optional<Column> both = joined(known->column, column);
      if (!both) {
        const Example first = data.example(known->first);
        throw Error(concat("field '", printable(name, 64), "' of example ", i, " is ", kind_of(value),
                           ", and of example ", known->first, " it is ", kind_of(first[name]),
                           "; a column holds one kind"));
      }
      known->column = *both;
      ++known->times;
    }
  }
  std::vector<Column> columns;
  for (Found& each : found) {
    each.column.nullable = each.times < data.size();
    columns.push_back(std::move(each.column));
  }
  return columns;
}

void write_columns(const std::string& path, const Dataset& data) {
  ColumnsWriter writer(path, columns_for(data));
  for (std::int64_t i = 0; i < data.size(); ++i) writer.append(data.example(i));
  writer.commit();
}

}  // namespace keel
