#include "keel/trainer/config.h"

#include "keel/tasks/language.h"
#include "keel/trainer/config_keys.h"

#include "tests/fuzz/target.h"

namespace keel::fuzz {
namespace {

KeyRow choice_of(std::string_view key, std::string_view standard, std::string_view choices) {
  KeyRow row = {key, KeyType::choice, standard, "One of them."};
  row.choices = choices;
  return row;
}
KeyRow where_it_is_c(KeyRow row) {
  row.when_key = "task.kind";
  row.when_values = "c";
  return row;
}

// keel's keys, and those of a task: one of each type.
const std::shared_ptr<const ConfigKeys>& keys_of_a_task() {
  static const std::shared_ptr<const ConfigKeys> keys = [] {
    const std::vector<KeyRow> rows = {choice_of("task.kind", "b", "a|b|c"),
                                      {"task.flag", KeyType::flag, "true", "A flag."},
                                      {"task.count", KeyType::integer, "3", "A count.", 0, 100},
                                      {"task.ratio", KeyType::number, "0.5", "A ratio.", 0, 1},
                                      {"task.title", KeyType::text, "none", "A text."},
                                      where_it_is_c({"task.path", KeyType::path, "", "A path."}),
                                      {"model.sizes", KeyType::integers, "[1, 2]", "Counts.", 1},
                                      {"model.rates", KeyType::numbers, "[]", "Numbers.", 0, 1},
                                      {"data.names", KeyType::texts, "[]", "Texts."},
                                      {"data.count", KeyType::integer, "=task.count", "A count."}};
    TaskEntry own = language_task();
    own.name = "own";
    own.rows.insert(own.rows.end(), rows.begin(), rows.end());
    return std::make_shared<const ConfigKeys>(std::span(&own, 1));
  }();
  return keys;
}

// Whether the bytes are a configuration with these keys, which the resolved file gives again.
bool reads(const std::shared_ptr<const ConfigKeys>& keys, std::string_view bytes) {
  return accepts([&] {
    const Config read = parse_config(keys, bytes, "fuzz.yaml");
    require(parse_config(keys, to_yaml(read), "resolved.yaml") == read, "the resolved file is the same configuration");
  });
}

}  // namespace

bool config(std::string_view bytes) {
  const bool is_keels = reads(keel_keys(), bytes), is_tasks = reads(keys_of_a_task(), bytes);
  // One that names keel's task says nothing of the program's.
  require(is_tasks || !is_keels, "a configuration of keel's is one of a task that asks for nothing");
  return is_tasks;
}

}  // namespace keel::fuzz
