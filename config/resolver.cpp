#include "keel/config/resolver.h"

#include <algorithm>
#include <filesystem>

#include "keel/config/settings.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

// The words from `first` on that a shell has cut out of one value in braces or brackets, `model={layers: 2, width: 64}`
// without quotes: the last one's place; `first` itself where that value is not cut.
std::size_t last_of_cut(const std::vector<std::string>& texts, std::size_t first) {
  const std::size_t equals = texts[first].find('=');
  if (equals == std::string::npos || texts[first].find_first_of("{[", equals) != equals + 1) return first;
  int open = 0;
  for (std::size_t i = first; i < texts.size(); ++i) {
    for (const char c : texts[i]) open += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    if (open <= 0) return i;
  }
  return first;
}

// Knows no key but one, of which it tells the value.
class Reader : public Resolver {
 public:
  Reader(const Schema& schema, Settings& settings) : Resolver(schema, settings, "", "") {}
  std::optional<std::string> value_of(std::string_view key) const {
    const Given* given = find(key);
    const bool is_one = given != nullptr && given->value.kind == YamlNode::Kind::scalar;
    return is_one ? std::optional(given->value.text) : std::nullopt;
  }
};

}  // namespace

std::optional<std::string> written_value(std::string_view yaml, const std::vector<std::string>& overrides,
                                         std::string_view key) {
  SchemaRow row;
  row.key = key;
  const Schema schema({row});
  Settings none;
  Reader reader(schema, none);
  reader.add_file(yaml);
  reader.add_overrides(overrides);
  return reader.value_of(key);
}

// A key may be given by its own name or by another program's word for it, and only once.
void Resolver::add(std::string_view written, YamlNode value, const WrittenPlace& place, std::vector<Given>& out) {
  const std::string key = schema_.own_key(written, value);
  for (const Given& given : out)
    if (given.key == key && given.place.override_number == place.override_number && key != written)
      return report(place, concat("key '", written, "' is another word for '", key, "', which is given, too"));
  out.push_back({key, std::move(value), place});
}

// Lists the leaves below `mapping`, with their full keys. Two levels are enough for every key.
// `whole` is the place of all of it: an override, or a file, whose entries have lines of their own.
void Resolver::flatten(const std::string& prefix, const YamlNode& mapping, const WrittenPlace& whole,
                       std::vector<Given>& out) {
  for (const YamlEntry& entry : mapping.entries) {
    const WrittenPlace place = whole.override_number > 0 ? whole : file_place(entry.line, whole.file);
    const std::string key = prefix + entry.key;
    if (entry.value.kind == YamlNode::Kind::mapping && is_read_through(key)) {
      flatten(prefix, entry.value, whole, out);
    } else if (entry.key.find('.') < entry.key.find(':')) {
      report(place, concat("key '", key, "' is written with a dot; nest it, as in `optimizer: {lr: 1e-3}`"));
    } else if (entry.value.kind == YamlNode::Kind::mapping && !entry.value.entries.empty() && prefix.empty() &&
               !schema_.takes_mappings(key)) {
      flatten(key + ".", entry.value, whole, out);
    } else {
      add(key, entry.value, place, out);
    }
  }
}

void Resolver::add_file(std::string_view yaml) {
  const YamlDocument document = read_yaml(yaml);
  for (const YamlProblem& problem : document.problems) report(file_place(problem.line, name_), problem.message);
  readable_ = document.complete || document.problems.empty();
  add_tree(name_, document.root);
}

void Resolver::add_tree(std::string_view file, const YamlNode& root) {
  const WrittenPlace whole = file_place(std::max(root.line, 1), std::string(file));
  if (root.kind == YamlNode::Kind::mapping) flatten("", root, whole, given_);
  else if (root.kind != YamlNode::Kind::null) {
    report(whole, "expects keys with values, as in `steps: 100`");
    readable_ = false;
  }
}

void Resolver::add_override(const std::string& text) {
  const WrittenPlace place = {0, ++overrides_, concat(source_, ", '", text, "'")};
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return report(place, "expects KEY=VALUE, as in optimizer.lr=3e-4");
  YamlDocument document = read_yaml(std::string_view(text).substr(equals + 1));
  const std::string key = schema_.own_key(text.substr(0, equals), document.root);
  // YAML would make a space of one.
  if (text.find_first_of("\n\r", equals) != std::string::npos)
    document.problems.push_back({1, "a value behind KEY= is one line; a file may have values of several"});
  for (const YamlProblem& problem : document.problems) report(place, concat(key, ": ", problem.message));
  if (!document.problems.empty()) return mark_broken(key);
  std::erase_if(given_, [&](const Given& old) {
    const bool is_retired = schema_.retired_for(key) != nullptr && schema_.retired_for(key)->key == old.key;
    const bool retires = schema_.retired_for(old.key) != nullptr && schema_.retired_for(old.key)->key == key;
    return old.key == key || is_inside(old.key, key) || is_retired || retires;
  });
  if (document.root.kind == YamlNode::Kind::mapping && !document.root.entries.empty() &&
      key.find('.') == std::string::npos && !schema_.takes_mappings(key))
    flatten(key + ".", document.root, place, given_);
  else given_.push_back({key, document.root, place});
}

void Resolver::add_overrides(const std::vector<std::string>& texts) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::size_t last = last_of_cut(texts, i);
    if (last == i) {
      add_override(texts[i]);
      continue;
    }
    std::string whole = texts[i];
    while (i < last) whole += concat(' ', texts[++i]);
    YamlNode unused;
    report({0, ++overrides_, concat(source_, ", '", whole, "'")},
           concat("a shell cuts this at its spaces; put it in quotes: '", whole, "'"));
    mark_broken(schema_.own_key(whole.substr(0, whole.find('=')), unused));
  }
}

const Resolver::Given* Resolver::find(std::string_view key) const {
  const auto found = std::find_if(given_.begin(), given_.end(), [&](const Given& given) { return given.key == key; });
  return found == given_.end() ? nullptr : &*found;
}

void Resolver::mark_broken(std::string_view key_or_section) {
  broken_.emplace(key_or_section);
  for (const SchemaRow& row : schema_.rows())
    if (is_inside(row.key, key_or_section)) broken_.emplace(row.key);
}

// The first line of the key's section, where that is in the file.
Resolver::WrittenPlace Resolver::missing_place(std::string_view key) const {
  for (const Given& given : given_)
    if (given.place.override_number == 0 && is_inside(given.key, key.substr(0, key.find('.')))) return given.place;
  return {kNoLine, 0, name_};
}

// Whether it is a key of older versions, which stands alone.
bool Resolver::is_retired(const Given& given) {
  for (const RetiredKey& retired : schema_.retired()) {
    if (retired.key != given.key) continue;
    if (find(retired.successor) != nullptr)
      report(given.place,
             concat("key '", retired.key, "' is the older form of '", retired.successor, "', which is given, too"));
    return true;
  }
  return false;
}

void Resolver::check_names() {
  for (const Given& given : given_) {
    if (schema_.is_key(given.key) || is_retired(given)) continue;
    const std::string parent = given.key.substr(0, given.key.find('.'));
    if (schema_.is_section(given.key)) {
      if (given.value.kind != YamlNode::Kind::mapping) {
        report_key(
            given.key, given.place,
            concat("is a section; write it as `", given.key, ": {key: value, ...}`",
                   given.place.override_number == 0
                       ? ""
                       : concat(", in quotes that keep the braces from a shell, or as ", given.key, ".KEY=VALUE")));
      }
    } else if (parent != given.key && schema_.is_key(parent)) {
      report_key(parent, given.place, "expects a value, got a mapping");
    } else if (const std::size_t colon = given.key.find(':');
               colon != std::string::npos && schema_.is_key(given.key.substr(0, colon))) {
      const std::size_t word = given.key.rfind('.', colon) + 1;  // 0 where there is no dot
      report(given.place, concat("'", given.key, "' needs a space behind the colon, as in `",
                                 given.key.substr(word, colon - word), ": VALUE`"));
    } else {
      const std::string likely = schema_.likely_key(given.key);
      report(given.place, concat("unknown key '", given.key, "'",
                                 likely.empty() ? schema_.where_keys_are(section_of(given.key))
                                                : concat(", did you mean '", likely, "'?")));
    }
  }
}

// The resolved value of a row that others depend on; nothing where it is unknown after an error.
std::optional<std::string> Resolver::choice_of(std::string_view key) const {
  if (broken_.contains(key)) return std::nullopt;
  for (const SchemaRow& row : schema_.rows())
    if (row.key == key) return value_text(row, settings_);
  return std::nullopt;
}

// `rows`: the rows of one key, of which at most one applies.
void Resolver::resolve_key(std::span<const SchemaRow> rows) {
  const std::string_view key = rows[0].key;
  if (broken_.contains(key)) return;
  const Given* given = find(key);
  const SchemaRow *applicable = nullptr, *fixed = nullptr;
  std::string actual;
  for (const SchemaRow& row : rows) {
    if (!row.when.key.empty()) {
      const std::optional<std::string> choice = choice_of(row.when.key);
      if (!choice) {
        if (given != nullptr) refuse_for_all(rows, *given);
        return mark_broken(key);
      }
      actual = *choice;
    }
    if (row.when.accepts(actual)) (row.fixed ? fixed : applicable) = &row;
  }
  if (fixed != nullptr) resolve_default(*fixed);
  if (applicable == nullptr) {
    if (given == nullptr) return;
    const SchemaRow* const decision = decision_on(rows[0].when.key);
    const std::string_view decides = decision == nullptr ? rows[0].when.key : decision->when.key;
    if (decision != nullptr) actual = choice_of(decides).value_or("");
    if (const Given* replacement = replacement_of(decides, *given))
      leave_out(*given, concat("does not apply where ", replacement->key, " is ", actual));
    else if (decision != nullptr)
      report_key(
          key, given->place,
          concat("does not apply where ", decides, " is ", actual, ", which says it itself; remove one of the two"));
    else
      report_key(key, given->place,
                 concat("applies only when ", describe_conditions(rows), ", and ", rows[0].when.key, " is ", actual,
                        "; remove one of the two"));
  } else if (given != nullptr) {
    try {
      set_value(*applicable, settings_, given->value);
    } catch (const YamlError& error) {
      const WrittenPlace place =
          given->place.override_number == 0 ? file_place(error.line(), given->place.file) : given->place;
      const std::string_view what = error.what();  // begins with a place in the value, or is about all of it
      report(place, concat(key, what.starts_with('[') ? "" : ": ", what));
      mark_broken(key);
    } catch (const Error& error) { report_key(key, given->place, error.what()); }
  } else if (const RetiredKey* retired = schema_.retired_for(key);
             retired != nullptr && find(retired->key) != nullptr) {
    const Given& old = *find(retired->key);
    try {
      const std::string_view value = retired->value(old.value.text, settings_);
      set_value(*applicable, settings_, YamlNode::scalar(std::string(value)));
    } catch (const Error& error) { report_key(retired->key, old.place, error.what()); }
  } else {
    resolve_default(*applicable);
  }
}

// The fixed row that gives a key its value; null: nothing but the user does.
const SchemaRow* Resolver::decision_on(std::string_view key) const {
  for (const SchemaRow& row : schema_.rows())
    if (row.key == key && row.fixed && row.when.accepts(choice_of(row.when.key).value_or(""))) return &row;
  return nullptr;
}

const Resolver::Given* Resolver::replacement_of(std::string_view choice, const Given& given) const {
  const Given* choosing = find(choice);
  const bool replaces = choosing != nullptr && choosing->place.override_number > 0 && given.place.override_number == 0;
  return replaces ? choosing : nullptr;
}

void Resolver::leave_out(const Given& given, std::string_view why) {
  notes_.push_back(printable(concat(given.place.text, ": ", given.key, " is left out: it ", why)));
}

// Where it is not known which row applies, a value that none of them reads is wrong all the same.
void Resolver::refuse_for_all(std::span<const SchemaRow> rows, const Given& given) {
  std::string complaint;
  for (const SchemaRow& row : rows) {
    try {
      return set_value(row, settings_, given.value);  // an unknown value, whatever it is
    } catch (const Error& error) {
      if (complaint.empty()) complaint = error.what();
    }
  }
  report_key(rows[0].key, given.place, complaint);
}

void Resolver::resolve_default(const SchemaRow& row) {
  if (row.standard.empty()) return report_key(row.key, missing_place(row.key), kMissingValue);
  std::string text(row.standard);
  if (text[0] == '=') {
    const std::optional<std::string> value = choice_of(row.standard.substr(1));
    if (!value) return mark_broken(row.key);
    text = *value;
  }
  if (const std::size_t at = text.find("<name>"); at != std::string::npos) {
    const std::string stem = printable(std::filesystem::path(name_).stem().string());
    set_value(row, settings_, YamlNode::scalar(text.replace(at, 6, stem)));
  } else {
    set_value(row, settings_, read_yaml(text).root);
  }
}

void Resolver::require(bool holds, std::span<const std::string_view> keys, std::string_view message, ErrorKind kind,
                       std::string_view shown) {
  for (const std::string_view key : keys)
    if (broken_.contains(key)) return;
  if (holds) return;
  WrittenPlace place = {kNoLine, 0, name_};
  for (const std::string_view key : keys)
    if (const Given* given = find(key); given && (place.line == kNoLine || place.order() < given->place.order()))
      place = given->place;
  problems_.push_back({place, concat(shown.empty() ? keys.front() : shown, ": ", message), kind});
}

void Resolver::resolve() {
  if (readable_) {
    check_names();
    const std::span<const SchemaRow> rows = schema_.rows();
    for (std::size_t first = 0, last = 0; first < rows.size(); first = last) {
      while (last < rows.size() && rows[last].key == rows[first].key) ++last;
      resolve_key(rows.subspan(first, last - first));
    }
    check_together();
  }
  if (problems_.empty()) return;
  std::stable_sort(problems_.begin(), problems_.end(),
                   [](const Problem& a, const Problem& b) { return a.place.order() < b.place.order(); });
  std::string message;
  for (const Problem& problem : problems_)
    message += concat(message.empty() ? "" : "\n", printable(concat(problem.place.text, ": ", problem.message)));
  const bool is_unsupported = std::all_of(problems_.begin(), problems_.end(), [](const Problem& problem) {
    return problem.kind == ErrorKind::unsupported;
  });
  throw Error(MessageLines{message}, is_unsupported ? ErrorKind::unsupported : ErrorKind::input);
}

}  // namespace keel
