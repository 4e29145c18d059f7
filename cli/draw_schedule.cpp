#include "draw_schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "page.h"
#include "schedule_play.h"

namespace keel::cli {
namespace {

constexpr int kMostDrawn = 32;       // that can be told apart
constexpr std::int64_t kOfEach = 1;  // elements of a shard

int root_of(const std::string& text) {
  int root = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), root);
  KEEL_CHECK(code == std::errc() && end == text.data() + text.size(), "--draw shows one root, and --root is '", text,
             "'");
  return root;
}

}  // namespace

void draw_schedule(const DrawWish& wish) {
  KEEL_CHECK(wish.ranks >= 2 && wish.ranks <= kMostDrawn, "--draw shows 2 to ", kMostDrawn, " ranks, and -N is ",
             wish.ranks);
  const Play played =
      play(wish.collective, wish.algorithm, wish.ranks, kOfEach * wish.ranks, root_of(wish.root), wish.ranks_per_node);
  const std::string out = wish.out.empty() ? wish.algorithm + ".html" : wish.out;
  write_text_file(out, fill_page(kSchedulePage, to_json(played)));
  const std::int64_t most = *std::ranges::max_element(played.sent);
  fmt::print("{} by {}, {} ranks: {} messages in {} steps; a rank sends {} of {} parts of the tensor, at most\n{}\n",
             played.collective, played.algorithm, played.ranks, played.messages.size(), played.ticks, most,
             played.count, out);
}

}  // namespace keel::cli
