#include "draw_schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "page.h"
#include "schedule_play.h"

namespace keel::cli {
namespace {

constexpr int kMostDrawn = 32;       // that can be told apart
constexpr std::int64_t kOfEach = 1;  // elements of a shard

// Steps with messages, and the elements that the rank that sends most in each of them sends.
struct PlayedLength {
  std::int64_t steps = 0, elements = 0;
};
PlayedLength played_length_of(const Play& played) {
  std::map<int, std::vector<std::int64_t>> sent;  // in each step, by rank
  for (const PlayedMessage& message : played.messages) {
    std::vector<std::int64_t>& of_step = sent[message.leaves];
    of_step.resize(static_cast<std::size_t>(played.ranks));
    of_step[static_cast<std::size_t>(message.from)] += message.sent.span.count();
  }
  PlayedLength length{.steps = std::ssize(sent)};
  for (const auto& [step, elements] : sent) length.elements += std::ranges::max(elements);
  return length;
}

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
  const PlayedLength length = played_length_of(played);
  fmt::print(
      "{} by {}, {} ranks: {} messages in {} steps; a rank sends {} of {} parts of the tensor, at most, and {} "
      "follow one another\n{}\n",
      played.collective, played.algorithm, played.ranks, played.messages.size(), length.steps, most, played.count,
      length.elements, out);
}

}  // namespace keel::cli
