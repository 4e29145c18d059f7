#include "keel/data/columns_format.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "keel/data/crc32.h"
#include "keel/runtime/error.h"
#include "keel/runtime/json.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

static_assert(std::endian::native == std::endian::little, "columnar files hold little-endian numbers");

constexpr std::string_view kForms[] = {"single", "fixed", "list"};

std::string_view name_of(ColumnType type) { return std::ranges::find(kColumnTypes, type, &ColumnTypeName::type)->name; }

Column column_from(const Json& json) {
  Column column;
  for (const auto& [key, value] : json.members()) {
    if (key == "name") {
      column.name = value.string();
    } else if (key == "type") {
      const auto* found = std::ranges::find(kColumnTypes, value.string(), &ColumnTypeName::name);
      KEEL_CHECK(found != std::end(kColumnTypes), "there is no type '", printable(value.string(), 64), "'");
      column.type = found->type;
    } else if (key == "form") {
      const auto* found = std::ranges::find(kForms, value.string());
      KEEL_CHECK(found != std::end(kForms), "there is no form '", printable(value.string(), 64), "'");
      column.form = static_cast<ColumnForm>(found - std::begin(kForms));
    } else if (key == "shape") {
      std::vector<std::int64_t> shape;
      for (const Json& extent : value.items()) shape.push_back(extent.integer());
      KEEL_CHECK(std::ssize(shape) <= kMaxRank, "a shape has at most ", kMaxRank, " extents, not ", shape.size());
      column.shape = Dims(std::span(std::as_const(shape)));
    } else if (key == "nullable") {
      column.nullable = value.boolean();
    } else {
      throw Error(concat("a column has no '", printable(key, 64), "'"));
    }
  }
  return column;
}

}  // namespace

std::size_t element_bytes(ColumnType type) {
  return std::ranges::find(kColumnTypes, type, &ColumnTypeName::type)->bytes;
}

std::uint32_t crc_of(const ColumnsHeader& header) {
  return crc32(std::as_bytes(std::span(&header, 1)).first(offsetof(ColumnsHeader, crc)));
}

void check_columns(const std::vector<Column>& columns) {
  KEEL_CHECK(!columns.empty() && columns.size() <= kMostColumns, "there are ", columns.size(), " columns; 1 to ",
             kMostColumns, " are possible");
  std::vector<std::string_view> names;
  for (const Column& column : columns) {
    const std::string shown = printable(column.name, 64);
    KEEL_CHECK(!column.name.empty(), "a column has no name");
    KEEL_CHECK(column.type != ColumnType::text || column.form == ColumnForm::single, "column '", shown,
               "' is of texts, which have no form");
    KEEL_CHECK(column.form == ColumnForm::fixed || column.shape.empty(), "column '", shown,
               "' has a shape, and is not fixed");
    std::int64_t elements = 1;
    for (const std::int64_t extent : column.shape) {
      KEEL_CHECK(extent >= 0 && (extent == 0 || elements <= kMostElements / extent), "column '", shown,
                 "' has rows of the shape ", column.shape, ", more than ", kMostElements, " numbers");
      elements *= extent;
    }
    names.push_back(column.name);
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  KEEL_CHECK(twice == names.end(), "two columns have the name '", printable(*twice, 64), "'");
}

std::string text_of(const std::vector<Column>& columns) {
  Json::Array list;
  for (const Column& column : columns) {
    Json json = {{"name", column.name}, {"type", name_of(column.type)}};
    if (column.form != ColumnForm::single) json["form"] = Json(kForms[static_cast<std::size_t>(column.form)]);
    if (column.form == ColumnForm::fixed)
      json["shape"] = std::vector<std::int64_t>(column.shape.begin(), column.shape.end());
    if (column.nullable) json["nullable"] = true;
    list.push_back(std::move(json));
  }
  return Json{{"columns", list}}.dump();
}

std::vector<Column> columns_from(std::string_view text) {
  const Json json = Json::parse(text);
  std::vector<Column> columns;
  for (const Json& column : json.at("columns").items()) columns.push_back(column_from(column));
  check_columns(columns);
  return columns;
}

}  // namespace keel
