#pragma once
// A collective's schedules played with words instead of numbers: what each element is a sum of, and in which order.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/comm/schedule.h"
#include "keel/runtime/json.h"

namespace keel::cli {

struct PlayedMessage {
  int from = 0, to = 0;
  Piece sent, received;  // where it lay, and where it comes to lie
  int leaves = 0;        // the tick in which it is under way
};

// Texts of a rank's elements, by place: "" is nothing yet, "2" what rank 2 gave, "(2+3)+0" a sum from left to right.
using PlayedMemory = std::vector<std::vector<std::string>>;  // by Place

struct Play {
  std::string collective, algorithm, order;
  int ranks = 1, root = -1;  // -1: it has none
  std::int64_t count = 0;
  std::vector<int> nodes;
  int ticks = 0;  // a message takes one; what follows on it happens at its end
  std::vector<PlayedMessage> messages;
  // [tick][rank]: what lies where at the beginning of the tick; the last entry is the end.
  std::vector<std::vector<PlayedMemory>> states;
  std::vector<std::int64_t> sent;  // elements, by rank
};

// `algorithm`: a name of keel/dist/comm/algorithms.h; of a broadcast "tree" or "scattered", and "direct" of what has
// one way alone. `count` elements; ranks_per_node 0: all share a node. Throws an Error that lists what there is.
Play play(std::string_view collective, std::string_view algorithm, int ranks, std::int64_t count, int root = 0,
          int ranks_per_node = 0);

// By rank the numbers of the ranks whose numbers are in an element's text, in the order in which it adds them.
std::vector<int> added_in(std::string_view text);

Json to_json(const Play& play);

}  // namespace keel::cli
