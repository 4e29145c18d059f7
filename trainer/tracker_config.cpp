#include "keel/trainer/tracker_config.h"

#include <algorithm>
#include <map>
#include <span>

#include "keel/config/pages.h"
#include "keel/config/schema.h"
#include "keel/runtime/error.h"
#include "keel/trainer/schema.h"

namespace keel {
namespace {

std::span<const KeyRow> rows_of_all() {
  static const KeyRow rows[] = {
      {.key = "name",
       .type = KeyType::text,
       .standard = "\"\"",
       .help = "What the tracker calls the run; empty: the last part of its folder."},
      {.key = "tags",
       .type = KeyType::texts,
       .standard = "[]",
       .help = "Words to find the run by, as in [team=blue, paper=2]; beside those of keel's own."},
      {.key = "every",
       .type = KeyType::text,
       .standard = "0",
       .help =
           "Between two records of training steps that it gets, in steps, in epochs as in 0.5 epochs, or in parts of "
           "the run as in 10%: the first at or "
           "behind each multiple, and the last; 0: all that log.every makes. Other records always come."},
      {.key = "values",
       .type = KeyType::texts,
       .standard = "[]",
       .help = "Names that it gets, as in [loss, lr, validation*], patterns as a shell has them; empty: all "
               "(docs/metrics.md)."}};
  return rows;
}

std::pair<std::string, std::string> tag_of(const std::string& text) {
  const std::size_t equals = text.find('=');
  KEEL_CHECK(equals != std::string::npos && equals > 0, "tags are KEY=VALUE, as in team=blue, and not '", text, "'");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

Length every_of(const std::string& text) {
  try {
    return Length::parse(text);
  } catch (const Error& error) { throw Error("every ", error); }
}

const TrackerEntry& find_tracker(std::string_view type) {
  return *std::find_if(trackers().begin(), trackers().end(),
                       [&](const TrackerEntry& entry) { return entry.name == type; });
}

constexpr std::string_view kTrackersPage = R"(# Trackers

A tracker takes the numbers of a run elsewhere than into its folder, whose `metrics.jsonl` is there in any case
([metrics.md](metrics.md)). A configuration names one or several:

```yaml
tracker: [csv, {type: command, command: [python3, examples/trackers/wandb_tracker.py], tags: [team=blue]}]
```

Only the first rank writes. Each tracker has a thread and a queue of 1024 records of its own, so training never waits for
a disk, a server or a program: records that come to a full queue are left out, and the run says so once and at the end. A
tracker that fails is told once as a warning, and training goes on without it. At the end of the run trackers have 10
seconds for what is left; one that takes longer is left behind, with a message.

What a tracker is told: the run's name, folder, configuration, every key of it with its value, and tags; each record
of metrics.jsonl when it is written, with its step and the time; the paths of the configuration, of each checkpoint and
of the final weights; and how the run ended: `finished`, `failed` (an error) or `killed` (a signal). Where a
run is gone on with, records behind the checkpoint's step are taken back from files; a program or server is told the step, and
gets those steps again.
)";

constexpr std::string_view kLines = R"(
## Lines of `jsonl` and `command`

One JSON object a line, whose `event` says what it is:

| event | members |
|---|---|
| `start` | `name`, `folder`; `resumed` and `step`: whether, and behind which step, a run is gone on with; `tags`; `settings`: every key of the configuration, with numbers and flags as such; `config`: its text |
| `record` | `step`, `time` (seconds since 1970), `values`: numbers and texts by name. A number that is not finite is null, and `nonfinite` in `values` says which it was, as in metrics.jsonl |
| `text` | `name`, `text` |
| `artifact` | `name`: config, checkpoint or model; `path`. An old checkpoint may be gone by the time that a tracker gets there |
| `end` | `status`: finished, failed or killed. Where keel itself is killed there is none |

A program of `command` is started once, in a process group of its own, and ends when its standard input does; it has 7 seconds for
that. One that dies, does not read, or cannot be started is told, and its outputs are in `log`.

## The columns of `csv`

`step`, `time` (seconds since 1970), then a column for each name, in the order of their first records. A name that appears
later, such as those of the first evaluation, becomes a column at the right end: the file is replaced, and earlier rows have
empty cells there. An evaluation has a row of its own. Numbers are written so that they read back exactly; those that are
not finite as `nan`, `inf` and `-inf`. Texts and artifacts have no place in a table, and are left out.

## What TensorBoard shows

`tensorboard --logdir runs` finds the event files of all runs below `runs`. Numbers are under SCALARS, kept as fp32; those that
are not finite stay what they are. Texts, tags, the configuration and the paths of artifacts are under TEXT. Every key of the
configuration is under HPARAMS, as a number, a flag or a text, and so is how the run ended: TensorBoard has no word for `killed`,
which counts as a failure. A run that is gone on with writes a new file, whose first event takes back what other files say of
steps behind the checkpoint's.

Event files hold messages of protobuf. keel writes the dozen fields that these need by itself, so that no build needs protobuf's
compiler and library for them.

## What MLflow shows

Keys of the configuration are params, numbers are metrics with step and time, texts and tags are tags; `keel.folder` is the run's
folder. Characters that MLflow takes in no name become `_`. The status is RUNNING, then FINISHED, FAILED or KILLED. A run that is
gone on with is the same run of MLflow (its id is in `trackers/mlflow.id` of the run's folder): params stay as they were, the tag
`keel.resumed_behind_step` says where it went on. Files lose the metrics behind that step. A server does not take metrics back, so
it has those steps twice.

- **Files.** `uri: mlruns` is a folder in the layout of MLflow's file store. MLflow from 3 on opens one only where
  `MLFLOW_ALLOW_FILE_STORE` is true, as in `MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri mlruns`.
- **A server.** `uri: http://host:5000`, by MLflow's REST API. `MLFLOW_TRACKING_USERNAME` and `MLFLOW_TRACKING_PASSWORD`, or
  `MLFLOW_TRACKING_TOKEN`, say who asks; they are read from the environment, and written nowhere. Artifacts go through the server
  (`mlflow server --serve-artifacts`); one that keeps them elsewhere gets none, with a message. A server that is down when the run
  begins is told, and the run goes on without it; one that goes away later gets what waited once it is back, up to 100000 numbers.
  This needs libcurl; `keel env` says whether the build has it.
)";

}  // namespace

const TypedList& tracker_types() {
  static const TypedList types = [] {
    TypedList list;
    for (const TrackerEntry& entry : trackers()) {
      std::vector<KeyRow> rows = entry.rows;
      rows.insert(rows.end(), rows_of_all().begin(), rows_of_all().end());
      list.add(entry.name, rows);
    }
    return list;
  }();
  return types;
}

std::vector<std::pair<std::string, std::string>> run_tags(int ranks) {
  return {{"keel.version", KEEL_VERSION}, {"keel.ranks", std::to_string(ranks)}};
}

std::vector<HostedTracker> make_trackers(const std::vector<TypedSettings>& list) {
  std::vector<HostedTracker> made;
  std::map<std::string_view, int> count;
  for (const auto& [type, settings] : list) {
    HostedTracker& one = made.emplace_back();
    const int number = ++count[type];
    one.label = number == 1 ? type : concat(type, '-', number);
    try {
      one.tracker = find_tracker(type).make(settings);
      for (const std::string& tag : settings.texts("tags")) one.tags.push_back(tag_of(tag));
      one.every = every_of(settings.text("every"));
      one.values = settings.texts("values");
    } catch (const Error& error) { throw Error(concat(one.label, ": "), error); }
    one.run_name = settings.text("name");
  }
  return made;
}

std::string tracker_reference() {
  std::string text(kTrackersPage);
  for (const TypedList::Type& type : tracker_types().types())
    text += concat("\n## ", type.name, "\n\n", find_tracker(type.name).summary, ".\n\n", key_table(*type.schema, ""));
  return concat(text, kLines, "\nThis page is written by `keel docs trackers`.\n");
}

}  // namespace keel
