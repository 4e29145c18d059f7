#pragma once
// What the tables of keel's own keys are made of: fields that are members of Config, limits, and texts that live as
// long as the rows.

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/config/schema.h"
#include "keel/trainer/config.h"

namespace keel {

struct ShardedOptions;  // keel/dist/parallel/sharded_options.h
struct StrategyEntry;   // keel/trainer/strategies.h

inline constexpr Range kAny = {};
inline constexpr Range kFraction = {.low = 0, .high = 1, .high_open = true};

// A text that rows may point to.
inline std::string_view kept(std::string text) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::move(text));
}

// Rows of keel's own keys are in schemas of Configs alone.
inline Config& config_of(Settings& settings) { return static_cast<Config&>(settings); }
inline const Config& config_of(const Settings& settings) { return static_cast<const Config&>(settings); }

// All of keel's own rows, without task.type and without those of tasks. Made once; never changes.
const std::shared_ptr<const Schema>& own_schema();
// The same where a program has these strategies of communication.
std::shared_ptr<const Schema> schema_with(std::span<const StrategyEntry> strategies);

// Fields of rows that only a Config has values of. A text is a path, in which a leading ~ is the home folder.
template <class T>
using Access = T& (*)(Config&);
FieldPtr member(Access<bool> access);
FieldPtr member(Access<int> access);
FieldPtr member(Access<std::int64_t> access);
FieldPtr member(Access<std::uint64_t> access);
FieldPtr member(Access<double> access);
FieldPtr member(Access<std::array<double, 2>> access);
FieldPtr member(Access<std::string> access);
FieldPtr member(Access<std::vector<GroupPattern>> access);
FieldPtr member(Access<Length> access);
FieldPtr member(Access<std::vector<Length>> access);
FieldPtr member(Access<std::vector<std::int64_t>> access);

// A list of parts that name their types, which live as long as the program.
FieldPtr list_field(Access<std::vector<TypedSettings>> access, const TypedList& types, std::string_view values);

// A limit of batches, and limits of sets: one, or a list in which others have names.
FieldPtr member(Access<BatchLimit> access);
FieldPtr member(Access<BatchLimits> access);

// One of `choices` ("AdamW|SGD"), by its place in the list. `other_words` ("Constant=constant|...") are other spellings
// of a choice, which are read as well.
FieldPtr choice_field(int (*get)(const Config&), void (*set)(Config&, int), std::string_view choices,
                      std::string_view other_words = {});
// Text of its own grammar; `set` throws Error for what it does not read.
FieldPtr parsed_field(std::string (*get)(const Config&), void (*set)(Config&, std::string_view),
                      std::string_view grammar);
// A parameter of the learning rate's schedule (keel/optim/schedule_table.h).
FieldPtr schedule_field(const ScheduleUse& use);

// Those of the section `optimizer`, made from the table of optimizers.
std::vector<SchemaRow> optimizer_rows();
// set_groups() reads a list of groups and throws YamlError; groups_text() writes one.
void set_groups(std::vector<GroupPattern>& groups, const YamlNode& node);
std::string groups_text(const std::vector<GroupPattern>& groups);
// Those of the section `scheduler`, made from the table of schedules.
std::vector<SchemaRow> scheduler_rows();
// Reads and writes a parameter of a schedule; its errors may be YamlErrors.
void set_schedule_value(const ScheduleUse& use, ScheduleSettings& settings, const YamlNode& node);
std::string schedule_field_text(const ScheduleUse& use, const ScheduleSettings& settings);

// Those that are options of the engine (keel/dist/parallel/engine_keys.h): of a section, "sharding.", or of one key,
// "clip".
std::vector<SchemaRow> engine_rows(std::string_view section_or_key);
// The values of all of them.
void take_engine_options(const Config& config, ShardedOptions& options);

// Those of the section `outer`.
std::vector<SchemaRow> outer_rows(std::span<const StrategyEntry> entries);

// Those of keel's own callbacks.
std::vector<SchemaRow> callback_rows();

// Those of the section `eval`, and fast_dev_run.
std::vector<SchemaRow> evaluation_rows();
std::vector<SchemaRow> trial_rows();

// Those of the section `curriculum`.
std::vector<SchemaRow> curriculum_rows();

// Keys of older versions.
std::vector<RetiredKey> retired_keys();

}  // namespace keel
