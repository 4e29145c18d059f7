// `keel models`: which architectures this program has, and the keys of each.

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "commands.h"
#include "keel/models/catalog.h"
#include "keel/runtime/error.h"

namespace keel::cli {
namespace {

std::string_view word_of(ModelKind kind) { return kind == ModelKind::decoder ? "decoder" : "encoder"; }

void list_models() {
  std::size_t width = 0;
  for (const ModelEntry& entry : keel_models()) width = std::max(width, entry.name.size());
  for (const ModelEntry& entry : keel_models())
    std::cout << fmt::format("{:<{}}  {}  {}\n", entry.name, width, word_of(entry.kind), entry.summary);
}

void show_model(const std::string& name) {
  const ModelEntry* entry = find_model(name);
  if (entry == nullptr) {
    std::vector<std::string_view> names;
    for (const ModelEntry& each : keel_models()) names.push_back(each.name);
    const std::string likely = nearest(name, names);
    throw Error(concat("there is no model '", name, "'",
                       likely.empty() ? "; `keel models` lists them" : concat(", did you mean '", likely, "'?")));
  }
  std::cout << fmt::format("{}, {}: {}\n", entry->name, word_of(entry->kind), entry->summary);
  std::cout << fmt::format("config.json with \"model_type\": \"{}\" is read by model.from\n", entry->hub_type);
  if (!entry->published.empty()) std::cout << "published as (model.name):\n";
  for (const ModelEntry::Published& size : entry->published)
    std::cout << fmt::format("  {:<12} {} layers, {} heads, width {}\n", size.name, size.layers, size.heads,
                             size.width);
  if (!entry->rows.empty()) std::cout << "keys beside those of all models:\n";
  for (const KeyRow& row : entry->rows) std::cout << fmt::format("  {} ({}): {}\n", row.key, row.standard, row.help);
}

}  // namespace

Command models_command() {
  const auto name = std::make_shared<std::string>();
  return {.name = "models",
          .help = "The architectures that can be trained, read and written.",
          .positionals = {{"MODEL", "", name.get(),
                           "Show what is published of it, and its keys; without it all are listed."}},
          .footer = "\nExamples:\n  keel models\n  keel models gpt",
          .run = [name](const Call&) {
            if (name->empty()) list_models();
            else show_model(*name);
            return 0;
          }};
}

}  // namespace keel::cli
