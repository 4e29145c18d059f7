#include "keel/dist/parallel/update_walk.h"

#include <algorithm>
#include <deque>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::int64_t kSmallestPiece = 1 << 11, kLargestPiece = 1 << 19;  // elements
constexpr std::int64_t kPiecesInMemory = 4;

// A piece of a unit, and its bytes: that come when it is read, that go when it is updated, and when it is written.
struct WalkedPiece {
  std::size_t unit;
  Span elements;
  bool is_last;
  std::int64_t comes = 0, goes = 0, leaves = 0;

  WalkStep step(WalkStep::Kind kind) const { return {kind, unit, elements, is_last}; }
};

std::vector<WalkedPiece> pieces_of(std::span<const WalkedUnit> units, std::int64_t piece) {
  std::vector<WalkedPiece> pieces;
  for (std::size_t number = 0; number < units.size(); ++number) {
    const WalkedUnit& unit = units[number];
    const std::int64_t most = unit.read > 0 ? piece : unit.elements;
    std::int64_t begin = 0;
    do {
      const Span elements{begin, std::min(begin + most, unit.elements)};
      const bool is_first = begin == 0, is_last = elements.end == unit.elements;
      pieces.push_back(
          {.unit = number,
           .elements = elements,
           .is_last = is_last,
           .comes = elements.count() * unit.read + (is_first ? unit.whole_read : 0),
           .goes = elements.count() * (unit.read - unit.written) + (is_last ? unit.whole_read - unit.whole_written : 0),
           .leaves = elements.count() * unit.written + (is_last ? unit.whole_written : 0)});
      begin = elements.end;
    } while (begin < unit.elements);
  }
  return pieces;
}

}  // namespace

void WalkedUnit::add(PageUse use, bool in_pieces, std::int64_t bytes) {
  if (use != PageUse::none) (in_pieces ? read : whole_read) += bytes;
  if (use == PageUse::updated) (in_pieces ? written : whole_written) += bytes;
}

std::int64_t WalkedUnit::least(std::int64_t piece) const { return whole_read + std::min(piece, elements) * read; }

std::int64_t piece_of_walk(std::span<const WalkedUnit> units, std::int64_t budget) {
  std::int64_t piece = kLargestPiece;
  for (const WalkedUnit& unit : units) {
    const auto fits = [&] {
      return unit.whole_read + kPiecesInMemory * std::min(piece, unit.elements) * unit.read <= budget;
    };
    while (piece > kSmallestPiece && !fits()) piece /= 2;
  }
  return piece;
}

UpdateWalk walk_update(std::span<const WalkedUnit> units, std::int64_t piece, std::int64_t budget) {
  using Kind = WalkStep::Kind;
  for (const WalkedUnit& unit : units)
    KEEL_CHECK(unit.least(piece) <= budget, "a unit of which ", unit.least(piece),
               " bytes are in memory does not fit into ", budget);
  const std::vector<WalkedPiece> pieces = pieces_of(units, piece);
  UpdateWalk walk;
  std::int64_t in_memory = 0;
  std::deque<std::size_t> leaving;
  std::size_t next = 0;  // to be read
  const auto settle_oldest = [&] {
    const WalkedPiece& oldest = pieces[leaving.front()];
    walk.steps.push_back(oldest.step(Kind::settle));
    in_memory -= oldest.leaves;
    leaving.pop_front();
  };
  for (std::size_t now = 0; now < pieces.size(); ++now) {
    for (; next < pieces.size(); ++next) {
      const auto is_full = [&] { return in_memory + pieces[next].comes > budget; };
      while (is_full() && leaving.size() > (next == now ? 0u : 1u)) settle_oldest();
      if (is_full()) break;
      walk.steps.push_back(pieces[next].step(Kind::fetch));
      walk.peak = std::max(walk.peak, in_memory += pieces[next].comes);
    }
    walk.steps.push_back(pieces[now].step(Kind::update));
    in_memory -= pieces[now].goes;
    leaving.push_back(now);
  }
  while (!leaving.empty()) settle_oldest();
  return walk;
}

}  // namespace keel
