#include "learn/behind/schedules.h"

#include <algorithm>
#include <deque>

namespace learn {
namespace {

using keel::Piece;
using keel::Place;
using keel::Span;
using keel::Step;
using Numbers = std::vector<Number>;

std::string text(Span span) { return fmt::format("[{}, {})", span.begin, span.end); }
std::string text(const Piece& piece) {
  return fmt::format("{} of {}", text(piece.span), piece.place == Place::scratch ? "scratch" : "x");
}
bool overlap(const Piece& a, const Piece& b) {
  return a.place == b.place && a.span.begin < b.span.end && b.span.begin < a.span.end;
}

// A send or a receive that waits for its other half.
struct Half {
  int step = 0;
  Piece piece = {};
  Numbers numbers = {};  // what is sent
};

struct Player {
  int rank = 0;
  const keel::Schedule* schedule = nullptr;
  Numbers x = {}, scratch = {};
  std::size_t step = 0;
  bool entered = false;
  std::size_t met = 0;                                  // transfers of this step that have their other half
  std::vector<std::pair<Piece, Numbers>> arrived = {};  // is written when all have

  bool ended() const { return step == schedule->steps.size(); }
  const Step& now() const { return schedule->steps[step]; }
  std::size_t transfers() const { return now().sends.size() + now().receives.size(); }
  std::string where() const { return fmt::format("Rank {}, steps[{}]", rank, step); }
  Numbers& place(const Piece& piece) { return piece.place == Place::scratch ? scratch : x; }

  void check_piece(const Piece& piece, std::string_view use) {
    if (piece.place == Place::input)
      wrong("{} {} Place::input. Here x lies in Place::output, before and after.", where(), use);
    const auto size = static_cast<std::int64_t>(place(piece).size());
    if (piece.span.begin >= 0 && piece.span.begin <= piece.span.end && piece.span.end <= size) return;
    std::string_view why;
    if (piece.place == Place::scratch) why = "\nschedule.scratch says how many numbers scratch has.";
    else if (piece.span.begin < 0)
      why =
          "\nIs that part(x, n, i) with an i below 0? In C++ (a - b) % n is negative where a < b: add n "
          "first.";
    else if (piece.span.end > size)
      why = "\nIs that part(x, n, i) with an i of n or more? It goes round by % n.";
    wrong("{} {} {}, and {} has {}.{}", where(), use, text(piece),
          piece.place == Place::scratch ? "scratch" : "x", text(Span{0, size}), why);
  }

  Numbers read(const Piece& piece) {
    const auto begin = place(piece).begin();
    Numbers numbers(begin + piece.span.begin, begin + piece.span.end);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (numbers[i].times.empty())
        wrong("{} uses scratch[{}], into which nothing was received before.", where(),
              piece.span.begin + static_cast<std::int64_t>(i));
    return numbers;
  }
  void write(const Piece& piece, const Numbers& numbers) {
    std::copy(numbers.begin(), numbers.end(), place(piece).begin() + piece.span.begin);
  }

  void check_pieces(Place place) {
    const auto check = [&](const Piece& piece, std::string_view use) {
      if ((piece.place == Place::scratch) == (place == Place::scratch)) check_piece(piece, use);
    };
    for (const auto& send : now().sends) check(send.piece, "sends");
    for (const auto& receive : now().receives) check(receive.piece, "receives");
    for (const keel::Combination& c : now().combinations) {
      for (const Piece& term : c.terms) check(term, "adds");
      check(c.result, "writes a sum to");
    }
  }

  void check_step(int n) {
    check_pieces(Place::output);  // before those of scratch, whose lengths are often taken from them
    check_pieces(Place::scratch);
    std::vector<Piece> taken;
    for (const auto& send : now().sends) check_peer(send.peer, n);
    for (const auto& receive : now().receives) {
      check_peer(receive.peer, n);
      for (const auto& send : now().sends)
        if (overlap(send.piece, receive.piece))
          wrong(
              "{} sends {} while it receives {}. Both are under way together, so what leaves may be what "
              "just came.",
              where(), text(send.piece), text(receive.piece));
      for (const Piece& other : taken)
        if (overlap(other, receive.piece))
          wrong("{} receives {} and {}, which have numbers in common.", where(), text(other),
                text(receive.piece));
      taken.push_back(receive.piece);
    }
  }
  void check_peer(int peer, int n) const {
    if (peer < 0 || peer >= n)
      wrong("{} has a transfer with rank {}, and ranks are 0 to {}.{}", where(), peer, n - 1,
            peer < 0 ? "\nIn C++ (rank - 1) % n is -1 for rank 0: add n first." : "");
    if (peer == rank) wrong("{} has a transfer with itself.", where());
  }

  void combine() {
    for (const keel::Combination& c : now().combinations) {
      if (c.terms.empty()) wrong("{} has a combination without terms.", where());
      Numbers sum;
      for (const Piece& term : c.terms) {
        if (term.span.count() != c.result.span.count())
          wrong("{} adds {}, which has {} numbers, for a sum of {}.", where(), text(term), term.span.count(),
                c.result.span.count());
        const Numbers numbers = read(term);
        if (sum.empty()) {
          sum = numbers;
          continue;
        }
        for (std::size_t i = 0; i < sum.size(); ++i) {
          if (sum[i].place != numbers[i].place)
            wrong(
                "{} adds what was x[{}] to what was x[{}].\nWhat comes and what it is added to must be the "
                "same part "
                "of x: compare what the sender sends with what the receiver keeps.",
                where(), numbers[i].place, sum[i].place);
          sum[i].value += numbers[i].value;
          for (std::size_t r = 0; r < sum[i].times.size(); ++r) sum[i].times[r] += numbers[i].times[r];
        }
      }
      write(c.result, sum);
    }
  }
};

class Game {
 public:
  explicit Game(Played& played) : played_(played), sends_(pairs()), receives_(pairs()) {
    for (int r = 0; r < played.n; ++r) {
      Player& player = players_.emplace_back();
      player.rank = r;
      player.schedule = &played.schedules[static_cast<std::size_t>(r)];
      player.x = played.before[static_cast<std::size_t>(r)];
      if (player.schedule->scratch < 0 || player.schedule->scratch > 100 * (played.count + 1))
        wrong("Rank {} wants {} numbers of scratch.", r, player.schedule->scratch);
      player.scratch.resize(static_cast<std::size_t>(player.schedule->scratch));
    }
  }

  void run() {
    while (true) {
      bool moved = false, ended = true;
      for (Player& player : players_) {
        if (player.ended()) continue;
        ended = false;
        if (!player.entered) enter(player);
        if (player.met < player.transfers()) continue;
        for (const auto& [piece, numbers] : player.arrived) player.write(piece, numbers);
        player.arrived.clear();
        player.combine();
        player.entered = false;
        ++player.step;
        moved = true;
      }
      if (ended) break;
      moved = meet() || moved;
      if (!moved) explain_deadlock();
    }
    for (const Player& player : players_) played_.x.push_back(player.x);
    for (const Player& from : players_)
      for (const Player& to : players_)
        if (!sends_[pair(from.rank, to.rank)].empty())
          wrong("Rank {} sends to rank {} in steps[{}], which never receives it.", from.rank, to.rank,
                sends_[pair(from.rank, to.rank)].front().step);
  }

 private:
  std::size_t pairs() const { return static_cast<std::size_t>(played_.n * played_.n); }
  std::size_t pair(int from, int to) const { return static_cast<std::size_t>(from * played_.n + to); }
  Player& player(int rank) { return players_[static_cast<std::size_t>(rank)]; }

  void enter(Player& player) {
    player.check_step(played_.n);
    player.entered = true;
    player.met = 0;
    const int step = static_cast<int>(player.step);
    for (const auto& send : player.now().sends)
      sends_[pair(player.rank, send.peer)].push_back({step, send.piece, player.read(send.piece)});
    for (const auto& receive : player.now().receives)
      receives_[pair(receive.peer, player.rank)].push_back({step, receive.piece});
  }

  // Whether a send met a receive.
  bool meet() {
    bool moved = false;
    for (Player& from : players_)
      for (Player& to : players_) {
        auto& sends = sends_[pair(from.rank, to.rank)];
        auto& receives = receives_[pair(from.rank, to.rank)];
        for (; !sends.empty() && !receives.empty(); sends.pop_front(), receives.pop_front()) {
          const Half &send = sends.front(), &receive = receives.front();
          if (send.piece.span.count() != receive.piece.span.count())
            wrong(
                "With {}, rank {} sends {} to rank {} in steps[{}], and rank {} receives {} there in "
                "steps[{}]: {} "
                "numbers meet a place for {}.",
                played_.all(), from.rank, text(send.piece), to.rank, send.step, to.rank, text(receive.piece),
                receive.step, send.piece.span.count(), receive.piece.span.count());
          to.arrived.emplace_back(receive.piece, send.numbers);
          ++to.met, ++from.met;
          moved = true;
        }
      }
    return moved;
  }

  [[noreturn]] void explain_deadlock() {
    std::string said = fmt::format("With {}, ranks wait for each other for ever:\n", played_.all());
    bool receives = false;
    for (const Player& one : players_) {
      if (one.ended()) continue;
      const auto waits = [&](std::string_view verb, int peer) {
        const Player& other = player(peer);
        said +=
            fmt::format("  rank {}, steps[{}]: {} rank {}, which {}\n", one.rank, one.step, verb, peer,
                        other.ended() ? "has no more steps" : fmt::format("is in its steps[{}]", other.step));
      };
      for (const Player& other : players_) {
        if (!sends_[pair(one.rank, other.rank)].empty()) waits("sends to", other.rank);
        if (receives_[pair(other.rank, one.rank)].empty()) continue;
        waits("receives from", other.rank);
        receives = true;
      }
    }
    if (!receives)
      said +=
          "A send ends when its receiver takes it. Here all send first, and none comes to its receive. What "
          "shall "
          "be under way together belongs in one step: Step has sends and receives.";
    wrong(said);
  }

  Played& played_;
  std::vector<Player> players_;
  std::vector<std::deque<Half>> sends_, receives_;  // by sender and receiver
};

}  // namespace

std::string Played::all() const { return fmt::format("{} rank{}, count {}", n, n == 1 ? "" : "s", count); }

Played play(const ScheduleOf& schedule_of, std::int64_t count, int n) {
  Played played{.n = n, .count = count};
  for (int r = 0; r < n; ++r) {
    const std::vector<float> drawn = draw(count, static_cast<std::uint64_t>(1000 * n + r));
    Numbers x;
    for (const float value : drawn) {
      x.push_back(
          {value, std::vector<int>(static_cast<std::size_t>(n), 0), static_cast<std::int64_t>(x.size())});
      x.back().times[static_cast<std::size_t>(r)] = 1;
    }
    played.before.push_back(std::move(x));
    played.schedules.push_back(schedule_of(count, n, r));
  }
  Game(played).run();
  return played;
}

}  // namespace learn
