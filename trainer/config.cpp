#include "keel/trainer/config.h"

#include <fstream>

#include "keel/config/yaml_reader.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/config_resolver.h"
#include "keel/trainer/schema.h"

namespace keel {

namespace {

// What files of other trainers mean by theirs; empty: they name no task.
std::string task_of(const std::vector<NamedTree>& trees) {
  for (const NamedTree& tree : trees)
    for (const YamlEntry& section : tree.root.entries)
      for (const YamlEntry& entry : section.value.entries)
        if (section.key == "task" && entry.key == "type") return entry.value.text;
  return "";
}

// Of the task that the file names, or that files mean which name none. An unknown one is refused by its row, which all
// schemas have.
Config empty_config(const std::shared_ptr<const ConfigKeys>& keys, std::string_view yaml,
                    const std::vector<std::string>& overrides, const std::vector<NamedTree>& trees = {}) {
  Config config;
  config.keys = keys;
  const std::string task = written_value(yaml, overrides, "task.type").value_or(task_of(trees));
  config.task = (keys->tasks().find(task) != nullptr ? *keys->tasks().find(task) : keys->tasks().standard()).name;
  return config;
}

}  // namespace

Config parse_config(const std::shared_ptr<const ConfigKeys>& keys, std::string_view yaml, std::string_view name,
                    const std::vector<std::string>& overrides, std::string_view source,
                    std::vector<std::string>* notes) {
  Config config = empty_config(keys, yaml, overrides);
  ConfigResolver resolver(config, name, source);
  resolver.add_file(yaml);
  resolver.add_overrides(overrides);
  resolver.resolve();
  if (notes != nullptr) *notes = resolver.notes();
  return config;
}

Config parse_trees(const std::shared_ptr<const ConfigKeys>& keys, const std::vector<NamedTree>& trees,
                   std::string_view text, std::string_view name, const std::vector<std::string>& overrides,
                   std::string_view source, std::vector<std::string>* notes) {
  Config config = empty_config(keys, text, overrides, trees);
  ConfigResolver resolver(config, name, source);
  resolver.add_file(text);
  for (const NamedTree& tree : trees) resolver.add_tree(tree.name, tree.root);
  resolver.add_overrides(overrides);
  resolver.resolve();
  if (notes != nullptr) *notes = resolver.notes();
  return config;
}

Config parse_config(std::string_view yaml, std::string_view name, const std::vector<std::string>& overrides,
                    std::string_view source, std::vector<std::string>* notes) {
  return parse_config(keel_keys(), yaml, name, overrides, source, notes);
}

std::string read_config_text(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error))
    throw Error(concat(printable(file.string()), ": is a folder; a YAML file is needed"), ErrorKind::io);
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw Error(concat(printable(file.string()), ": cannot be opened; is the path right?"), ErrorKind::io);
  // One byte more than is allowed is enough to refuse a file of any size.
  std::string text(kLongestYaml + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) throw Error(concat(printable(file.string()), ": cannot be read"), ErrorKind::io);
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

Config load_config(const std::shared_ptr<const ConfigKeys>& keys, const std::filesystem::path& file,
                   const std::vector<std::string>& overrides, std::string_view source,
                   std::vector<std::string>* notes) {
  return parse_config(keys, read_config_text(file), file.string(), overrides, source, notes);
}

Config load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                   std::string_view source, std::vector<std::string>* notes) {
  return load_config(keel_keys(), file, overrides, source, notes);
}

bool CheckpointConfig::is_due_after(double seconds) const { return minutes > 0 && seconds >= 60 * minutes; }

const Schema& Config::schema() const { return keys->schema(task); }

std::string to_yaml(const Config& config) { return to_yaml(config.schema(), config); }

}  // namespace keel
