// `keel checkpoints`: which checkpoints a run has, and whether they are whole.

#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bar.h"
#include "commands.h"
#include "common_options.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/runtime/memory_limit.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/checkpoint_list.h"
#include "program_keys.h"
#include "table.h"

namespace keel::cli {
namespace {

constexpr const char* kCheckpointsFooter = R"(
Examples:
  keel checkpoints runs/mine
  keel checkpoints runs/mine --verify                    every byte is compared with its hash
  keel checkpoints runs/mine/checkpoints/step-00000500   one of them
  keel checkpoints runs/mine --json checkpoints.json

"latest" is the one that the file `latest` names, "best" that of checkpoint.best, with
"by" where that has several rules, "resume" the one that resume=auto goes on from. Ranks are those that
have written a part of the weights. The exit code is 1 where something is damaged, and 0 where all is whole.)";

constexpr int kDamaged = 1;

struct CheckpointsArguments {
  std::string run, json;
  bool verify = false;
  int columns = 0;
};

bool is_latest(const CheckpointList& list, const ListedCheckpoint& each) {
  return list.is_of_run && std::filesystem::path(each.path).filename() == list.latest;
}

std::string notes_of(const CheckpointList& list, const ListedCheckpoint& each) {
  std::string notes = is_latest(list, each) ? "latest" : "";
  for (const auto& [best, rule] : list.all_best)
    if (std::filesystem::path(each.path).filename() == best)
      notes += concat(notes.empty() ? "" : ", ", rule.empty() ? "best" : concat("best by ", printable(rule)));
  if (list.is_of_run && &each == list.next()) notes += notes.empty() ? "resume" : ", resume";
  return notes;
}

std::string table_of(const CheckpointList& list, const CheckpointsArguments& arguments) {
  TableColumn step{"", "step", 0}, size{"", "size", 0}, files{"", "files", 2}, ranks{"", "ranks", 2},
      written{"", "written", 1, true}, state{"", "state", 0, true}, notes{"", "", 0, true};
  for (const ListedCheckpoint& each : list.checkpoints) {
    const bool is_open = each.files > 0;  // else nothing is known
    step.cells.push_back(std::to_string(each.step));
    size.cells.push_back(binary_size(static_cast<double>(each.bytes)));
    files.cells.push_back(is_open ? std::to_string(each.files) : "");
    ranks.cells.push_back(is_open ? std::to_string(each.ranks) : "");
    written.cells.push_back(fmt::format("{:%F %H:%M}", fmt::localtime(static_cast<std::time_t>(each.written))));
    state.cells.emplace_back(!each.damage.empty() ? "damaged" : arguments.verify ? "verified" : "valid");
    notes.cells.push_back(notes_of(list, each));
  }
  const int width = arguments.columns > 0 ? arguments.columns : columns_of_output();
  return table_text({step, size, files, ranks, written, state, notes}, width);
}

void print(const CheckpointList& list, const CheckpointsArguments& arguments) {
  if (list.checkpoints.empty()) std::cout << printable(arguments.run) << " has no checkpoint yet\n";
  else std::cout << table_of(list, arguments);
  for (const ListedCheckpoint& each : list.checkpoints)
    if (!each.damage.empty()) std::cout << "step " << each.step << ": " << printable(each.damage) << '\n';
  std::set<std::string> unknown;
  for (const ListedCheckpoint& each : list.checkpoints)
    if (!each.unknown.empty() && unknown.insert(each.unknown).second)
      std::cout
          << "of " << printable(each.unknown)
          << ", which this program does not have: it reads the weights, and the program that trained them goes on\n";
  if (!list.latest_damage.empty()) std::cout << printable(list.latest_damage) << '\n';
  if (!list.checkpoints.empty() && list.next() == nullptr) std::cout << "no checkpoint is whole\n";
  if (!list.checkpoints.empty() && !arguments.verify)
    std::cout << "manifests and sizes were compared; --verify reads every byte\n";
}

void write_json(const CheckpointList& list, const CheckpointsArguments& arguments) {
  Json json = {{"run", arguments.run}, {"verified", arguments.verify}, {"latest", nullptr}, {"resume", nullptr}};
  if (!list.latest.empty()) json["latest"] = list.latest;
  if (!list.best.empty()) json["best"] = list.best;
  for (const auto& [best, rule] : list.all_best)
    if (!rule.empty()) json["best_by"][rule] = best;
  if (!list.latest_damage.empty()) json["latest_damage"] = list.latest_damage;
  if (const ListedCheckpoint* next = list.next(); next != nullptr && list.is_of_run) json["resume"] = next->step;
  json["checkpoints"] = Json::array();
  for (const ListedCheckpoint& each : list.checkpoints) {
    Json entry = {{"step", each.step},
                  {"path", each.path},
                  {"bytes", each.bytes},
                  {"files", each.files},
                  {"ranks", each.ranks},
                  {"written", fmt::format("{:%FT%TZ}", fmt::gmtime(static_cast<std::time_t>(each.written)))},
                  {"valid", each.damage.empty()}};
    if (!each.damage.empty()) entry["damage"] = each.damage;
    if (!each.unknown.empty()) entry["unknown"] = each.unknown;
    json["checkpoints"].push_back(std::move(entry));
  }
  write_text_file(arguments.json, json.dump(2, BadUtf8::replace) + '\n');
}

int run(const CheckpointsArguments& arguments) {
  CheckpointList list;
  {
    Bar bar("verifying");
    VerifyProgress verify;
    if (arguments.verify) verify = [&](std::uint64_t done, std::uint64_t total) { bar.show(done, total); };
    list = list_checkpoints(arguments.run, verify, program_keys());
  }
  if (!arguments.json.empty()) write_json(list, arguments);
  print(list, arguments);
  return list.is_damaged() ? kDamaged : 0;
}

}  // namespace

Command checkpoints_command() {
  const auto arguments = std::make_shared<CheckpointsArguments>();
  return {.name = "checkpoints",
          .help = "List the checkpoints of a run, and say which are whole.",
          .positionals = {{"RUN", "", &arguments->run, "Folder of a run, or of one checkpoint.", kRequired}},
          .options = {{"--verify", "", &arguments->verify, "Read every byte, and compare it with its hash."},
                      {"--json", "FILE", &arguments->json, "Write the list as JSON, too."},
                      columns_option(&arguments->columns)},
          .footer = kCheckpointsFooter,
          .run = [arguments](const Call&) { return run(*arguments); }};
}

}  // namespace keel::cli
