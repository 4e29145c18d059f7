#include "keel/trainer/foreign/load.h"

#include <algorithm>
#include <optional>

#include "keel/config/schema_row.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/config_resolver.h"
#include "keel/trainer/foreign/kind.h"

namespace keel {
namespace {

// Whether the user's values are of keys that the standard task has, and this one has not.
bool is_of_another_task(const Schema& standard, const Schema& schema, const std::vector<std::string>& overrides) {
  return std::ranges::any_of(standard.rows(), [&](const SchemaRow& row) {
    return !schema.is_key(row.key) && written_value("", overrides, row.key).has_value();
  });
}

// What a file of the kind (null: of keel's) is read by: the keys of the task that the user's values name, or that the
// kind is for, or the standard one.
ForeignRequest request_for(const ConfigKeys& keys, const ForeignKind* kind, std::string_view yaml,
                           const std::vector<std::string>& overrides, int ranks) {
  const Schema& standard = keys.schema(keys.tasks().standard().name);
  const std::optional<std::string> named = written_value(yaml, overrides, "task.type");
  const TaskEntry* const entry = keys.tasks().find(named.value_or(""));
  if (entry != nullptr) return {keys.schema(entry->name), overrides, ranks};
  if (!named && kind != nullptr && kind->task_role != KeyRole::none)
    for (const TaskEntry& each : keys.tasks().entries()) {
      const Schema& schema = keys.schema(each.name);
      if (schema.key_of(kind->task_role).empty() || is_of_another_task(standard, schema, overrides)) continue;
      ForeignRequest request = {schema, overrides, ranks};
      request.task = each.name;
      return request;
    }
  return {standard, overrides, ranks};
}

// Null where it is a file of keel's own, or none that can be read: what is wrong with it says keel's own reader.
const ForeignKind* kind_of_text(std::string_view name, std::string_view text, YamlNode& root) {
  try {
    root = read_foreign(name, text);
  } catch (const Error&) { return nullptr; }
  return kind_of(root);
}

void refuse(const ForeignTranslation& translation) {
  if (translation.is_refused()) throw Error(MessageLines{translation.problems()}, translation.problem_kind);
}

// A file that is passed beside keel's own, which must be of the kind.
ForeignTranslation read_beside(const ForeignKind& kind, const std::filesystem::path& file,
                               const ForeignRequest& request) {
  const std::string name = file.string();
  const YamlNode root = read_foreign(name, read_config_text(file));
  if (root.kind != YamlNode::Kind::mapping)
    throw Error(printable(concat(name, ":1: is not ", kind.title, ": it has no keys")));
  return translate(kind, name, root, request);
}

}  // namespace

ForeignTranslation translate_file(const std::shared_ptr<const ConfigKeys>& keys, const std::filesystem::path& file,
                                  const std::vector<std::string>& overrides, int ranks) {
  const std::string name = file.string();
  const YamlNode root = read_foreign(name, read_config_text(file));
  const ForeignKind* const kind = kind_of(root);
  if (kind == nullptr) {
    std::string kinds;
    for (const ForeignKind* each : foreign_kinds()) kinds += concat(kinds.empty() ? "" : ", ", each->title);
    throw Error(printable(concat(name, ":1: is of no kind that keel knows: ", kinds)));
  }
  const ForeignRequest request = request_for(*keys, kind, "", overrides, ranks);
  return translate(*kind, name, root, request);
}

Config config_of(const std::shared_ptr<const ConfigKeys>& keys, const ForeignTranslation& translation,
                 const std::filesystem::path& file, const std::vector<std::string>& overrides, std::string_view source,
                 std::vector<std::string>* notes) {
  refuse(translation);
  return parse_trees(keys, translation.trees, "", file.string(), overrides, source, notes);
}

Config load_any_config(const std::shared_ptr<const ConfigKeys>& keys, const ConfigFiles& files,
                       const std::vector<std::string>& overrides, std::string_view source,
                       std::vector<std::string>* notes) {
  const std::string name = files.main.string(), text = read_config_text(files.main);
  YamlNode root;
  const ForeignKind* const kind = kind_of_text(name, text, root);
  ForeignRequest request = request_for(*keys, kind, kind == nullptr ? text : "", overrides, files.ranks);
  std::vector<NamedTree> trees;
  std::string problems;
  const auto add = [&](const ForeignTranslation& read) {
    if (read.is_refused()) problems += concat(problems.empty() ? "" : "\n", read.problems());
    trees.insert(trees.end(), read.trees.begin(), read.trees.end());
  };
  if (kind != nullptr) {
    const ForeignTranslation main = translate(*kind, name, root, request);
    add(main);
    request.own_yaml = main.yaml(request.schema, {});
    request.task.clear();
  } else {
    request.own_yaml = text;
  }
  request.own_name = name;
  if (!files.accelerate.empty()) add(read_beside(foreign::kAccelerate, files.accelerate, request));
  if (!files.deepspeed.empty()) add(read_beside(foreign::kDeepSpeed, files.deepspeed, request));
  if (!problems.empty()) throw Error(MessageLines{problems});
  return parse_trees(keys, trees, kind == nullptr ? text : "", name, overrides, source, notes);
}

ForeignLaunch launch_of(const std::filesystem::path& file) {
  try {
    const std::string name = file.string();
    YamlNode root;
    const ForeignKind* const kind = kind_of_text(name, read_config_text(file), root);
    if (kind == nullptr) return {};
    const ForeignRequest request = request_for(*keel_keys(), kind, "", {}, 0);
    return translate(*kind, name, root, request).launch;
  } catch (const Error&) { return {}; }
}

}  // namespace keel
