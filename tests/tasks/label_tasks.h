#pragma once
// Small files of texts with labels, and a task that reads them.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "keel/runtime/file.h"
#include "keel/tasks/catalog.h"
#include "tests/temporary_folder.h"

namespace keel::testing {

// Numbers of WordPiece: 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], then these words.
inline void write_word_pieces(const TemporaryFolder& place) {
  write_text_file(place / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\ngood\nbad\nfilm\n##s\nwhat\na\n\"\n?\n");
}

using GivenKeys = std::vector<std::pair<std::string, std::string>>;

inline std::unique_ptr<TaskBase> label_task(const TemporaryFolder& place, std::string_view name, GivenKeys given) {
  static const TaskCatalog catalog;
  const TaskEntry& entry = *catalog.find(name);
  GivenKeys all = {{"model.layers", "1"}, {"model.heads", "2"},     {"model.width", "8"},
                   {"model.block", "8"},  {"data.validation", "0"}, {"data.tokenizer", place / "vocab.txt"}};
  for (auto& own : given) {
    std::erase_if(all, [&](const auto& each) { return each.first == own.first; });
    all.push_back(std::move(own));
  }
  TaskSite site;
  site.settings = Settings(entry.rows, all);
  if (entry.complain != nullptr)
    for (const SettingsComplaint& each : entry.complain(site.settings))
      throw Error(concat(each.keys.front(), ": ", each.message));
  site.rows = site.validation_rows = 8;
  site.host = Context::create();
  return entry.make(site);
}

}  // namespace keel::testing
