#include "draw_schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "page.h"
#include "schedule_play.h"

namespace keel::cli {
namespace {

constexpr int kMostDrawn = 32;       // that can be told apart
constexpr std::int64_t kOfEach = 1;  // elements of a shard

// Steps with messages, and the elements that follow one another at most: a rank sends a message after another, and
// those of a step once all of the steps before have come to it.
struct PlayedLength {
  std::int64_t steps = 0, elements = 0;
};
PlayedLength played_length_of(const Play& played) {
  std::map<int, std::vector<PlayedMessage>> by_step;
  for (const PlayedMessage& message : played.messages) by_step[message.leaves].push_back(message);
  PlayedLength length{.steps = std::ssize(by_step)};
  const auto ranks = static_cast<std::size_t>(played.ranks);
  std::vector<std::int64_t> sent(ranks), arrived(ranks);  // by rank, when
  for (const auto& [step, messages] : by_step) {
    std::vector<std::int64_t> arriving = arrived;
    for (const PlayedMessage& message : messages) {
      const auto from = static_cast<std::size_t>(message.from), to = static_cast<std::size_t>(message.to);
      sent[from] = std::max(sent[from], arrived[from]) + message.sent.span.count();
      arriving[to] = std::max(arriving[to], sent[from]);
      length.elements = std::max(length.elements, sent[from]);
    }
    arrived = std::move(arriving);
  }
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
