#include "keel/runtime/error.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "keel/runtime/printable.h"

namespace keel {

Error::Error(std::string_view message, ErrorKind kind) : std::runtime_error(printable(message)), kind_(kind) {}
Error::Error(const MessageLines& message, ErrorKind kind)
    : std::runtime_error(printable_lines(message.text)), kind_(kind) {}
Error::Error(std::string_view before, const Error& inner, std::string_view after)
    : std::runtime_error(concat(printable(before), inner.what(), printable(after))), kind_(inner.kind_) {}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace keel
