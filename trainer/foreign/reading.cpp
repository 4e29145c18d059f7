#include "keel/trainer/foreign/reading.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "keel/config/resolver.h"
#include "keel/config/schema_row.h"
#include "keel/config/values.h"
#include "keel/runtime/error.h"
#include "keel/trainer/config_resolver.h"

namespace keel {
namespace {

using Verdict = ForeignTold::Verdict;
using Way = ForeignRow::Way;

std::string_view last_word(std::string_view key) { return key.substr(key.rfind('.') + 1); }

bool has_choice(std::string_view choices, std::string_view word) {
  const std::vector<std::string_view> all = split_choices(choices);
  return std::find(all.begin(), all.end(), word) != all.end();
}

std::optional<double> parsed(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
  return is_number ? std::optional(value) : std::nullopt;
}

bool says_nothing(const YamlNode& section) {
  return section.kind == YamlNode::Kind::null || (section.kind == YamlNode::Kind::mapping && section.entries.empty());
}

// Whether two texts say the same, as 1 and 1.0 do.
bool say_the_same(std::string_view a, std::string_view b) {
  const std::optional<double> x = parsed(a), y = parsed(b);
  return x && y ? *x == *y : a == b;
}

// The part of `kind`'s rows that fits the key best; null: none.
const ForeignRow* row_of(const ForeignKind& kind, std::string_view key) {
  const ForeignRow* whole_section = nullptr;
  for (const ForeignRow& row : kind.rows) {
    if (row.key == key) return &row;
    const std::string_view section = row.key.substr(0, row.key.size() - std::min<std::size_t>(row.key.size(), 2));
    if (row.key.ends_with(".*") && is_inside(key, section)) whole_section = &row;
  }
  return whole_section;
}

bool is_set_aside(const ForeignKind& kind, const YamlNode& section) {
  const auto is_one_of = [](std::string_view keys) {
    return [keys](const YamlEntry& entry) { return has_choice(keys, entry.key); };
  };
  return std::ranges::any_of(section.entries, is_one_of(kind.aside_signs)) &&
         std::ranges::all_of(section.entries, is_one_of(kind.aside_keys));
}

bool is_section_of(const ForeignKind& kind, std::string_view key) {
  return std::any_of(kind.rows.begin(), kind.rows.end(),
                     [&](const ForeignRow& row) { return is_inside(row.key, key); });
}

}  // namespace

ForeignReading::ForeignReading(const ForeignKind& kind, const ForeignRequest& request)
    : kind_(kind), request_(request) {
  out_.kind = &kind;
}

int ForeignReading::ranks() const {
  return request_.ranks > 0 ? request_.ranks : std::max(1, out_.launch.ranks.value_or(1));
}

void ForeignReading::read(std::string_view file, const YamlNode& root) {
  file_ = file;
  walk(kind_, file, "", root);
}

void ForeignReading::read_file(const ForeignKind& kind, const ForeignEntry& entry) {
  namespace fs = std::filesystem;
  const fs::path written(entry.value.text);
  const fs::path beside = fs::path(entry.file).parent_path() / written;
  std::error_code error;
  const fs::path path = fs::exists(written, error) ? written : beside;
  if (!fs::exists(path, error)) return refuse(entry, concat("there is no file '", entry.value.text, "'"));
  const YamlNode root = read_foreign(path.string(), read_config_text(path));
  walk(kind, path.string(), "", root);
}

void ForeignReading::walk(const ForeignKind& kind, std::string_view file, const std::string& prefix,
                          const YamlNode& mapping) {
  const bool is_aside = !prefix.empty() && is_set_aside(kind, mapping);
  for (const YamlEntry& entry : mapping.entries) {
    ForeignEntry read = {std::string(file), kind.is_nested ? entry.key : prefix + entry.key, entry.line, entry.value};
    if (kind.reads_texts && parsed(read.value.text)) read.value.quoted = false;
    if (is_aside) tell(read, Verdict::taken, "of prediction, not of training");
    else read_entry(kind, read);
  }
}

void ForeignReading::read_entry(const ForeignKind& kind, const ForeignEntry& entry) {
  const ForeignRow* const row = row_of(kind, entry.key);
  const bool is_exact = row != nullptr && row->key == entry.key;
  const bool is_section = is_section_of(kind, entry.key);
  if (is_exact) return apply(kind, *row, entry);
  if (is_section && says_nothing(entry.value)) return tell(entry, Verdict::taken, "says nothing");
  if (entry.value.kind == YamlNode::Kind::mapping && (is_section || kind.is_nested))
    return walk(kind, entry.file, entry.key + ".", entry.value);
  if (is_section) return refuse(entry, "expects keys with values below it");
  if (row != nullptr) return apply(kind, *row, entry);
  refuse_unknown(kind, entry);
}

void ForeignReading::refuse_unknown(const ForeignKind& kind, const ForeignEntry& entry) {
  std::vector<std::string_view> names, words;
  for (const ForeignRow& row : kind.rows) {
    names.push_back(row.key);
    words.push_back(last_word(row.key));
  }
  std::string likely = nearest(entry.key.substr(0, 64), names);
  if (likely.empty()) likely = nearest(last_word(entry.key).substr(0, 64), words);
  refuse(entry,
         concat("is no key of ", kind.title, " that keel knows",
                likely.empty() ? ", and may change results; remove it" : concat(", did you mean '", likely, "'?")));
}

std::string_view ForeignReading::keels_keys(const ForeignRow& row) const {
  return row.role == KeyRole::none ? row.to : key_of(row.role);
}

bool ForeignReading::knows(std::string_view keys) const {
  const std::vector<std::string_view> all = split_choices(keys);
  return std::all_of(all.begin(), all.end(), [&](std::string_view key) {
    return key.ends_with(".*") ? request_.schema.is_section(key.substr(0, key.size() - 2))
                               : request_.schema.is_key(key);
  });
}

void ForeignReading::apply(const ForeignKind& kind, const ForeignRow& row, const ForeignEntry& entry) {
  if (entry.value.kind == YamlNode::Kind::null) return tell(entry, Verdict::taken, "says nothing");
  const std::string& text = entry.value.text;
  if (row.way == Way::refused && has_choice(row.values, text.empty() ? flow_text(entry.value) : text))
    return tell(entry, Verdict::taken, "asks for nothing that keel does otherwise");
  if (!row.answered_by.empty() && user_says_one_of(row.answered_by))
    return tell(entry, Verdict::answered, concat("your own ", listed(row.answered_by), " stands instead"));
  if (kind.has_auto && entry.value.text == "auto") return apply_auto(row, entry);
  switch (row.way) {
    case Way::taken:
      if (row.read != nullptr) row.read(*this, entry);
      if (told_of(entry) == nullptr) tell(entry, Verdict::taken, std::string(row.note));
      return;
    case Way::refused: return refuse(entry, std::string(row.note));
    case Way::mapped: return map(row, entry);
  }
}

void ForeignReading::apply_auto(const ForeignRow& row, const ForeignEntry& entry) {
  const std::string_view keys = keels_keys(row), key = keys.substr(0, keys.find('|'));
  const std::string full =
      key.ends_with(".*") ? concat(key.substr(0, key.size() - 1), last_word(entry.key)) : std::string(key);
  YamlNode none;
  const std::string own_key = request_.schema.own_key(full, none);
  std::optional<std::string> said = own(own_key);
  if (!said && own_key == "precision") said = own("strategy");
  if (!said && own_key == "precision" && facts_.precision) said = std::string(name_of(facts_.precision->value));
  for (const Put& put : puts_)
    if (!said && put.key == own_key) said = flow_text(put.value);
  if (said) return tell(entry, Verdict::answered, concat(own_key, ": ", *said, ", as is said beside it"));
  if (!row.automatic.empty()) return tell(entry, Verdict::taken, std::string(row.automatic));
  if (row.way == Way::taken) return tell(entry, Verdict::taken, std::string(row.note));
  if (row.way == Way::refused) return refuse(entry, std::string(row.note));
  refuse(entry, concat("auto: nothing says what it is; give ", own_key, "=VALUE"));
}

void ForeignReading::map(const ForeignRow& row, const ForeignEntry& entry) {
  const std::string_view to = keels_keys(row);
  if (row.role != KeyRole::none && to.empty() && row.read == nullptr)
    return refuse(entry, concat("the task that is trained has no key for ", words_of(row.role),
                                "; remove it, or name another task: task.type=NAME"));
  if (!knows(to)) {
    const std::string_view instead = row.answered_by;
    return refuse(entry, concat("keel has no ", listed(to), " yet",
                                instead.empty() ? "" : concat("; give ", listed(instead), " instead")));
  }
  const std::vector<std::string_view> keys = split_choices(to);
  if (!keys.empty() && std::all_of(keys.begin(), keys.end(), [&](std::string_view key) { return user_says(key); }))
    return tell(entry, Verdict::answered, concat("your own ", listed(to), " stands instead"));
  const std::size_t puts = puts_.size(), told = out_.told.size();
  if (row.read != nullptr) {
    row.read(*this, entry);
  } else if (!row.values.empty()) {
    std::string all;
    for (const std::string_view pair : split_choices(row.values)) {
      const std::size_t equals = pair.find('=');
      if (pair.substr(0, equals) == entry.value.text) {
        put(keys[0], std::string(pair.substr(equals + 1)), entry);
        all.clear();
        break;
      }
      all += concat(all.empty() ? "" : "|", pair.substr(0, equals));
    }
    if (!all.empty()) return refuse(entry, concat("expects ", listed(all), ", got '", flow_text(entry.value), "'"));
  } else if (keys[0].ends_with(".*")) {
    put(concat(keys[0].substr(0, keys[0].size() - 1), last_word(entry.key)), entry.value, entry);
  } else {
    put(keys[0], entry.value, entry);
  }
  if (out_.told.size() > told) return;  // the row's reader has said it
  std::string text;
  for (std::size_t i = puts; i < puts_.size(); ++i)
    text += concat(text.empty() ? "" : ", ", puts_[i].key, ": ", flow_text(puts_[i].value));
  if (text.empty() && !to.empty()) {
    awaiting_.push_back({entry.file, entry.key, entry.line});
    text = listed(to);
  }
  if (!row.note.empty()) text += concat(text.empty() ? "" : "; ", row.note);
  tell(entry, Verdict::mapped, std::move(text));
}

void ForeignReading::tell(const ForeignEntry& entry, Verdict verdict, std::string text) {
  out_.told.push_back({entry.file, entry.line, entry.key, flow_text(entry.value), verdict, std::move(text)});
}

ForeignTold* ForeignReading::told_of(const ForeignEntry& entry) {
  for (ForeignTold& told : out_.told)
    if (told.file == entry.file && told.line == entry.line && told.key == entry.key) return &told;
  return nullptr;
}

void ForeignReading::tell_again(const ForeignEntry& entry, std::string text) {
  ForeignTold& told = *told_of(entry);
  told.verdict = Verdict::taken;
  told.text = std::move(text);
}

void ForeignReading::refuse(const ForeignEntry& entry, std::string why) {
  ForeignTold* const told = told_of(entry);
  if (told == nullptr || entry.key.empty()) return tell(entry, Verdict::refused, std::move(why));
  if (told->verdict != Verdict::refused) told->text = std::move(why);
  told->verdict = Verdict::refused;
}

void ForeignReading::tell_that_it_makes(const ForeignEntry& entry, const std::string& made) {
  for (Awaiting& each : awaiting_) {
    if (each.file != entry.file || each.key != entry.key || each.line != entry.line) continue;
    ForeignTold& told = *told_of(entry);
    if (told.verdict == Verdict::mapped) told.text = each.is_made ? concat(told.text, ", ", made) : made;
    each.is_made = true;
  }
}

void ForeignReading::tell_what_asks_for_nothing() {
  for (const Awaiting& each : awaiting_) {
    ForeignTold& told = *told_of({each.file, each.key, each.line, {}});
    if (each.is_made || told.verdict != Verdict::mapped) continue;
    told.verdict = Verdict::taken;
    told.text = "asks for nothing that keel does otherwise";
  }
}

void ForeignReading::refuse_contradiction(const ForeignEntry& earlier, const ForeignEntry& entry) {
  refuse(entry, concat("is ", flow_text(entry.value), ", and ", earlier.file, ':', earlier.line, ": ", earlier.key,
                       " is ", flow_text(earlier.value), "; remove one of the two"));
}

std::string ForeignReading::value_of(std::string_view key) const {
  if (const auto said = own(key)) return *said;
  for (const Put& put : puts_)
    if (put.key == key) return flow_text(put.value);
  return "";
}

bool ForeignReading::may_apply(std::string_view key) const {
  const std::span<const SchemaRow> rows = request_.schema.rows();
  const auto value_or_default = [&](std::string_view other) {
    const std::string said = value_of(other);
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const SchemaRow& each) { return each.key == other; });
    return said.empty() && row != rows.end() ? std::string(row->standard) : said;
  };
  return std::any_of(rows.begin(), rows.end(), [&](const SchemaRow& row) {
    if (row.key != key) return false;
    const std::string_view other = row.when.key;
    return other.empty() || (may_apply(other) && row.when.accepts(value_or_default(other)));
  });
}

void ForeignReading::put(std::string_view written, YamlNode value, const ForeignEntry& from) {
  const std::string key = request_.schema.own_key(written, value);
  if (user_says(key)) return;
  if (!request_.schema.is_key(key)) {
    const std::string likely = request_.schema.likely_key(key);
    return refuse(from,
                  concat("keel has no '", key, "'", likely.empty() ? "" : concat(", did you mean '", likely, "'?")));
  }
  const std::string text = flow_text(value);
  for (const Put& other : puts_) {
    if (other.key != key) continue;
    if (!say_the_same(flow_text(other.value), text))
      refuse(from, concat("makes ", key, ' ', text, ", and ", other.from.file, ':', other.from.line, ": ",
                          other.from.key, " makes it ", flow_text(other.value), "; remove one of the two"));
    return;
  }
  if (const auto own_value =
          request_.own_yaml.empty() || request_.replaces ? std::nullopt : written_value(request_.own_yaml, {}, key)) {
    if (!say_the_same(*own_value, text))
      refuse(from, concat("makes ", key, ' ', text, ", and ", request_.own_name, " says ", *own_value,
                          "; remove one of the two"));
    return;
  }
  puts_.push_back({key, std::move(value), from});
  if (from.key.empty()) tell(from, Verdict::mapped, concat(key, ": ", text, ", as its trainer does"));
  else tell_that_it_makes(from, concat(key, ": ", text));
}

std::optional<std::string> ForeignReading::own(std::string_view key) const {
  return written_value(request_.own_yaml, request_.overrides, key);
}

bool ForeignReading::user_says(std::string_view asked) const {
  const std::string_view key = asked.ends_with(".*") ? asked.substr(0, asked.size() - 2) : asked;
  return std::any_of(request_.overrides.begin(), request_.overrides.end(), [&](const std::string& text) {
    YamlNode none;
    const std::string own_key = request_.schema.own_key(text.substr(0, text.find('=')), none);
    return own_key == key || (asked == key && is_inside(own_key, key)) || is_inside(key, own_key);
  });
}

bool ForeignReading::user_says_one_of(std::string_view keys) const {
  const std::vector<std::string_view> all = split_choices(keys);
  return std::any_of(all.begin(), all.end(), [&](std::string_view key) { return user_says(key); });
}

std::optional<double> ForeignReading::number(const ForeignEntry& entry) {
  const bool is_plain = entry.value.kind == YamlNode::Kind::scalar && !entry.value.quoted;
  const std::optional<double> value = is_plain ? parsed(entry.value.text) : std::nullopt;
  if (!value) refuse(entry, concat("expects a number, got '", flow_text(entry.value), "'"));
  return value;
}

std::optional<std::int64_t> ForeignReading::whole_number(const ForeignEntry& entry, std::int64_t most) {
  const std::optional<double> value = number(entry);
  if (!value) return std::nullopt;
  if (*value == std::floor(*value) && *value >= 0 && *value <= static_cast<double>(most))
    return static_cast<std::int64_t>(*value);
  refuse(entry, concat("expects a whole number from 0 to ", most, ", got '", flow_text(entry.value), "'"));
  return std::nullopt;
}

std::optional<int> ForeignReading::count(const ForeignEntry& entry) {
  const std::optional<std::int64_t> number = whole_number(entry, kMostOf);
  return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

std::optional<bool> ForeignReading::flag(const ForeignEntry& entry) {
  const std::string& text = entry.value.text;
  for (const std::string_view word : {"true", "True", "yes", "1"})
    if (text == word) return true;
  for (const std::string_view word : {"false", "False", "no", "0"})
    if (text == word) return false;
  refuse(entry, concat("expects true or false, got '", flow_text(entry.value), "'"));
  return std::nullopt;
}

std::vector<ForeignEntry> ForeignReading::entries_of(const ForeignEntry& mapping) const {
  std::vector<ForeignEntry> entries;
  for (const YamlEntry& entry : mapping.value.entries)
    entries.push_back({mapping.file, concat(mapping.key, '.', entry.key), entry.line, entry.value});
  return entries;
}

namespace foreign {

void put_last_rows(ForeignReading& reading, const ForeignEntry& entry, bool are_dropped) {
  if (reading.may_apply("data.last")) return reading.put("data.last", are_dropped ? "drop" : "fewer", entry);
  if (entry.key.empty()) return;
  if (are_dropped && !reading.request().schema.is_key("data.last"))
    return reading.refuse(entry, "an epoch's last rows make a smaller step in this task");
  reading.tell(entry, ForeignTold::Verdict::taken, "steps of this data always have all rows");
}

}  // namespace foreign
}  // namespace keel
