#pragma once
// Configuration files of other trainers as keel's configurations.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/config/schema.h"
#include "keel/config/yaml_reader.h"
#include "keel/runtime/error.h"

namespace keel {

struct ForeignKind;

struct ForeignRequest {
  const Schema& schema;  // of keel's keys
  std::vector<std::string> overrides = {};
  int ranks = 0;              // that train; 0: as many as the file says, or one
  std::string own_yaml = {};  // a configuration of keel's beside the file, and what messages call it
  std::string own_name = {};
  bool replaces = false;  // what it says, instead of contradicting it
  std::string task = {};  // whose keys the schema has, where the file means it and the user names none
};

// What became of a key.
struct ForeignTold {
  enum class Verdict : unsigned char {
    taken,
    mapped,
    answered,  // the user's own KEY=VALUE says it
    refused,
  };
  std::string file;
  int line = 1;
  std::string key, value;
  Verdict verdict = Verdict::taken;
  std::string text;  // keel's keys with their values, or why
};
std::string_view name_of(ForeignTold::Verdict verdict);

// What the file says of starting ranks, for `keel launch`.
struct ForeignLaunch {
  std::optional<int> ranks = {};     // of all machines
  std::optional<int> machines = {};  // 1 where nothing is said
  std::optional<int> machine = {};   // this one's number
  std::string address = {};          // of the first machine
  std::optional<int> port = {};
  std::string gpus = {};  // "0,1"
};

// A file that was read: keel's keys, with the lines of where they come from.
struct NamedTree {
  std::string name;
  YamlNode root;
};

struct ForeignTranslation {
  const ForeignKind* kind = nullptr;
  std::vector<NamedTree> trees = {};
  std::vector<ForeignTold> told = {};
  ForeignLaunch launch = {};
  ErrorKind problem_kind = ErrorKind::input;
  bool is_refused() const;
  // A line for each refused key: "ds.json:7: zero_force_ds_cpu_optimizer: ...".
  std::string problems() const;
  // keel's YAML, sparse: what the files say, and what replaces it.
  std::string yaml(const Schema& schema, const std::vector<std::string>& overrides) const;
};

// Reads a file of a known kind. What is wrong with its keys is told in the translation; an Error is thrown for text
// that is no YAML, and so no JSON.
ForeignTranslation translate(const ForeignKind& kind, std::string_view file, const YamlNode& root,
                             const ForeignRequest& request);

// The file as a tree. JSON may be indented by tabs. An Error names the first line that is wrong.
YamlNode read_foreign(std::string_view name, std::string_view text);

// Markdown: docs/foreign.md.
std::string foreign_reference();

}  // namespace keel
