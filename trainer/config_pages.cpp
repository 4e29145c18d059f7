// Pages about configurations: --help-config and docs/config.md.

#include <fmt/format.h>

#include "keel/config/pages.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/schema.h"

namespace keel {
namespace {

// What stands before and behind the sections of a task.
constexpr std::string_view kExampleLength = "seed: 1\nsteps: 2000\n";
constexpr std::string_view kExampleTraining = R"(batch: {global: 48, micro: 12}
optimizer: {type: AdamW, lr: 1e-3, betas: [0.9, 0.99], weight_decay: 0.1}
scheduler: {type: cosine, warmup: 100, min_lr: 1e-4}
eval: {every: 250}
checkpoint: {every: 500, keep: 2}
strategy: bf16
device: auto
)";

constexpr std::string_view kConfigIntroduction = R"(# Configuration

`keel train CONFIG.yaml [KEY=VALUE ...]` reads one YAML file. Every key is listed below; a key that is unknown,
contradicts another one or has a value out of range is an error that names file, line and the nearest key, and
nothing is started. A file gives only what differs from the defaults:

```yaml
{}```

- On the command line `optimizer.lr=3e-4` replaces one value and `eval={{every: 50, at_start: true}}` a whole section.
  Later ones win. Where one replaces a type, as `optimizer.type=SGD` does, keys of the file that do not apply to the new type
  are left out, with a note.
- In paths `~/` is the home folder.
- The run writes `config.yaml` into its folder, with every default filled in. Training from that file repeats the run.
- Anchors, tags, tabs as indentation and several documents in a file are refused.
)";

// With the keys of the task that a configuration means where it names none.
const Schema& standard_schema(const ConfigKeys& keys) { return keys.schema(keys.tasks().standard().name); }

// Of the tasks that a configuration names by task.type.
std::string other_tasks(const ConfigKeys& keys) {
  std::string text;
  for (const TaskEntry& task : keys.tasks().entries()) {
    if (&task == &keys.tasks().standard()) continue;
    text += fmt::format(
        "\n## The task {}\n\nLearns {}. With `task.type: {}` these keys take the place of those of `{}` "
        "in the same sections.\n\n",
        task.name, task.summary, task.name, keys.tasks().standard().name);
    if (!task.example.empty()) text += fmt::format("```yaml\n{}```\n\n", task.example);
    text += key_table(keys.schema(task.name), [&](const SchemaRow& row) { return is_key_of(task, row.key); });
  }
  return text;
}

}  // namespace

std::string config_example() {
  return fmt::format("{}{}{}", kExampleLength, keel_keys()->tasks().standard().example, kExampleTraining);
}

std::string config_help(const ConfigKeys& keys) {
  return "Keys of a configuration: name = default, then its values and its meaning.\n" +
         key_help(standard_schema(keys));
}

std::string config_reference() {
  return fmt::format(fmt::runtime(kConfigIntroduction), config_example()) + key_tables(standard_schema(*keel_keys())) +
         other_tasks(*keel_keys()) + "\nThis page is written by `keel docs config`.\n";
}

}  // namespace keel
