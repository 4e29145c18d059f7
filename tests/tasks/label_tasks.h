#pragma once
// Small files of texts with labels, a task that reads them, and what its batches hold.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/data/batch.h"
#include "keel/data/token_batch.h"
#include "keel/runtime/file.h"
#include "keel/tasks/catalog.h"
#include "keel/tasks/metrics/values.h"
#include "keel/tasks/text_records.h"
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

// A field's rows by example, as far as each has tokens.
inline std::map<std::int64_t, std::vector<std::int64_t>> rows_of_examples(const Batch& batch, std::string_view field) {
  const std::vector<std::int64_t> all = whole_values(batch[field]), lengths = whole_values(batch[kLengths]);
  std::map<std::int64_t, std::vector<std::int64_t>> rows;
  for (std::size_t row = 0; row < batch.examples().size(); ++row) {
    const auto begin = all.begin() + static_cast<std::int64_t>(row) * batch[field].dim(1);
    rows[batch.examples()[row]].assign(begin, begin + lengths[row]);
  }
  return rows;
}

}  // namespace keel::testing
