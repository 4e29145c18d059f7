// What users and launchers write, as launch_plan.h has it.

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include "keel/runtime/error.h"
#include "launch_plan.h"
#include "whole_number.h"

namespace keel::cli {
namespace {

Host parse_host(std::string_view text) {
  const std::size_t colon = text.find(':');
  Host host{std::string(text.substr(0, colon)), 0};
  if (colon != std::string_view::npos) host.ranks = whole_number(text.substr(colon + 1)).value_or(-1);
  const bool is_sound =
      !host.name.empty() && host.name[0] != '-' && (colon == std::string_view::npos || host.ranks > 0);
  KEEL_CHECK(is_sound, "a host is written NAME:RANKS, as in a:8; got '", text.substr(0, 60), "'");
  return host;
}

}  // namespace

std::vector<std::string> parse_slurm_ways(std::string_view list) {
  std::istringstream lines{std::string(list)};
  std::vector<std::string> ways;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string way, more;
    if (words >> way && !(words >> more)) ways.push_back(way);
  }
  return ways;
}

Launcher identify_launcher(std::string path, std::string_view version_text) {
  Launcher launcher{Launcher::Kind::other, 0, std::move(path)};
  const auto says = [&](std::string_view word) { return version_text.find(word) != std::string_view::npos; };
  if (says("Open MPI") || says("OpenRTE") || says("PRRTE")) launcher.kind = Launcher::Kind::open_mpi;
  else if (says("HYDRA") || says("Hydra") || says("Intel(R) MPI")) launcher.kind = Launcher::Kind::hydra;
  else if (says("slurm")) launcher.kind = Launcher::Kind::slurm;
  // "mpirun (Open MPI) 4.1.4": the first number with a point.
  for (std::size_t at = 0; (at = version_text.find_first_of("0123456789", at)) != std::string_view::npos;) {
    const std::size_t end = std::min(version_text.find_first_not_of("0123456789", at), version_text.size());
    if (end < version_text.size() && version_text[end] == '.') {
      launcher.version = whole_number(version_text.substr(at, end - at)).value_or(0);
      break;
    }
    at = end;
  }
  return launcher;
}

std::vector<Host> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  if (text.starts_with('=')) text.remove_prefix(1);
  for (;;) {
    const std::size_t comma = text.find(',');
    hosts.push_back(parse_host(text.substr(0, comma)));
    if (comma == std::string_view::npos) return hosts;
    text.remove_prefix(comma + 1);
  }
}

std::vector<Host> parse_hostfile(std::string_view text) {
  std::vector<Host> hosts;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    if (!(words >> word)) continue;
    hosts.push_back(parse_host(word));
    while (words >> word) {
      if (word.starts_with("max")) continue;  // Open MPI's max_slots, more than which nobody asks for here
      const auto slots = word.starts_with("slots=") ? whole_number(std::string_view(word).substr(6)) : std::nullopt;
      KEEL_CHECK(slots && *slots > 0, "a line of a host file is NAME slots=RANKS or NAME:RANKS; got '",
                 line.substr(0, 60), "'");
      hosts.back().ranks = *slots;
    }
  }
  KEEL_CHECK(!hosts.empty(), "the host file names no host");
  return hosts;
}

RankWish parse_ranks(std::string_view text) {
  const std::string_view given = text.substr(0, 60);
  if (text.starts_with('=')) text.remove_prefix(1);
  RankWish wish;
  bool is_sound = true;
  if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    const auto bound = [&](std::string_view word) -> std::optional<int> {
      const auto number = whole_number(word);
      is_sound = is_sound && (word.empty() || number);
      return number;
    };
    wish.slice.emplace(bound(text.substr(0, colon)), bound(text.substr(colon + 1)));
  } else {
    wish.count = whole_number(text);
    is_sound = wish.count && *wish.count > 0;
  }
  KEEL_CHECK(is_sound, "-N expects a number of ranks, or a slice of the GPUs as in 2: or 3:8; got '", given, "'");
  return wish;
}

}  // namespace keel::cli
