#include "schedule_play.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <functional>
#include <map>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/collective_table.h"
#include "keel/runtime/error.h"

namespace keel::cli {
namespace {

constexpr int kPlaces = 3;

std::size_t index(Place place) { return static_cast<std::size_t>(place); }

// A way to do a collective.
struct Way {
  std::string_view name, order;
  std::function<Schedule(const CollectiveShape&)> write;
};

std::vector<Way> ways_of(CollectiveKind kind, int root) {
  const auto of_each = [](const std::function<Schedule(const Algorithm&, const CollectiveShape&)>& write) {
    std::vector<Way> ways;
    for (const Algorithm* const each : algorithms())
      ways.push_back({each->name, each->order, [=](const CollectiveShape& shape) { return write(*each, shape); }});
    return ways;
  };
  switch (kind) {
    case CollectiveKind::all_reduce: return of_each([](const Algorithm& a, const auto& s) { return a.all_reduce(s); });
    case CollectiveKind::reduce_scatter:
      return of_each([](const Algorithm& a, const auto& s) { return a.reduce_scatter(s); });
    case CollectiveKind::all_gather: return of_each([](const Algorithm& a, const auto& s) { return a.all_gather(s); });
    case CollectiveKind::reduce: {
      std::vector<Way> ways =
          of_each([root](const Algorithm& a, const auto& s) { return reduce_by_parts(a, s, root); });
      ways.push_back({"root", "by rank, by the root alone", [=](const auto& s) { return reduce_by_root(s, root); }});
      return ways;
    }
    case CollectiveKind::broadcast:
      return {{"tree", "", [=](const auto& s) { return broadcast_tree(s, root); }},
              {"scattered", "", [=](const auto& s) { return broadcast_scattered(s, root); }}};
    case CollectiveKind::gather: return {{"direct", "", [=](const auto& s) { return gather(s, root); }}};
    case CollectiveKind::scatter: return {{"direct", "", [=](const auto& s) { return scatter(s, root); }}};
    case CollectiveKind::all_to_all: return {{"direct", "", [](const auto& s) { return all_to_all(s); }}};
    default: return {};
  }
}

CollectiveKind kind_called(std::string_view name) {
  std::string names;
  for (int i = 0; i <= static_cast<int>(CollectiveKind::receive); ++i) {
    const auto kind = static_cast<CollectiveKind>(i);
    if (ways_of(kind, 0).empty()) continue;
    if (name_of(kind) == name) return kind;
    names += concat(names.empty() ? "" : ", ", name_of(kind));
  }
  throw Error(concat("--draw shows ", names, "; there is no '", name, "' among them"));
}

Way find_way(CollectiveKind kind, std::string_view name, int root) {
  std::string names;
  for (Way& way : ways_of(kind, root)) {
    if (way.name == name) return std::move(way);
    names += concat(names.empty() ? "" : ", ", way.name);
  }
  throw Error(concat("--draw ", name, ": ", name_of(kind), " has ", names));
}

// What a rank has before: of a whole tensor, or of its shard, its own number.
PlayedMemory beginning(CollectiveKind kind, int rank, int root, const CollectiveShape& shape, std::int64_t scratch) {
  const CollectiveTraits& traits = traits_of(kind);
  const std::int64_t own = Cut(shape.count, shape.size).of(rank).count();
  const auto length = [&](Held held) -> std::int64_t {
    switch (held) {
      case Held::nothing: return 0;
      case Held::part: return own;
      case Held::whole: return shape.count;
      case Held::whole_at_root: return rank == root ? shape.count : 0;
    }
    return 0;
  };
  PlayedMemory memory(kPlaces);
  memory[index(Place::input)].assign(static_cast<std::size_t>(length(traits.given)), std::to_string(rank));
  memory[index(Place::output)].resize(static_cast<std::size_t>(length(traits.gotten)));
  memory[index(Place::scratch)].resize(static_cast<std::size_t>(scratch));
  if (kind == CollectiveKind::broadcast) {  // from the root's output to that of all
    memory[index(Place::output)].assign(static_cast<std::size_t>(shape.count),
                                        rank == root ? std::to_string(rank) : "");
    memory[index(Place::input)].clear();
  }
  return memory;
}

std::vector<std::string> read(const PlayedMemory& memory, const Piece& piece) {
  const std::vector<std::string>& from = memory[index(piece.place)];
  KEEL_CHECK(piece.span.begin >= 0 && piece.span.end <= std::ssize(from), "a schedule reads elements ",
             piece.span.begin, " to ", piece.span.end, " of ", from.size());
  return {from.begin() + piece.span.begin, from.begin() + piece.span.end};
}

void write(PlayedMemory& memory, const Piece& piece, const std::vector<std::string>& texts) {
  std::vector<std::string>& to = memory[index(piece.place)];
  KEEL_CHECK(piece.span.count() == std::ssize(texts) && piece.span.begin >= 0 && piece.span.end <= std::ssize(to),
             "a schedule writes ", texts.size(), " elements from ", piece.span.begin, " on into ", to.size());
  std::ranges::copy(texts, to.begin() + piece.span.begin);
}

std::string in_brackets(const std::string& text) {
  return text.find('+') == std::string::npos ? text : concat('(', text, ')');
}

void combine(PlayedMemory& memory, const Combination& combination) {
  std::vector<std::string> sum = read(memory, combination.terms.front());
  for (std::size_t t = 1; t < combination.terms.size(); ++t) {
    const std::vector<std::string> more = read(memory, combination.terms[t]);
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] = concat(t == 1 ? in_brackets(sum[i]) : sum[i], '+', in_brackets(more[i]));
  }
  write(memory, combination.result, sum);
}

// Ranks go through their steps as messages let them: all sends of a step leave in the tick in which it begins, and it
// ends when the last of its messages is there.
class Player {
 public:
  Player(Play& play, std::vector<Schedule> schedules, std::vector<PlayedMemory> memory)
      : play_(play), schedules_(std::move(schedules)), memory_(std::move(memory)), at_(schedules_.size()) {}

  void run() {
    play_.states.push_back(memory_);
    while (!is_over()) {
      const std::size_t before = play_.messages.size();
      bool moves = false;
      for (std::size_t r = 0; r < schedules_.size(); ++r) moves |= begin_step(r);
      for (std::size_t r = 0; r < schedules_.size(); ++r) moves |= end_step(r);
      KEEL_CHECK(moves || play_.messages.size() > before, "the schedule comes to a stop: every rank waits");
      play_.states.push_back(memory_);
      ++play_.ticks;
    }
  }

 private:
  struct Position {
    std::size_t step = 0;
    bool has_begun = false;
  };
  struct UnderWay {
    std::vector<std::string> texts;
    std::size_t message;
  };

  bool is_over() const {
    for (std::size_t r = 0; r < at_.size(); ++r)
      if (at_[r].step < schedules_[r].steps.size()) return false;
    return true;
  }
  const Step* step_of(std::size_t rank) const {
    const std::vector<Step>& steps = schedules_[rank].steps;
    return at_[rank].step < steps.size() ? &steps[at_[rank].step] : nullptr;
  }
  bool begin_step(std::size_t rank) {
    const Step* const step = step_of(rank);
    if (step == nullptr || at_[rank].has_begun) return false;
    at_[rank].has_begun = true;
    for (const Transfer& send : step->sends) {
      const auto from = static_cast<int>(rank);
      under_way_[{from, send.peer}].push_back({read(memory_[rank], send.piece), play_.messages.size()});
      play_.messages.push_back(
          {.from = from, .to = send.peer, .sent = send.piece, .received = {}, .leaves = play_.ticks});
      play_.sent[rank] += send.piece.span.count();
    }
    return true;
  }
  bool end_step(std::size_t rank) {
    const Step* const step = step_of(rank);
    if (step == nullptr || !at_[rank].has_begun) return false;
    std::map<int, std::size_t> needed;  // messages by peer
    for (const Transfer& receive : step->receives) ++needed[receive.peer];
    const auto to = static_cast<int>(rank);
    for (const auto& [peer, count] : needed)
      if (under_way_[{peer, to}].size() < count) return false;
    for (const Transfer& receive : step->receives) {
      std::deque<UnderWay>& queue = under_way_[{receive.peer, to}];
      write(memory_[rank], receive.piece, queue.front().texts);
      play_.messages[queue.front().message].received = receive.piece;
      queue.pop_front();
    }
    for (const Combination& combination : step->combinations) combine(memory_[rank], combination);
    at_[rank] = {at_[rank].step + 1, false};
    return true;
  }

  Play& play_;
  std::vector<Schedule> schedules_;
  std::vector<PlayedMemory> memory_;
  std::vector<Position> at_;
  std::map<std::pair<int, int>, std::deque<UnderWay>> under_way_;  // by sender and receiver
};

Json to_json(const Piece& piece) {
  constexpr std::string_view kNames[kPlaces] = {"input", "output", "scratch"};
  return Json::array({kNames[index(piece.place)], piece.span.begin, piece.span.end});
}

}  // namespace

Play play(std::string_view collective, std::string_view algorithm, int ranks, std::int64_t count, int root,
          int ranks_per_node) {
  const CollectiveKind kind = kind_called(collective);
  const bool has_root = traits_of(kind).has_root;
  KEEL_CHECK(!has_root || (root >= 0 && root < ranks), "there is no root ", root, " among ", ranks, " ranks");
  const Way way = find_way(kind, algorithm, root);
  Play play{.collective = std::string(collective),
            .algorithm = std::string(algorithm),
            .order = std::string(way.order),
            .ranks = ranks,
            .root = has_root ? root : -1,
            .count = count,
            .nodes = {},
            .messages = {},
            .states = {},
            .sent = std::vector<std::int64_t>(static_cast<std::size_t>(ranks))};
  for (int rank = 0; rank < ranks; ++rank) play.nodes.push_back(ranks_per_node > 0 ? rank / ranks_per_node : 0);
  std::vector<Schedule> schedules;
  std::vector<PlayedMemory> memory;
  for (int rank = 0; rank < ranks; ++rank) {
    const CollectiveShape shape{.rank = rank, .size = ranks, .count = count, .node = play.nodes};
    schedules.push_back(way.write(shape));
    memory.push_back(beginning(kind, rank, root, shape, schedules.back().scratch));
  }
  Player(play, std::move(schedules), std::move(memory)).run();
  return play;
}

std::vector<int> added_in(std::string_view text) {
  std::vector<int> ranks;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (std::isdigit(static_cast<unsigned char>(text[at])) == 0) continue;
    int rank = 0;
    for (; at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0; ++at)
      rank = 10 * rank + (text[at] - '0');
    ranks.push_back(rank);
  }
  return ranks;
}

Json to_json(const Play& play) {
  Json messages = Json::array(), states = Json::array();
  for (const PlayedMessage& message : play.messages)
    messages.push_back({{"from", message.from},
                        {"to", message.to},
                        {"sent", to_json(message.sent)},
                        {"received", to_json(message.received)},
                        {"tick", message.leaves}});
  for (const std::vector<PlayedMemory>& state : play.states) {
    Json ranks = Json::array();
    for (const PlayedMemory& memory : state)
      ranks.push_back({{"input", memory[index(Place::input)]},
                       {"output", memory[index(Place::output)]},
                       {"scratch", memory[index(Place::scratch)]}});
    states.push_back(ranks);
  }
  return {{"collective", play.collective},
          {"algorithm", play.algorithm},
          {"order", play.order},
          {"ranks", play.ranks},
          {"root", play.root},
          {"count", play.count},
          {"nodes", play.nodes},
          {"ticks", play.ticks},
          {"messages", messages},
          {"states", states},
          {"sent", play.sent}};
}

}  // namespace keel::cli
