#pragma once
// Records of texts with labels, which tasks of labels learn from: which files and columns, and what tokens they become.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/config/settings.h"
#include "keel/data/dataset.h"
#include "keel/runtime/json.h"
#include "keel/tokenizers/tokenizer.h"

namespace keel {

// Defaults of data.text and data.label, as YAML, and what pages say of them.
struct TextRecordWords {
  std::string_view text, text_help, label, label_help;
};
// data.path, data.format, data.header, data.text, data.label, data.tokenizer, data.truncation, data.validation with
// validation_keys(), data.last, data.group_by_length and data.pad_multiple. Rows of models stand before.
std::vector<KeyRow> text_record_keys(const TextRecordWords& words);
std::vector<SettingsComplaint> complain_of_text_records(const Settings& settings);

// Which files are read how, by those keys.
struct RecordForm {
  std::vector<std::string> texts;   // columns or fields: one, or those of a pair
  std::vector<std::string> labels;  // of what is learnt
  std::string format;               // "auto", "csv", "tsv", "jsonl" or "columns"
  bool header = true;               // of tables
  std::string split_column = {};    // empty: none
};
RecordForm record_form(const Settings& settings);

// What of labels is read: nothing, texts (whole numbers of tables, too), or numbers.
enum class LabelCells : unsigned char { none, texts, numbers };

struct TextRecords {
  DatasetPtr data;
  std::vector<std::string> texts;  // fields, in their order
};
// The records of a file. In .tsv quotes are characters as any other; in .csv they stand around cells (RFC 4180). Where
// labels are `none`, a text whose kind nothing says has a record in each line. An Error where the file is of no kind
// that has records, where labels are read and `format` is another kind than the file's, where a column is not there, or
// where there is no record.
TextRecords open_text_records(const std::string& path, const RecordForm& form, LabelCells labels,
                              const std::function<void(std::uint64_t done, std::uint64_t all)>& progress = {});

// The texts of a record: one, or a pair. A field that is missing, no text, or nothing but spaces is an Error.
TextPair texts_of_record(const Example& record, const std::vector<std::string>& fields);

// Calls f for each record, in order. What it throws is told with file and line.
void each_record(const Dataset& records, const std::string& path, const std::function<void(const Example& record)>& f);

// A list of JSON: of JSON lines, or a text that is one, as cells of tables and texts of columnar files have it. Null:
// something else.
Json list_in(const Value& value);

// Words of a record: a list of texts (of JSON), or a text whose words are separated by spaces. None is an Error.
std::vector<std::string> words_of_record(const Example& record, const std::string& field);

// Examples that a function makes of each record. What it throws is told with file and line. Lengths are those of the
// field `input_ids`. `version`: of the function, for the fingerprint.
DatasetPtr examples_of_records(DatasetPtr records, std::string path, std::function<Example(const Example& record)> make,
                               std::string version);

// How texts are cut to a length; data.truncation. `none`: what is longer is an Error.
struct TextLimit {
  std::int64_t length = 0;
  bool is_cut = true;
  Truncation::Strategy strategy = Truncation::Strategy::longest_first;
};
TextLimit text_limit(const Settings& settings, std::int64_t length);
// With the tokenizer's special tokens. No token at all is an Error, and so is a text that cannot be cut to the length.
Encoding encoded_record(const Tokenizer& tokenizer, const TextPair& texts, const TextLimit& limit);

// Fields input_ids and token_types of an encoding, whole numbers; types that the model does not have are 0.
void set_tokens(Example& example, const Encoding& encoding, std::int64_t token_types);
inline constexpr std::string_view kTokenTypes = "token_types", kLengths = "lengths";

}  // namespace keel
