#include "keel/data/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <type_traits>

#include "keel/data/csv_columns.h"
#include "keel/data/line_index.h"
#include "keel/data/number_text.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

// What is wrong with a cell of a line; where the line is, is found out when it is told.
struct BadCell {
  std::size_t column, at;  // at: bytes from the line's begin
  std::string what;
};

std::string shown(std::string_view cell) { return concat("'", printable(cell, 64), "'"); }

std::string_view trimmed(std::string_view cell) {
  while (!cell.empty() && (cell.front() == ' ' || cell.front() == '\t')) cell.remove_prefix(1);
  while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\t')) cell.remove_suffix(1);
  return cell;
}

// The finite number that a cell is.
std::optional<double> number_in(std::string_view cell) {
  cell = trimmed(cell);
  if (cell.starts_with('+') && !cell.starts_with("+-")) cell.remove_prefix(1);
  const auto [value, bytes] = read_number(cell);
  if (bytes == 0 || bytes != cell.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> whole_number_in(std::string_view cell) {
  cell = trimmed(cell);
  if (cell.starts_with('+') && !cell.starts_with("+-")) cell.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size()) return std::nullopt;
  return value;
}

// The cells of a line, one after the other. Quotes stand around whole cells, which the index has seen to.
class Cells {
 public:
  Cells(std::string_view line, char separator, bool quotes) : line_(line), separator_(separator), quotes_(quotes) {}
  bool has_next() const { return at_ <= line_.size(); }
  std::size_t at() const { return at_; }

  // The next cell's number where it is written in the plainest way, as most are; else nothing has happened.
  std::optional<double> next_plain_number() {
    const std::string_view rest = line_.substr(at_);
    const TextNumber number = read_number(rest, rest.size() + kReadableBehindLine);
    if (number.bytes == 0 || (number.bytes < rest.size() && rest[number.bytes] != separator_)) return std::nullopt;
    if (!std::isfinite(number.value)) return std::nullopt;
    at_ += number.bytes + 1;
    ++column_;
    return number.value;
  }
  // Without the quotes around it; in `scratch` where quotes inside are doubled.
  std::string_view next(std::string& scratch) {
    std::string_view cell;
    std::size_t end = at_;  // its separator
    if (quotes_ && at_ < line_.size() && line_[at_] == '"') {
      cell = quoted(end, scratch);
    } else {
      while (end < line_.size() && line_[end] != separator_) ++end;
      cell = line_.substr(at_, end - at_);
    }
    at_ = end + 1;
    ++column_;
    return cell;
  }

 private:
  // The cell whose quote opens here; `behind` becomes the place behind the one that closes it.
  std::string_view quoted(std::size_t& behind, std::string& scratch) const {
    bool doubled = false;
    std::size_t end = at_ + 1;
    for (;; end += 2) {
      end = line_.find('"', end);
      if (end == std::string_view::npos || end + 1 == line_.size() || line_[end + 1] != '"') break;
      doubled = true;
    }
    if (end == std::string_view::npos || (end + 1 < line_.size() && line_[end + 1] != separator_))
      throw BadCell{column_, at_, "the quote that opens here is closed in the midst of a cell, or never"};
    const std::string_view inside = line_.substr(at_ + 1, end - at_ - 1);
    behind = end + 1;
    if (!doubled) return inside;
    scratch.clear();
    for (std::size_t i = 0; i < inside.size(); ++i) {
      scratch += inside[i];
      if (inside[i] == '"') ++i;
    }
    return scratch;
  }

  std::string_view line_;
  char separator_;
  bool quotes_;
  std::size_t at_ = 0, column_ = 0;  // of the next cell
};

class CsvDataset final : public Dataset {
 public:
  CsvDataset(const std::string& path, const CsvOptions& options)
      : separator_(options.separator != 0 ? options.separator : separator_of(path)),
        quotes_(options.quotes),
        index_(path, {.separator = quotes_ ? separator_ : '\0',
                      .cache_folder = options.lines.cache_folder,
                      .progress = options.lines.progress}) {
    KEEL_CHECK(separator_ != '"' && separator_ != '\n' && separator_ != '\r', "cells cannot be separated by ",
               shown({&separator_, 1}));
    check_empty_lines(index_, options.lines.empty_lines);
    read_header(options.header);
    fields_ = csv_fields(options.fields, names_, path);
    if (size() > 0) find_kinds();
    uses_.resize(names_.size());
    for (std::size_t field = 0; field < fields_.size(); ++field)
      for (std::size_t i = 0; i < fields_[field].columns.size(); ++i)
        uses_[fields_[field].columns[i]].push_back({field, i, fields_[field].kind, fields_[field].columns.size() == 1});
    for (const std::vector<Use>& uses : uses_) first_uses_.push_back(uses.size() == 1 ? uses.front() : Use{});
  }

  std::int64_t size() const override { return index_.size() - header_lines_; }

  Example example(std::int64_t i) const override { return std::move(examples(std::span(&i, 1)).front()); }

  std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
    std::vector<std::int64_t> lines(indices.begin(), indices.end());
    for (std::int64_t& line : lines) {
      check_index(line);
      line += header_lines_;
    }
    std::vector<Example> all;
    all.reserve(lines.size());
    std::string scratch;
    index_.read(
        lines, [&](const Line& line) { all.push_back(checked(line, [&] { return example_of(line.text, scratch); })); });
    return all;
  }

  std::string place(std::int64_t i) const override {
    check_index(i);
    return line_of(index_, i + header_lines_);
  }

  std::string fingerprint() const override {
    std::string text =
        concat("csv ", index_.hash().high, ' ', index_.hash().low, ' ', int{separator_}, ' ', header_lines_);
    if (!quotes_) text += " without quotes";
    for (const CsvField& field : fields_) {
      text += concat(' ', field.name, ':', static_cast<int>(field.kind));
      for (const std::size_t column : field.columns) text += concat(',', column);
    }
    return text;
  }

 private:
  // A cell's place in the example.
  struct Use {
    std::size_t field = 0, place = 0;
    CellKind kind = CellKind::text;
    bool is_single = true;  // the field is of this column alone
  };

  // What f returns; what is wrong with a cell there is told with file, line and column.
  template <class F>
  std::invoke_result_t<F> checked(const Line& line, F&& f) const {
    try {
      return f();
    } catch (const BadCell& bad) { refuse(line, bad); }
  }

  static char separator_of(std::string_view path) {
    if (path.ends_with(".gz")) path.remove_suffix(3);
    return path.ends_with(".tsv") || path.ends_with(".tab") ? '\t' : ',';
  }

  [[noreturn]] void refuse(const Line& line, const BadCell& bad) const {
    const std::string name = bad.column < names_.size() ? concat(" (", shown(names_[bad.column]), ")") : "";
    throw Error(concat("'", index_.path(), "', line ", index_.line_at(line.offset + bad.at), ", column ",
                       bad.column + 1, name, ": ", bad.what));
  }

  // Calls f(column, cell, where it begins) for each cell of the line.
  template <class F>
  void each_cell(const Line& line, F&& f) const {
    checked(line, [&] {
      Cells cells(line.text, separator_, quotes_);
      std::string scratch;
      for (std::size_t column = 0; cells.has_next(); ++column) {
        const std::size_t at = cells.at();
        f(column, cells.next(scratch), at);
      }
      return true;
    });
  }

  void read_header(bool has_header) {
    KEEL_CHECK(!has_header || index_.size() > 0, "'", index_.path(),
               "', line 1: it is empty; its first line names the columns");
    if (index_.size() > 0)
      index_.read(std::vector<std::int64_t>{0}, [&](const Line& line) {
        std::vector<std::string> names;
        each_cell(line, [&](std::size_t column, std::string_view cell, std::size_t) {
          names.push_back(has_header ? std::string(cell) : std::to_string(column));
        });
        names_ = std::move(names);
      });
    header_lines_ = has_header ? 1 : 0;
  }

  // Of fields without a mark: numbers where the first line has some, else text.
  void find_kinds() {
    std::vector<bool> is_number(names_.size());
    index_.read(std::vector<std::int64_t>{header_lines_}, [&](const Line& line) {
      each_cell(line, [&](std::size_t column, std::string_view cell, std::size_t) {
        if (column < is_number.size()) is_number[column] = number_in(cell).has_value();
      });
    });
    for (CsvField& field : fields_)
      if (!field.is_marked && field.columns.size() == 1 && !is_number[field.columns.front()])
        field.kind = CellKind::text;
  }

  std::vector<Example::Field> empty_fields() const {
    std::vector<Example::Field> fields;
    fields.reserve(fields_.size());
    for (const CsvField& field : fields_) {
      const std::size_t width = field.columns.size();
      const Dims shape = {static_cast<std::int64_t>(width)};
      if (field.kind == CellKind::text) fields.emplace_back(field.name, std::string());
      else if (width == 1) fields.emplace_back(field.name, 0.0);
      else if (field.kind == CellKind::whole)
        fields.emplace_back(field.name, Integers{shape, std::vector<std::int64_t>(width)});
      else fields.emplace_back(field.name, Numbers{shape, std::vector<float>(width)});
    }
    return fields;
  }

  Example example_of(std::string_view line, std::string& scratch) const {
    std::vector<Example::Field> fields = empty_fields();
    Cells cells(line, separator_, quotes_);
    for (std::size_t column = 0; column < names_.size(); ++column) {
      if (!cells.has_next())
        throw BadCell{column, line.size(),
                      concat("the line ends before it, with ", column, " columns of ", names_.size())};
      const Use first = first_uses_[column];
      if (first.kind == CellKind::number) {
        if (const std::optional<double> number = cells.next_plain_number()) {
          put_number(*number, first, fields[first.field].second);
          continue;
        }
      }
      const std::size_t at = cells.at();
      const std::string_view cell = cells.next(scratch);
      for (const Use& use : uses_[column]) {
        const std::string_view wanted = put(cell, use, fields[use.field].second);
        if (!wanted.empty())
          throw BadCell{column, at,
                        concat("expected ", wanted, ", found ", cell.empty() ? "an empty cell" : shown(cell))};
      }
    }
    if (cells.has_next())
      throw BadCell{names_.size(), cells.at(),
                    concat("the line goes on after the ", names_.size(), " columns that the first line has")};
    return Example(std::move(fields));
  }

  static void put_number(double number, const Use& use, Value& value) {
    if (use.is_single) value = number;
    else std::get<Numbers>(value).values[use.place] = static_cast<float>(number);
  }

  // What the cell should have been, where it is something else.
  static std::string_view put(std::string_view cell, const Use& use, Value& value) {
    if (use.kind == CellKind::text) {
      value.emplace<std::string>(cell);
    } else if (use.kind == CellKind::whole) {
      const std::optional<std::int64_t> number = whole_number_in(cell);
      if (!number) return "a whole number";
      if (use.is_single) value = *number;
      else std::get<Integers>(value).values[use.place] = *number;
    } else {
      const std::optional<double> number = number_in(cell);
      if (!number) return "a finite number";
      put_number(*number, use, value);
    }
    return {};
  }

  char separator_;
  bool quotes_;
  LineIndex index_;
  std::int64_t header_lines_ = 0;
  std::vector<std::string> names_;
  std::vector<CsvField> fields_;
  std::vector<std::vector<Use>> uses_;  // of each column
  std::vector<Use> first_uses_;         // the only one; of kind text where there is another number of them
};

}  // namespace

DatasetPtr open_csv(const std::string& path, const CsvOptions& options) {
  return std::make_shared<CsvDataset>(path, options);
}

}  // namespace keel
