#include "keel/dist/checkpoint/memory_promotion.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/dist/checkpoint/memory_copies.h"
#include "keel/dist/checkpoint/rank_parts.h"
#include "keel/dist/checkpoint/visibility.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

namespace fs = std::filesystem;
using Complain = std::function<void(std::string_view)>;

// A copy of a step, as all hosts together have it.
struct FoundCopy {
  std::optional<MemoryMark> mark;                 // of the first host that has one; without, it is unfinished
  std::map<int, std::vector<int>> hosts_of_part;  // by rank
};

// What one host has: {"failure": "", "steps": [{"step": 35, "mark": "...", "parts": [0, 1]}]}.
Json list_copies(const MemoryFolder& folder) {
  Json list = {{"failure", ""}, {"steps", Json::array()}};
  try {
    for (const std::int64_t step : folder.steps()) {
      Json entry = {{"step", step}, {"mark", ""}, {"parts", Json::array()}};
      const std::string path = concat(folder.of_step(step), '/', MemoryMark::kFile);
      std::error_code ignored;
      if (fs::exists(path, ignored)) entry["mark"] = read_text_file(path);
      for (const fs::directory_entry& file : fs::directory_iterator(folder.of_step(step), ignored))
        if (const auto rank = rank_of_part(file.path().filename().string())) entry["parts"].push_back(*rank);
      list["steps"].push_back(std::move(entry));
    }
  } catch (const Error& error) { list["failure"] = error.what(); }
  return list;
}

std::string list_of(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += concat(i == 0 ? "" : i + 1 == words.size() ? " and " : ", ", words[i]);
  return text;
}

void copy_by_pieces(const std::string& from, const std::string& to) {
  const InputFile source(from);
  AtomicFile target(to);
  std::vector<std::byte> piece(std::min<std::uint64_t>(source.size(), kExtentBytes));
  for (std::uint64_t done = 0; done < source.size(); done += piece.size()) {
    const auto here = std::span(piece).first(std::min<std::uint64_t>(piece.size(), source.size() - done));
    source.read(done, here);
    target.write(here);
  }
  target.commit();
}

// An Error where a file has another size, or bytes another hash.
void verify_part(const std::string& folder, int rank) {
  const Manifest part = read_part(folder, rank);
  for (const StoredFile& file : part.files) {
    const std::string path = concat(folder, '/', file.name);
    std::error_code code;
    const std::uint64_t bytes = fs::file_size(path, code);
    if (code) throw Error(concat("cannot read '", path, "': ", code.message()), ErrorKind::io);
    KEEL_CHECK(bytes == file.bytes, "'", path, "' has ", bytes, " bytes instead of ", file.bytes);
  }
  ExtentReader(folder, part).verify();
}

class Promoting {
 public:
  Promoting(const MemoryFolder& folder, Communicator& ranks, const Complain& complain)
      : folder_(folder), ranks_(ranks), complain_(complain), hosts_(meet_in_memory(ranks, folder.root())) {}

  // By step. Every rank finds the same.
  std::map<std::int64_t, FoundCopy> find() {
    std::map<std::int64_t, FoundCopy> copies;
    const bool lists = hosts_.is_first(ranks_.rank());
    const std::vector<std::string> texts =
        gather_texts(ranks_, lists ? list_copies(folder_).dump(-1, BadUtf8::replace) : "");
    for (int r = 0; r < ranks_.size(); ++r) {
      const std::string& text = texts[static_cast<std::size_t>(r)];
      if (text.empty()) continue;
      const int host = hosts_.of[static_cast<std::size_t>(r)];
      const Json list = Json::parse(text);
      if (const std::string& failure = list.at("failure").string(); !failure.empty())
        tell(concat(failure, " (", hosts_.names[static_cast<std::size_t>(host)], ")"));
      for (const Json& entry : list.at("steps").items()) {
        const std::int64_t step = entry.at("step").integer();
        FoundCopy& copy = copies[step];
        if (const std::string& mark = entry.at("mark").string(); !copy.mark && !mark.empty())
          copy.mark = read(mark, step);
        for (const Json& part : entry.at("parts").items())
          copy.hosts_of_part[static_cast<int>(part.integer())].push_back(host);
      }
    }
    return copies;
  }

  // Makes the checkpoint `path`. An AgreedError says why it cannot be. Returns the hosts.
  std::string promote(std::int64_t step, const FoundCopy& copy, const std::string& path) {
    const int parts = copy.mark->ranks;
    std::optional<AtomicFolder> made;
    together(ranks_, [&] {
      for (int r = 0; r < parts; ++r)
        KEEL_CHECK(copy.hosts_of_part.contains(r), "no host has the part of rank ", r, " of ", parts);
      if (ranks_.rank() == 0) made.emplace(path, IfExists::replace);
    });
    const std::string target = broadcast_text(ranks_, made ? made->temporary() : "");
    const std::set<int> used = write_parts(step, copy, target);
    together(ranks_, [&] {
      if (!made) return;
      if (const std::string warning = commit_parts(*made, parts, copy.mark->state); !warning.empty()) tell(warning);
    });
    std::vector<std::string> names;
    for (const int host : used)
      if (const std::string& name = hosts_.names[static_cast<std::size_t>(host)];
          std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(name);
    return list_of(names);
  }

 private:
  void tell(const std::string& text) const {
    if (ranks_.rank() == 0) complain_(text);
  }

  std::optional<MemoryMark> read(const std::string& mark, std::int64_t step) const {
    try {
      return parse_mark(mark, concat(folder_.of_step(step), '/', MemoryMark::kFile));
    } catch (const Error& error) { tell(error.what()); }
    return std::nullopt;
  }

  // Who writes a part: the ranks of a host in turn.
  int writer_of(int part, int host) const {
    const std::vector<int> ranks = hosts_.ranks_of(host);
    return ranks[static_cast<std::size_t>(part) % ranks.size()];
  }

  // Rounds in which each part that is not written yet is taken from the next host that has it. Returns the hosts.
  std::set<int> write_parts(std::int64_t step, const FoundCopy& copy, const std::string& target) {
    std::map<int, std::vector<int>> left = copy.hosts_of_part;
    left.erase(left.lower_bound(copy.mark->ranks), left.end());
    // Hosts that have the same parts share the work.
    for (auto& [part, hosts] : left)
      if (part % 2 == 1) std::reverse(hosts.begin(), hosts.end());
    std::set<int> used;
    while (!left.empty()) {
      const std::map<int, std::string> results = write_round(step, left, target);
      for (const auto& [part, damage] : results) {
        std::vector<int>& hosts = left[part];
        if (damage.empty()) {
          used.insert(hosts.front());
          left.erase(part);
          continue;
        }
        const std::string what = concat(damage, " (", hosts_.names[static_cast<std::size_t>(hosts.front())], ")");
        hosts.erase(hosts.begin());
        if (hosts.empty()) throw AgreedError(what);
        tell(concat("a copy of step ", step, " in memory is damaged, and another host's is taken: ", what));
      }
    }
    return used;
  }

  // What was wrong with each part, by all ranks. A target that takes nothing is an AgreedError.
  std::map<int, std::string> write_round(std::int64_t step, const std::map<int, std::vector<int>>& left,
                                         const std::string& target) {
    Json mine = Json::array();
    together(ranks_, [&] {
      std::error_code ignored;
      if (!becomes_visible([&] { return fs::is_directory(target, ignored); }))
        throw Error(concat("'", target, "' does not appear; do all ranks see the same folder?"), ErrorKind::io);
      for (const auto& [part, hosts] : left)
        if (writer_of(part, hosts.front()) == ranks_.rank())
          mine.push_back(Json::array({part, write_part_of(step, part, target)}));
    });
    std::map<int, std::string> results;
    for (const std::string& text : gather_texts(ranks_, mine.dump(-1, BadUtf8::replace))) {
      const Json rows = Json::parse(text);
      for (const Json& row : rows.items())
        results[static_cast<int>(row.items()[0].integer())] = row.items()[1].string();
    }
    return results;
  }

  // Returns what is wrong with the part here; empty: it is written.
  std::string write_part_of(std::int64_t step, int part, const std::string& target) const {
    const std::string source = folder_.of_step(step);
    try {
      verify_part(source, part);
    } catch (const Error& error) { return error.what(); }
    for (const StoredFile& file : read_part(source, part).files)
      copy_by_pieces(concat(source, '/', file.name), concat(target, '/', file.name));
    copy_by_pieces(concat(source, '/', part_name(part)), concat(target, '/', part_name(part)));
    return "";
  }

  const MemoryFolder& folder_;
  Communicator& ranks_;
  const Complain& complain_;
  MemoryHosts hosts_;
};

}  // namespace

std::optional<Promotion> promote_copy(const MemoryFolder& folder, Communicator& ranks, std::int64_t above,
                                      std::int64_t below, const std::function<std::string(std::int64_t)>& path_of,
                                      const std::function<void(std::string_view)>& complain) {
  Promoting promoting(folder, ranks, complain);
  const std::map<std::int64_t, FoundCopy> copies = promoting.find();
  for (auto found = copies.rbegin(); found != copies.rend(); ++found) {
    const auto& [step, copy] = *found;
    if (step <= above || step >= below || !copy.mark) continue;
    try {
      const std::string path = path_of(step);
      return Promotion{step, path, promoting.promote(step, copy, path)};
    } catch (const Error& error) {
      if (!is_thrown_by_all(ranks)) throw;
      if (ranks.rank() == 0) complain(concat("the copy of step ", step, " in memory is not usable: ", error.what()));
    }
  }
  return std::nullopt;
}

}  // namespace keel
