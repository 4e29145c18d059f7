#pragma once
// `keel comm --draw`: a schedule as an animation.

#include <string>

namespace keel::cli {

struct DrawWish {
  std::string collective, algorithm, out;  // `out` empty: ALGORITHM.html
  int ranks = 1, ranks_per_node = 0;
  std::string root = "0";
};

// Writes the page, and prints what it shows.
void draw_schedule(const DrawWish& wish);

}  // namespace keel::cli
