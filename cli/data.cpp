// `keel data`: what is in files of data.

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bar.h"
#include "commands.h"
#include "common_options.h"
#include "keel/config/schema.h"
#include "keel/data/data_file.h"
#include "keel/data/file_list.h"
#include "keel/data/mixture.h"
#include "keel/data/summary.h"
#include "keel/data/text_dataset.h"
#include "keel/data/token_file.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/runtime/memory_limit.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/config.h"
#include "keel/trainer/progress.h"
#include "launch_plan.h"
#include "model_rows.h"
#include "table.h"

namespace keel::cli {
namespace {

constexpr const char* kDataFooter = R"(
Examples:
  keel data corpus.txt train.bin
  keel data reviews.jsonl --rows 5
  keel data train.keel --json train.json
  keel data c.yaml                    the files of a configuration, of a mixture with their shares; then the first rows
                                      of a step as the model sees them: tokens with their texts, numbers after casts

Files are known by what they begin with (tokens, columnar files), and by their names: .csv, .tsv, .jsonl, each with .gz
behind it or not; a folder is its files, and all else is a text. Every example is read, so what is malformed is found,
with file, line and column. scripts/import-dataset makes a columnar file of Parquet, Arrow and other data sets.)";

constexpr int kBins = 12, kBinColumns = 40;
constexpr std::int64_t kJsonBins = 50;

struct DataArguments {
  Words files;
  std::string json;
  int rows = 3, block = 16, columns = 0;
};

std::uint64_t bytes_of(const std::string& path) {
  std::uint64_t bytes = 0;
  const bool are_tokens = kind_of_file(path) == DataKind::tokens;
  for (const std::string& file : are_tokens ? token_files_at(path) : files_at(path)) bytes += InputFile(file).size();
  return bytes;
}

std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// A number as short as it can be read.
std::string short_number(double number) { return fmt::format("{:.6g}", number); }

// A value on one line, of about `most` characters at most.
struct ValueText {
  static constexpr std::size_t kRoomForOne = 20;  // the next number, and that it goes on
  std::size_t most;

  std::string operator()(double number) const { return short_number(number); }
  std::string operator()(std::int64_t number) const { return std::to_string(number); }
  std::string operator()(const std::string& text) const { return '"' + text + '"'; }
  std::string operator()(const keel::Nested& nested) const { return nested.json; }
  std::string operator()(const Numbers& numbers) const { return list(numbers.values); }
  std::string operator()(const Integers& numbers) const { return list(numbers.values); }

  template <class T>
  std::string list(const std::vector<T>& values) const {
    using Single = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
    std::string text = "[";
    std::size_t i = 0;
    for (; i < values.size() && text.size() + kRoomForOne < most; ++i)
      text += (i == 0 ? "" : ", ") + (*this)(static_cast<Single>(values[i]));
    return text + (i < values.size() ? ", ...]" : "]");
  }
};

std::string value_text(const keel::Value& value, int width) {
  const auto most = static_cast<std::size_t>(std::max(20, width));
  return printable(std::visit(ValueText{most}, value), most);
}

std::string fields_table(const std::vector<FieldSummary>& fields, int width) {
  TableColumn name{"", "field", 0, true}, kind{"", "kind", 0, true}, examples{"", "examples", 0}, from{"", "from", 1},
      to{"", "to", 1}, least{"length", "least", 2}, median{"", "median", 2}, mean{"", "mean", 3}, most{"", "most", 2};
  for (const FieldSummary& field : fields) {
    name.cells.push_back(printable(field.name, 40));
    kind.cells.push_back(field.kind);
    examples.cells.push_back(std::to_string(field.examples));
    from.cells.push_back(field.has_range() ? short_number(field.least) : "");
    to.cells.push_back(field.has_range() ? short_number(field.most) : "");
    const LengthSummary lengths = summary_of(field.lengths);
    const bool has_lengths = lengths.examples > 0;
    least.cells.push_back(has_lengths ? std::to_string(lengths.least) : "");
    median.cells.push_back(has_lengths ? std::to_string(lengths.median) : "");
    most.cells.push_back(has_lengths ? std::to_string(lengths.most) : "");
    mean.cells.push_back(
        has_lengths ? fmt::format("{:.1f}", static_cast<double>(lengths.sum) / static_cast<double>(lengths.examples))
                    : "");
  }
  return table_text({name, kind, examples, from, to, least, median, mean, most}, width);
}

// How long the examples' texts or sequences are, where they differ.
std::string histogram(const FieldSummary& field, bool utf8) {
  const std::vector<LengthBin> bins = bins_of(field.lengths, kBins);
  if (field.lengths.size() < 2) return "";
  std::int64_t most = 0;
  std::size_t width = 0;
  for (const LengthBin& bin : bins) {
    most = std::max(most, bin.examples);
    width = std::max(width, std::to_string(bin.to).size());
  }
  std::string text = fmt::format("\nlengths of {}, in {}:\n", printable(field.name, 40),
                                 field.kind == "a text" ? "bytes" : "elements");
  for (const LengthBin& bin : bins)
    text += fmt::format("  {:>{}} - {:>{}} {} {}\n", bin.from, width, bin.to, width,
                        progress_bar(static_cast<double>(bin.examples) / static_cast<double>(most), kBinColumns, utf8),
                        bin.examples);
  return text;
}

Json json_of(const FieldSummary& field) {
  Json json = {{"name", field.name}, {"kind", field.kind}, {"examples", field.examples}};
  if (field.has_range()) {
    json["from"] = field.least;
    json["to"] = field.most;
  }
  if (field.lengths.empty()) return json;
  const LengthSummary lengths = summary_of(field.lengths);
  Json bins = Json::array();
  for (const LengthBin& bin : bins_of(field.lengths, kJsonBins))
    bins.push_back({{"from", bin.from}, {"to", bin.to}, {"examples", bin.examples}});
  json["lengths"] = {{"least", lengths.least},
                     {"median", lengths.median},
                     {"most", lengths.most},
                     {"sum", lengths.sum},
                     {"histogram", bins}};
  return json;
}

// The tokens of the first window, as a model sees them: each input with the label behind it.
void show_window(const TokenFile& file, const std::shared_ptr<const Tokenizer>& tokenizer, int block, int width) {
  const std::int64_t count = std::min<std::int64_t>(block + 1, file.tokens.size());
  if (count < 2) return;
  std::vector<std::int32_t> window(static_cast<std::size_t>(count));
  file.tokens.copy(0, window);
  const std::vector<std::int64_t> values(window.begin(), window.end());
  const auto line = [&](std::string_view name, const keel::Value& value) {
    std::cout << fmt::format("  {:<10}{}\n", name, value_text(value, width - 12));
  };
  std::cout << "\nthe first window of " << count - 1 << " tokens:\n";
  line("input_ids", Integers{{count - 1}, {values.begin(), values.end() - 1}});
  line("labels", Integers{{count - 1}, {values.begin() + 1, values.end()}});
  if (tokenizer) line("text", tokenizer->decode(std::vector<std::uint32_t>(window.begin(), window.end() - 1)));
}

// How many different tokens there are, for vocabularies whose tokens can be counted in memory.
std::int64_t used_tokens(const Tokens& tokens) {
  std::vector<bool> used(static_cast<std::size_t>(tokens.vocabulary_size()));
  std::vector<std::int32_t> piece(1 << 16);
  Bar bar("reading");
  for (std::int64_t done = 0; done < tokens.size(); done += std::ssize(piece)) {
    piece.resize(static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(piece), tokens.size() - done)));
    tokens.copy(done, piece);
    for (const std::int32_t token : piece) used[static_cast<std::size_t>(token)] = true;
    bar.show(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(tokens.size()));
  }
  return std::ranges::count(used, true);
}

Json show_tokens(const std::string& path, const std::string& head, const DataArguments& arguments, int width) {
  const std::vector<std::string> paths = token_files_at(path);
  const TokenFile file = open_token_files(paths);
  const std::int64_t used = used_tokens(file.tokens);
  const std::string named = file.tokenizer.empty() ? "" : concat(", tokenizer ", printable(file.tokenizer));
  std::cout << head << counted(file.tokens.size(), "token") << ", " << used << " different ones of a vocabulary of "
            << file.tokens.vocabulary_size() << named << '\n';
  if (!file.note.empty()) std::cout << printable(file.note) << '\n';
  show_window(file, tokenizer_of(paths.front(), file), arguments.block, width);
  return {{"tokens", file.tokens.size()},
          {"vocabulary", file.tokens.vocabulary_size()},
          {"used", used},
          {"tokenizer", file.tokenizer}};
}

void show_rows(const Dataset& data, int rows, int width) {
  const std::int64_t count = std::min<std::int64_t>(rows, data.size());
  for (std::int64_t i = 0; i < count; ++i) {
    std::cout << "\nexample " << i << '\n';
    const Example example = data.example(i);
    std::size_t names = 0;
    for (const auto& [name, value] : example.fields()) names = std::max(names, printable(name, 40).size());
    for (const auto& [name, value] : example.fields())
      std::cout << fmt::format("  {:<{}}  {}\n", printable(name, 40), names,
                               value_text(value, width - 6 - static_cast<int>(names)));
  }
}

Json show_examples(const std::string& path, const std::string& head, const DataArguments& arguments, int width) {
  DatasetPtr data;
  std::vector<FieldSummary> fields;
  {
    Bar bar("indexing");
    data = open_data(path, {.progress = [&](std::uint64_t done, std::uint64_t all) { bar.show(done, all); }});
  }
  {
    Bar bar("reading");
    fields = summary_of(*data, [&](std::uint64_t done, std::uint64_t all) { bar.show(done, all); });
  }
  std::cout << head << counted(data->size(), "example") << '\n';
  if (!fields.empty()) std::cout << '\n' << fields_table(fields, width);
  const bool utf8 = console_options(STDOUT_FILENO).utf8;
  for (const FieldSummary& field : fields) std::cout << histogram(field, utf8);
  show_rows(*data, arguments.rows, width);
  Json::Array list;
  for (const FieldSummary& field : fields) list.push_back(json_of(field));
  return {{"examples", data->size()}, {"fields", list}};
}

Json show_file(const std::string& path, bool is_first, const DataArguments& arguments, int width) {
  const DataKind kind = kind_of_file(path);
  const std::uint64_t bytes = bytes_of(path);
  // Said once all has been read.
  const std::string head = concat(is_first ? "" : "\n", printable(path), ": ", name_of(kind), ", ",
                                  binary_size(static_cast<double>(bytes)), ", ");
  Json json = {{"path", path}, {"kind", name_of(kind)}, {"bytes", bytes}};
  const Json found = kind == DataKind::tokens ? show_tokens(path, head, arguments, width)
                                              : show_examples(path, head, arguments, width);
  for (const auto& [name, value] : found.members()) json[name] = value;
  return json;
}

// A file that a configuration trains on.
struct Part {
  std::string path;
  double weight = 1;
  std::vector<double> shares = {1};  // of every step's rows, in each stage of a curriculum
};
struct Parts {
  std::vector<Part> files;
  std::vector<std::string> stages = {""};  // "to step 1000"
};

void read_stages(const std::vector<Settings>& stages, Parts& parts) {
  if (stages.empty()) return;
  parts.stages.clear();
  for (Part& part : parts.files) part.shares.clear();
  for (const Settings& stage : stages) {
    const double until = stage.number("until");
    parts.stages.push_back(until == 0  ? "then"
                           : until < 1 ? fmt::format("to {:.4g} %", 100 * until)
                                       : fmt::format("to step {:.0f}", until));
    const std::vector<double>& weights = stage.numbers("weights");
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t i = 0; i < parts.files.size(); ++i) parts.files[i].shares.push_back(weights[i] / sum);
  }
}

Parts parts_of(const Config& config, const std::string& configuration) {
  Parts parts;
  for (const auto& [row, value] : applying_values(config.schema(), config)) {
    if (row->key == "data.path") parts.files.push_back({config.text("data.path")});
    if (row->key == "data.stages") read_stages(config.parts("data.stages"), parts);
    if (row->key != "data.mixture") continue;
    std::vector<double> weights;
    for (const Settings& source : config.parts("data.mixture")) {
      parts.files.push_back({source.text("path"), source.number("weight")});
      weights.push_back(parts.files.back().weight);
    }
    const Shares shares(weights);
    for (std::size_t i = 0; i < parts.files.size(); ++i) parts.files[i].shares = {shares.share(i)};
  }
  KEEL_CHECK(!parts.files.empty(), "'", configuration,
             "' trains on no file: it has neither data.path nor data.mixture; name a file of data");
  return parts;
}

std::string parts_table(const Parts& parts, int width) {
  TableColumn file{"", "file", 0, true}, kind{"", "kind", 1, true}, size{"", "size", 2}, weight{"", "weight", 1};
  std::vector<TableColumn> shares;
  for (const std::string& stage : parts.stages) shares.push_back({stage, "share", 0});
  for (const Part& part : parts.files) {
    file.cells.push_back(printable(part.path, 60));
    kind.cells.emplace_back(name_of(kind_of_file(part.path)));
    size.cells.push_back(binary_size(static_cast<double>(bytes_of(part.path))));
    weight.cells.push_back(short_number(part.weight));
    for (std::size_t i = 0; i < shares.size(); ++i)
      shares[i].cells.push_back(fmt::format("{:.4g} %", 100 * part.shares[i]));
  }
  std::vector<TableColumn> columns = {file, kind, size};
  if (shares.size() == 1) columns.push_back(weight);
  columns.insert(columns.end(), shares.begin(), shares.end());
  return table_text(columns, width);
}

// The files of a configuration, each with what is in it; then rows as the model sees them.
std::vector<Json> show_configuration(const std::string& path, bool is_first, const DataArguments& arguments,
                                     int width) {
  const Config config = read_configuration(path, {});
  const Parts parts = parts_of(config, path);
  std::cout << (is_first ? "" : "\n") << printable(path) << ": trains on " << counted(std::ssize(parts.files), "file")
            << "\n\n"
            << parts_table(parts, width);
  std::vector<Json> found;
  for (const Part& part : parts.files) {
    Json json = show_file(part.path, false, arguments, width);
    json["configuration"] = path;
    json["weight"] = part.weight;
    json["share"] = part.shares.front();
    if (part.shares.size() > 1) json["shares"] = part.shares;
    found.push_back(std::move(json));
  }
  if (arguments.rows > 0)
    found.front()["as_the_model_sees_it"] =
        show_model_rows(config, {.rows = arguments.rows, .tokens = arguments.block, .width = width});
  return found;
}

int run(const DataArguments& arguments) {
  const int width = arguments.columns > 0 ? arguments.columns : columns_of_output();
  Json all = Json::array();
  for (const std::string& path : arguments.files) {
    const bool is_first = &path == &arguments.files.front();
    if (!names_configuration(path)) {
      all.push_back(show_file(path, is_first, arguments, width));
      continue;
    }
    for (Json& json : show_configuration(path, is_first, arguments, width)) all.push_back(std::move(json));
  }
  if (!arguments.json.empty()) write_text_file(arguments.json, all.dump(2, BadUtf8::replace) + '\n');
  return 0;
}

}  // namespace

Command data_command() {
  const auto arguments = std::make_shared<DataArguments>();
  return {.name = "data",
          .help = "What is in files of data: examples, fields, lengths, tokens, first rows.",
          .positionals = {{"FILE", "", Value::every_word(&arguments->files),
                           "Files or folders; of a configuration, what it trains on.", kRequired}},
          .options = {{"--rows",
                       "",
                       {&arguments->rows, 0, 1000},
                       "Examples that are shown, and rows of a configuration's first step."},
                      {"--block", "", {&arguments->block, 1, 1024}, "Tokens of a window or row that are shown."},
                      {"--json", "FILE", &arguments->json, "Write what was found as JSON, too."},
                      columns_option(&arguments->columns)},
          .footer = kDataFooter,
          .run = [arguments](const Call&) { return run(*arguments); }};
}

}  // namespace keel::cli
