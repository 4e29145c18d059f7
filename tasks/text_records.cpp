#include "keel/tasks/text_records.h"

#include <algorithm>
#include <utility>

#include "keel/data/columns.h"
#include "keel/data/csv.h"
#include "keel/data/data_file.h"
#include "keel/data/file_list.h"
#include "keel/data/jsonl.h"
#include "keel/data/lines.h"
#include "keel/data/token_batch.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

constexpr std::string_view kSpaces = " \t\n\r\f\v";

bool is_blank(std::string_view text) { return text.find_first_not_of(kSpaces) == std::string_view::npos; }

enum class RecordKind : unsigned char { csv, tsv, jsonl, columns, lines };

bool is_named_tsv(std::string_view path) {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  return path.ends_with(".tsv") || path.ends_with(".tab");
}

RecordKind kind_of_records(const std::string& path, const RecordForm& form, LabelCells labels) {
  const DataKind kind = kind_of_file(path);
  // data.format says what a name does not, or which table it is.
  const bool says_table = form.format == "csv" || form.format == "tsv";
  if (kind == DataKind::text || (kind == DataKind::csv && says_table)) {
    if (form.format == "csv") return RecordKind::csv;
    if (form.format == "tsv") return RecordKind::tsv;
    if (form.format == "jsonl") return RecordKind::jsonl;
    if (form.format == "columns") return RecordKind::columns;
  }
  // A file to predict is what it is, whatever those to learn from are.
  const bool is_so = form.format == "auto" || (form.format == "jsonl" && kind == DataKind::jsonl) ||
                     (form.format == "columns" && kind == DataKind::columns);
  const bool has_records = kind != DataKind::tokens && kind != DataKind::files;
  KEEL_CHECK(is_so || labels == LabelCells::none || !has_records, "'", path, "' is ", name_of(kind),
             " by its name or its first bytes, and data.format=", form.format,
             " says otherwise; leave data.format out, or give the file a name of its kind");
  if (kind == DataKind::csv) return is_named_tsv(path) ? RecordKind::tsv : RecordKind::csv;
  if (kind == DataKind::jsonl) return RecordKind::jsonl;
  if (kind == DataKind::columns) return RecordKind::columns;
  if (kind == DataKind::text && labels == LabelCells::none && form.texts.size() == 1) return RecordKind::lines;
  throw Error(concat("'", path, "' is ", name_of(kind),
                     "; a table (.csv, .tsv), JSON lines (.jsonl) or a columnar file is asked for. data.format says "
                     "what it is where its name does not"));
}

std::vector<FieldColumns> cells_of(const RecordForm& form, LabelCells labels) {
  std::vector<FieldColumns> cells;
  const auto add = [&](const std::string& name, std::string_view mark) {
    if (std::ranges::find(cells, name, &FieldColumns::field) == cells.end())
      cells.push_back({name, concat(mark, name)});
  };
  for (const std::string& text : form.texts) add(text, "$");
  if (labels == LabelCells::none) return cells;
  for (const std::string& label : form.labels) add(label, labels == LabelCells::texts ? "$" : "");
  if (!form.split_column.empty()) add(form.split_column, "$");
  return cells;
}

// What f does; its Errors are told with file and line.
template <class F>
auto told_with_place(const Dataset& records, const std::string& path, std::int64_t i, F&& f) {
  try {
    return f();
  } catch (const Error& error) { throw Error(concat("'", path, "', ", records.place(i), ": "), error); }
}

class ExamplesOfRecords final : public Dataset {
 public:
  ExamplesOfRecords(DatasetPtr below, std::string path, std::function<Example(const Example& record)> make,
                    std::string version)
      : below_(std::move(below)), path_(std::move(path)), make_(std::move(make)), version_(std::move(version)) {}

  std::int64_t size() const override { return below_->size(); }
  Example example(std::int64_t i) const override { return made(below_->example(i), i); }
  std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
    std::vector<Example> all = below_->examples(indices);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = made(all[i], indices[i]);
    return all;
  }
  std::int64_t length(std::int64_t i) const override {
    const Example made = example(i);
    return std::ssize(std::get<Integers>(made[kInputIds]).values);
  }
  std::string place(std::int64_t i) const override { return below_->place(i); }
  std::string fingerprint() const override { return concat(below_->fingerprint(), " as ", version_); }

 private:
  Example made(const Example& record, std::int64_t i) const {
    return told_with_place(*below_, path_, i, [&] { return make_(record); });
  }

  DatasetPtr below_;
  std::string path_;
  std::function<Example(const Example& record)> make_;
  std::string version_;
};

}  // namespace

RecordForm record_form(const Settings& settings) {
  const std::string& split = settings.text("data.split_column");
  return {.texts = settings.texts("data.text"),
          .labels = settings.texts("data.label"),
          .format = settings.text("data.format"),
          .header = settings.flag("data.header"),
          .split_column = split == "none" ? std::string() : split};
}

TextRecords open_text_records(const std::string& name, const RecordForm& form, LabelCells labels,
                              const std::function<void(std::uint64_t done, std::uint64_t all)>& progress) {
  const std::string path = one_file_at(name);
  const RecordKind kind = kind_of_records(path, form, labels);
  const LineFileOptions lines = {.empty_lines = EmptyLines::refused, .progress = progress};
  TextRecords records = {.data = {}, .texts = form.texts};
  switch (kind) {
    case RecordKind::csv:
    case RecordKind::tsv:
      records.data = open_csv(path, {.fields = cells_of(form, labels),
                                     .header = form.header,
                                     .separator = kind == RecordKind::tsv ? '\t' : ',',
                                     .quotes = kind == RecordKind::csv,
                                     .lines = lines});
      break;
    case RecordKind::jsonl: records.data = open_jsonl(path, lines); break;
    case RecordKind::columns: records.data = open_columns(path); break;
    case RecordKind::lines:
      records.data = open_lines(path, lines);
      records.texts = {"text"};
      break;
  }
  KEEL_CHECK(records.data->size() > 0, "'", path, "' has no examples");
  return records;
}

TextPair texts_of_record(const Example& record, const std::vector<std::string>& fields) {
  for (const std::string& field : fields)
    KEEL_CHECK(!is_blank(record.text(field)), "the text '", printable(field, 64), "' is empty");
  TextPair texts = {.first = record.text(fields.front()), .second = {}};
  if (fields.size() == 2) texts.second = record.text(fields.back());
  return texts;
}

void each_record(const Dataset& records, const std::string& path, const std::function<void(const Example& record)>& f) {
  constexpr std::int64_t kAtOnce = 4096;
  std::vector<std::int64_t> indices;
  for (std::int64_t begin = 0; begin < records.size(); begin += kAtOnce) {
    indices.clear();
    for (std::int64_t i = begin; i < std::min(begin + kAtOnce, records.size()); ++i) indices.push_back(i);
    const std::vector<Example> read = records.examples(indices);
    for (std::size_t i = 0; i < read.size(); ++i) told_with_place(records, path, indices[i], [&] { f(read[i]); });
  }
}

Json list_in(const Value& value) {
  const std::string* text = text_or_json(value);
  const std::size_t begin = text == nullptr ? std::string::npos : text->find_first_not_of(kSpaces);
  if (begin == std::string::npos || (*text)[begin] != '[') return {};
  return Json::parse_or_null(*text);
}

std::vector<std::string> words_of_record(const Example& record, const std::string& field) {
  const Value& value = record[field];
  const bool is_nested = std::holds_alternative<Nested>(value);
  const std::string& text = is_nested ? std::get<Nested>(value).json : record.text(field);
  std::vector<std::string> words;
  const Json list = list_in(value);
  const bool is_list = list.is_array() && std::ranges::all_of(list.items(), &Json::is_string);
  KEEL_CHECK(is_list || !is_nested, "'", printable(field, 64), "' is ", printable(text, 64),
             "; a list of texts alone, or words between spaces, is asked for");
  if (is_list)
    for (const Json& each : list.items()) words.push_back(each.string());
  if (words.empty() && !is_nested) {
    const std::string_view all = text;
    for (std::size_t begin = all.find_first_not_of(kSpaces); begin != std::string_view::npos;) {
      const std::size_t end = std::min(all.find_first_of(kSpaces, begin), all.size());
      words.emplace_back(all.substr(begin, end - begin));
      begin = all.find_first_not_of(kSpaces, end);
    }
  }
  KEEL_CHECK(!words.empty(), "'", printable(field, 64),
             "' is empty; a list of texts, or words between spaces, is asked for");
  return words;
}

DatasetPtr examples_of_records(DatasetPtr records, std::string path, std::function<Example(const Example& record)> make,
                               std::string version) {
  return std::make_shared<ExamplesOfRecords>(std::move(records), std::move(path), std::move(make), std::move(version));
}

TextLimit text_limit(const Settings& settings, std::int64_t length) {
  const std::string& name = settings.text("data.truncation");
  TextLimit limit = {.length = length, .is_cut = name != "none"};
  if (name == "only_first") limit.strategy = Truncation::Strategy::only_first;
  if (name == "only_second") limit.strategy = Truncation::Strategy::only_second;
  return limit;
}

Encoding encoded_record(const Tokenizer& tokenizer, const TextPair& texts, const TextLimit& limit) {
  // Another length than any text's leaves out the truncation that the tokenizer's file asks for.
  constexpr std::int64_t kAnyLength = std::int64_t{1} << 40;
  Encoding encoding = tokenizer.encode(
      texts, {.specials = true,
              .truncation = Truncation{.length = limit.is_cut ? limit.length : kAnyLength, .strategy = limit.strategy},
              .padding = {}});
  KEEL_CHECK(encoding.size() > 0, "the tokenizer makes no token of the text");
  KEEL_CHECK(static_cast<std::int64_t>(encoding.size()) <= limit.length, "the text has ", encoding.size(),
             " tokens, more than the ", limit.length,
             " of model.block; make it larger, or let data.truncation cut texts");
  return encoding;
}

void set_tokens(Example& example, const Encoding& encoding, std::int64_t token_types) {
  const Dims shape = {static_cast<std::int64_t>(encoding.size())};
  Integers ids = {shape, {encoding.ids.begin(), encoding.ids.end()}}, types = {shape, {}};
  for (const std::uint32_t type : encoding.type_ids) types.values.push_back(type < token_types ? type : 0);
  example.set(std::string(kInputIds), std::move(ids));
  example.set(std::string(kTokenTypes), std::move(types));
}

}  // namespace keel
