#pragma once
// One reading of another trainer's file: what was found, what it became, and what is wrong.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/config/schema.h"
#include "keel/trainer/foreign/kind.h"
#include "keel/trainer/foreign/translation.h"
#include "keel/trainer/strategy.h"

namespace keel {

// What several keys say together. Batches count rows, as batch.global and batch.micro do.
struct ForeignFacts {
  template <class T>
  struct Stated {
    T value;
    ForeignEntry from;
  };
  std::optional<Stated<std::int64_t>> global, micro, accumulation;
  std::optional<ForeignEntry> epochs;    // which count where nothing says steps
  std::vector<ForeignEntry> loss_scale;  // which counts where fp16 is on
  bool rows_of_each_rank = false;
  std::optional<ForeignEntry> heads, losses, weights;  // of predictions by name
  std::optional<ForeignEntry> type;                    // of a launcher
  std::optional<ForeignEntry> group_is_a_machine;      // of what is sharded
  std::optional<Stated<int>> shard_size, replicas;     // ranks of a copy of what is sharded, and copies
  std::optional<ForeignEntry> goes_on, goes_on_from;   // that a run is resumed, and the path
  std::optional<Stated<Strategy::Stage>> stage;
  std::optional<Stated<Strategy::Precision>> precision;
  std::optional<Stated<Strategy::Offload>> optimizer, parameter;
  std::optional<Stated<std::string>> folder;  // of what lies in files
};

class ForeignReading {
 public:
  static constexpr std::int64_t kMostRows = 16'777'216, kMostOf = 100'000;  // whose products fit into 64 bits

  ForeignReading(const ForeignKind& kind, const ForeignRequest& request);

  // Reads a file of the kind. `file` lives as long as this.
  void read(std::string_view file, const YamlNode& root);
  ForeignTranslation finish();

  // For readers of rows.
  const ForeignRequest& request() const { return request_; }
  ForeignFacts& facts() { return facts_; }
  ForeignLaunch& launch() { return out_.launch; }
  int ranks() const;
  // A value of keel's key. Where another key of the file has said otherwise, or the configuration beside it, that is a
  // problem.
  void put(std::string_view key, YamlNode value, const ForeignEntry& from);
  void put(std::string_view key, std::string text, const ForeignEntry& from) {
    put(key, YamlNode::scalar(std::move(text), from.line), from);
  }
  bool has(std::string_view key) const { return user_says(key) || !value_of(key).empty(); }
  // What the file, or what is said beside it, makes of a key of keel's; empty: nothing.
  std::string value_of(std::string_view key) const;
  // The key of the task that is trained; empty: it has none.
  std::string_view key_of(KeyRole role) const { return request_.schema.key_of(role); }
  // Whether there is such a key, and what is said so far lets it count.
  bool may_apply(std::string_view key) const;
  // What is done with the entry, instead of what its row says.
  void tell(const ForeignEntry& entry, ForeignTold::Verdict verdict, std::string text);
  // Take the place of what was told of the entry.
  void tell_again(const ForeignEntry& entry, std::string text);
  void refuse(const ForeignEntry& entry, std::string why);
  // The file as a whole.
  ForeignEntry whole() const { return {file_, "", 1, {}}; }
  // What the user's own KEY=VALUE, or a configuration of keel's beside the file, say of a key or section of keel's.
  std::optional<std::string> own(std::string_view key) const;
  bool user_says(std::string_view key_or_section) const;
  bool user_says_one_of(std::string_view keys) const;
  // Numbers, or a refusal.
  std::optional<double> number(const ForeignEntry& entry);
  std::optional<std::int64_t> whole_number(const ForeignEntry& entry, std::int64_t most = kMostRows);
  std::optional<int> count(const ForeignEntry& entry);  // of ranks, machines, micro-batches and so on
  std::optional<bool> flag(const ForeignEntry& entry);
  // The entries of a mapping, each with its full key and line.
  std::vector<ForeignEntry> entries_of(const ForeignEntry& mapping) const;
  // A file of another kind, which the entry names. It is read behind this one.
  void read_beside(const ForeignKind& kind, const ForeignEntry& entry) { beside_.emplace_back(&kind, entry); }
  bool reads_beside() const { return !beside_.empty(); }
  bool is_of(const ForeignKind& kind) const { return &kind_ == &kind; }
  // Whether numbers are fp16, by the file or by what is said beside it.
  bool is_fp16() const;
  // Notes a fact; another value than that of an earlier key is a problem.
  template <class T>
  void state(std::optional<ForeignFacts::Stated<T>>& fact, T value, const ForeignEntry& from) {
    if (fact && fact->value != value) return refuse_contradiction(fact->from, from);
    if (!fact) fact = {value, from};
  }

 private:
  struct Put {
    std::string key;
    YamlNode value;
    ForeignEntry from;
  };
  // What was told of a mapped key before it was known what the keys make together.
  struct Awaiting {
    std::string file, key;
    int line = 1;
    bool is_made = false;
  };

  void walk(const ForeignKind& kind, std::string_view file, const std::string& prefix, const YamlNode& mapping);
  void read_entry(const ForeignKind& kind, const ForeignEntry& entry);
  void apply(const ForeignKind& kind, const ForeignRow& row, const ForeignEntry& entry);
  void apply_auto(const ForeignRow& row, const ForeignEntry& entry);
  void map(const ForeignRow& row, const ForeignEntry& entry);
  void refuse_unknown(const ForeignKind& kind, const ForeignEntry& entry);
  std::string_view keels_keys(const ForeignRow& row) const;
  bool knows(std::string_view keys) const;
  void refuse_contradiction(const ForeignEntry& earlier, const ForeignEntry& entry);
  void read_file(const ForeignKind& kind, const ForeignEntry& entry);
  ForeignTold* told_of(const ForeignEntry& entry);
  void tell_that_it_makes(const ForeignEntry& entry, const std::string& made);
  void tell_what_asks_for_nothing();
  void make_length();
  void make_batch();
  void make_strategy();
  void make_trees();

  const ForeignKind& kind_;
  const ForeignRequest& request_;
  ForeignFacts facts_;
  ForeignTranslation out_;
  std::vector<Put> puts_;
  std::vector<Awaiting> awaiting_;
  std::vector<std::pair<const ForeignKind*, ForeignEntry>> beside_;
  std::string file_;
};

namespace foreign {

// Of an entry that says whether an epoch's last rows are left out where they fill no step.
void put_last_rows(ForeignReading& reading, const ForeignEntry& entry, bool are_dropped);

// The row of a key that counts epochs.
constexpr ForeignRow epochs(std::string_view key) {
  return mapped(
      key, "", [](ForeignReading& reading, const ForeignEntry& entry) { reading.facts().epochs = entry; },
      "the length, where nothing says steps; a program without the key `epochs` asks for steps");
}

}  // namespace foreign
}  // namespace keel
