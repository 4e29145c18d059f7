#include "elastic.h"

#include <signal.h>

#include <algorithm>

#include "keel/runtime/error.h"
#include "process.h"
#include "report.h"

namespace keel::cli {
namespace {

using What = RankReport::What;
using Why = Ending::Why;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += concat(text.empty() ? "" : between, word);
  return text;
}

std::vector<RankReport> reports_of(What what, const SessionEnd& session) {
  std::vector<RankReport> found;
  for (const RankReport& report : session.reports)
    if (report.what == what) found.push_back(report);
  return found;
}

// Ranks whose process ended, and that did not say why.
std::vector<RankReport> ended_without_a_word(const SessionEnd& session) {
  std::vector<RankReport> found = reports_of(What::ended, session);
  std::erase_if(found, [&](const RankReport& ended) {
    return std::any_of(session.reports.begin(), session.reports.end(), [&](const RankReport& report) {
      return report.rank == ended.rank && (report.what == What::failed || report.what == What::heard);
    });
  });
  return found;
}

Why why_of_code(int code) {
  if (code == kBadInput) return Why::bad_input;
  return code == kNotFinite ? Why::not_finite : Why::died;
}

std::string rank_text(const RankReport& report) { return concat("rank ", report.rank, ' ', report.text); }

Ending ending_of_dead(const std::vector<RankReport>& reports) {
  Ending ending{Why::died, {}, {}};
  for (const RankReport& report : reports) {
    if (std::find(ending.dead.begin(), ending.dead.end(), report.rank) != ending.dead.end()) continue;
    ending.dead.push_back(report.rank);
    ending.text += concat(ending.text.empty() ? "" : ", ", rank_text(report));
  }
  return ending;
}

std::string ranks_text(int ranks) { return ranks == 1 ? "1 rank" : concat(ranks, " ranks"); }

std::string going_on(int ranks, const Standing& standing) {
  const char* s = ranks == 1 ? "s" : "";
  if (standing.step)
    return concat(ranks_text(ranks), " go", *s == 0 ? "" : "es", " on from step ", *standing.step,
                  standing.may_have_copies ? ", or from a later one in memory" : "");
  if (standing.may_have_copies)
    return concat(ranks_text(ranks), " go", *s == 0 ? "" : "es",
                  " on from a step in memory, or anew where there is none: there is no checkpoint yet");
  return concat(ranks_text(ranks), " begin", s, " anew, as there is no checkpoint yet");
}

std::string restarts_left(int left, int all) {
  if (left == 0) return "no restart is left";
  return concat(left, " of ", all, left == 1 ? " restarts is left" : " restarts are left");
}

// The places of dead ranks, and those of hosts that do not answer.
void leave_out(Slots& slots, const std::vector<int>& dead, const std::vector<std::string>& silent) {
  int rank = 0;
  for (Slot& slot : slots) {
    if (slot.is_left_out) continue;
    slot.is_left_out = std::find(dead.begin(), dead.end(), rank) != dead.end() || contains(silent, slot.host);
    ++rank;
  }
}

void bring_back(Slots& slots, const std::vector<std::string>& silent) {
  for (Slot& slot : slots) slot.is_left_out = contains(silent, slot.host);
}

NextStart give_up(const Standing& standing, const std::string& line) { return {false, 0, standing.slots, false, line}; }

NextStart after_death(const Ending& ending, const Standing& standing, const RestartRules& rules) {
  std::string what = ending.text;
  if (!standing.silent.empty())
    what += concat(what.empty() ? "" : "; ", "no answer comes from ", joined(standing.silent, ", "));
  const int left = rules.restarts - standing.used;
  if (left <= 0)
    return give_up(standing, concat(what, "; the run ends, as ", rules.restarts == 1 ? "the one restart" : "all ",
                                    rules.restarts == 1 ? "" : concat(rules.restarts, " restarts"), " of --restarts ",
                                    rules.restarts == 1 ? "is" : "are", " used up"));
  Slots slots = standing.slots;
  if (rules.min_ranks > 0) leave_out(slots, ending.dead, standing.silent);
  else if (!standing.silent.empty())
    return give_up(standing, concat(what, "; the run ends, as all ", ranks_text(rules.ranks),
                                    " are needed; --min-ranks lets fewer go on"));
  const int places = places_in_use(slots), ranks = ranks_that_fit(places, rules);
  if (ranks == 0 || ranks < rules.min_ranks)
    return give_up(standing, concat(what, "; the run ends, as ", ranks_text(ranks), " could go on, and --min-ranks is ",
                                    rules.min_ranks));
  return {true, ranks, slots, true,
          concat(what, "; ", going_on(ranks, standing), "; ", restarts_left(left - 1, rules.restarts))};
}

}  // namespace

Ending ending_of(const SessionEnd& session) {
  if (session.code == 0) return {};
  if (session.user_signal != 0) return {Why::stopped, {}, {}};
  if (session.was_to_grow && is_a_stop(session.code)) return {Why::grows, {}, {}};
  if (const auto killed = reports_of(What::killed, session); !killed.empty()) return ending_of_dead(killed);
  if (const auto failed = reports_of(What::failed, session); !failed.empty()) {
    Ending ending = ending_of_dead({failed.front()});
    ending.why = why_of_code(failed.front().number);
    return ending;
  }
  if (is_a_stop(session.code)) return {Why::stopped, {}, {}};
  const auto heard = reports_of(What::heard, session), silent = ended_without_a_word(session);
  // Where no other rank heard of an end, the exit code says what it was.
  if (!silent.empty()) {
    auto first =
        std::find_if(silent.begin(), silent.end(), [](const RankReport& report) { return report.number != 0; });
    if (first == silent.end()) first = silent.begin();
    Ending ending = ending_of_dead({*first});
    if (heard.empty()) ending.why = why_of_code(first->number);
    return ending;
  }
  if (!heard.empty()) return {Why::died, {}, rank_text(heard.front())};
  const bool began = !reports_of(What::started, session).empty();
  return {began ? Why::died : Why::no_start,
          {},
          concat("the launcher ended with exit code ", session.code, ", and no rank said why")};
}

NextStart decide(const Ending& ending, const Standing& standing, const RestartRules& rules) {
  switch (ending.why) {
    case Why::done:
    case Why::stopped:
    case Why::bad_input:
    case Why::not_finite: return give_up(standing, "");
    case Why::no_start:
      if (rules.restarts > 0 && !standing.silent.empty()) return after_death(ending, standing, rules);
      return give_up(standing, concat(ending.text, "; the run ends, as no rank ever started"));
    case Why::died:
      // Nobody asked for one: of a run whose ranks go on without those that die all are gone, and have said why.
      return rules.restarts == 0 ? give_up(standing, "") : after_death(ending, standing, rules);
    case Why::grows: break;
  }
  Slots slots = standing.slots;
  bring_back(slots, standing.silent);
  const int ranks = ranks_that_fit(places_in_use(slots), rules);
  return {true, ranks, slots, false, concat("what was left out answers again; ", going_on(ranks, standing))};
}

bool any_is_left_out(const Slots& slots) {
  return std::any_of(slots.begin(), slots.end(), [](const Slot& slot) { return slot.is_left_out; });
}

int places_in_use(const Slots& slots) {
  return static_cast<int>(
      std::count_if(slots.begin(), slots.end(), [](const Slot& slot) { return !slot.is_left_out; }));
}

Slots slots_at_work(const Slots& slots, const std::vector<RankReport>& reports) {
  std::vector<int> gone;
  for (const RankReport& report : reports)
    if (report.what == What::killed || (report.what == What::ended && report.number != 0)) gone.push_back(report.rank);
  Slots left = slots;
  leave_out(left, gone, {});
  return left;
}

int ranks_that_fit(int places, const RestartRules& rules) {
  const auto most = static_cast<int>(std::min<std::int64_t>(std::min(places, rules.ranks), rules.most));
  return rules.group > 0 ? static_cast<int>(most - most % rules.group) : most;
}

bool would_grow(const Slots& slots, const std::vector<std::string>& silent, int ranks, const RestartRules& rules) {
  Slots all = slots;
  bring_back(all, silent);
  return ranks_that_fit(places_in_use(all), rules) > ranks;
}

Slots slots_of(const std::vector<Host>& hosts, int ranks) {
  if (hosts.empty()) return Slots(static_cast<std::size_t>(ranks));
  Slots slots;
  for (const Host& host : hosts)
    slots.insert(slots.end(), static_cast<std::size_t>(host.ranks), Slot{host.name, false});
  return slots;
}

std::vector<Host> hosts_of(const Slots& slots) {
  std::vector<Host> hosts;
  for (const Slot& slot : slots) {
    if (slot.is_left_out || slot.host.empty()) continue;
    if (hosts.empty() || hosts.back().name != slot.host) hosts.push_back({slot.host, 0});
    ++hosts.back().ranks;
  }
  return hosts;
}

std::vector<std::string> host_names(const Slots& slots, bool left_out_alone) {
  std::vector<std::string> names;
  for (const Slot& slot : slots)
    if (!slot.host.empty() && (slot.is_left_out || !left_out_alone) && !contains(names, slot.host))
      names.push_back(slot.host);
  return names;
}

std::string gpus_in_use(const Slots& slots, const std::vector<std::string>& names) {
  if (names.size() < slots.size()) return "";
  std::vector<std::string> used;
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (!slots[i].is_left_out) used.push_back(names[i]);
  return joined(used, ",");
}

}  // namespace keel::cli
