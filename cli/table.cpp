#include "table.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

namespace keel::cli {
namespace {

int width_of(const TableColumn& column) {
  std::size_t width = std::max(column.above.size(), column.head.size());
  for (const std::string& cell : column.cells) width = std::max(width, cell.size());
  return static_cast<int>(width);
}

std::vector<bool> chosen(const std::vector<TableColumn>& columns, int gap, int width) {
  std::vector<ColumnWish> wishes;
  for (const TableColumn& column : columns) wishes.push_back({width_of(column) + gap - 1, column.rank});
  return columns_that_fit(wishes, width + gap);  // no gap stands before the first
}

}  // namespace

std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > 3 + first; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::vector<bool> columns_that_fit(std::span<const ColumnWish> columns, int width) {
  std::vector<bool> fits(columns.size(), false);
  std::set<int> ranks;
  for (const ColumnWish& column : columns) ranks.insert(column.rank);
  for (const int rank : ranks) {
    int needed = 0;
    for (const ColumnWish& column : columns)
      if (column.rank == rank) needed += column.width + 1;
    if (rank > 0 && needed > width) continue;
    width -= needed;
    for (std::size_t i = 0; i < columns.size(); ++i) fits[i] = fits[i] || columns[i].rank == rank;
  }
  return fits;
}

std::string table_text(const std::vector<TableColumn>& columns, int width, std::string_view margin) {
  const int room = width - static_cast<int>(margin.size());
  int gap = 2;
  std::vector<bool> shown = chosen(columns, gap, room);
  if (std::count(shown.begin(), shown.end(), false) > 0) shown = chosen(columns, gap = 1, room);

  const auto line = [&](const auto& cell_of) {
    std::string text(margin);
    bool is_first = true;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (!shown[i]) continue;
      const std::string cell = cell_of(columns[i]), space(static_cast<std::size_t>(is_first ? 0 : gap), ' ');
      const int wide = width_of(columns[i]);
      text += space + (columns[i].is_text ? fmt::format("{:<{}}", cell, wide) : fmt::format("{:>{}}", cell, wide));
      is_first = false;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text + '\n';
  };
  std::string text, left_out;
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (!shown[i])
      left_out += fmt::format("{}{}{}{}", left_out.empty() ? "" : ", ", columns[i].above,
                              columns[i].above.empty() ? "" : " ", columns[i].head);
  if (std::any_of(columns.begin(), columns.end(), [](const TableColumn& column) { return !column.above.empty(); }))
    text += line([](const TableColumn& column) { return column.above; });
  text += line([](const TableColumn& column) { return column.head; });
  for (std::size_t row = 0; row < columns.front().cells.size(); ++row)
    text += line([&](const TableColumn& column) { return column.cells.at(row); });
  return left_out.empty() ? text : text + fmt::format("{}(with more --columns: {})\n", margin, left_out);
}

}  // namespace keel::cli
