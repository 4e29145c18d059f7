#pragma once
// Tables that fit a terminal: what matters most is shown, and the rest where there is room.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel::cli {

// 1234567 as "1,234,567".
std::string grouped(std::int64_t number);

struct TableColumn {
  std::string above, head;  // two lines of headings, the first of which may be empty
  int rank = 0;             // 0: always shown; others in rising order while they fit
  bool is_text = false;     // begins at its left end
  std::vector<std::string> cells = {};
};

// Which of the columns, each so wide and of such a rank, fit into `width` characters when a space stands before each:
// all of rank 0, and those of the other ranks, a rank at a time.
struct ColumnWish {
  int width = 0, rank = 0;
};
std::vector<bool> columns_that_fit(std::span<const ColumnWish> columns, int width);

// Headings and rows, each as wide as its longest cell and two apart, or one where that lets more fit. Every line begins
// with `margin`. A last line names what was left out.
std::string table_text(const std::vector<TableColumn>& columns, int width, std::string_view margin = "");

}  // namespace keel::cli
