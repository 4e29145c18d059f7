#include "keel/data/first_fit.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "keel/runtime/error.h"

namespace keel {
namespace {

// The room that is left in each of `rows` rows, as a tree whose inner nodes know the most below them.
class RoomTree {
 public:
  RoomTree(std::size_t rows, std::int64_t room) : leaves_(std::bit_ceil(rows)), most_(2 * leaves_, room) {}

  // Takes this much from the first row that has it; which one.
  std::size_t take(std::int64_t length) {
    std::size_t node = 1;
    while (node < leaves_) node = most_[2 * node] >= length ? 2 * node : 2 * node + 1;
    const std::size_t row = node - leaves_;
    most_[node] -= length;
    while ((node /= 2) >= 1) most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
    return row;
  }

 private:
  std::size_t leaves_;
  std::vector<std::int64_t> most_;  // node i has the children 2 i and 2 i + 1; leaves come last
};

}  // namespace

std::vector<std::int64_t> first_fit(std::span<const std::int64_t> lengths, std::int64_t room) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return lengths[i]; });
  std::vector<std::int64_t> rows(lengths.size());
  // Each has a row of its own at worst.
  RoomTree tree(std::max<std::size_t>(1, lengths.size()), room);
  for (const std::size_t i : order) {
    KEEL_CHECK(0 <= lengths[i] && lengths[i] <= room, "a thing of length ", lengths[i], " does not fit in a row of ",
               room);
    rows[i] = static_cast<std::int64_t>(tree.take(lengths[i]));
  }
  return rows;
}

}  // namespace keel
