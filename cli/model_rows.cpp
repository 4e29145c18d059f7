#include "model_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <string_view>
#include <utility>
#include <vector>

#include "bar.h"
#include "keel/data/packing.h"
#include "keel/data/token_batch.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/tokenizers/tokenizer_files.h"
#include "keel/trainer/make_task.h"
#include "table.h"

namespace keel::cli {
namespace {

constexpr double kReadingPatience = 0.5;  // seconds before the bar is drawn

// A field's values of one row.
std::vector<double> values_of(const Tensor& field, std::int64_t row) {
  std::vector<double> all;
  switch (field.dtype()) {
    case DType::i32:
      for (const auto value : field.to_vector<std::int32_t>()) all.push_back(value);
      break;
    case DType::i64:
      for (const auto value : field.to_vector<std::int64_t>()) all.push_back(static_cast<double>(value));
      break;
    case DType::u8:
      for (const auto value : field.to_vector<std::uint8_t>()) all.push_back(value);
      break;
    case DType::f32:
      for (const auto value : field.to_vector<float>()) all.push_back(value);
      break;
    default: return {};
  }
  const auto width = static_cast<std::ptrdiff_t>(std::ssize(all) / field.dim(0));
  all.erase(all.begin() + (row + 1) * width, all.end());
  all.erase(all.begin(), all.begin() + row * width);
  return all;
}

// Whether the field has a number for each token of the row.
bool goes_with_tokens(const Batch& batch, const Tensor& field) {
  return batch.has(kInputIds) && field.shape().size() == 2 && field.shape() == batch[kInputIds].shape() &&
         !is_floating(field.dtype());
}

bool are_tokens(std::string_view name) { return name == kInputIds || name == kLabels; }

std::string text_of_token(const Tokenizer& tokenizer, double value) {
  if (value < 0) return "";
  if (value >= static_cast<double>(tokenizer.vocabulary_size())) return "?";
  const auto token = static_cast<std::uint32_t>(value);
  return concat('\'', printable(tokenizer.decode(std::span(&token, 1)), 40), '\'');
}

std::string number_text(double value) { return fmt::format("{:.6g}", value); }

std::string list_text(const std::vector<double>& values, int width) {
  if (values.size() == 1) return number_text(values.front());
  std::string text = "[";
  std::size_t shown = 0;
  for (; shown < values.size() && std::ssize(text) + 20 < std::max(40, width); ++shown)
    text += concat(shown == 0 ? "" : ", ", number_text(values[shown]));
  return text + (shown < values.size() ? fmt::format(", ...] of {}", values.size()) : "]");
}

std::string tokens_table(const Batch& batch, std::int64_t row, const Tokenizer* tokenizer, std::int64_t most,
                         int width) {
  const auto count = static_cast<std::size_t>(std::min(most, batch[kInputIds].dim(1)));
  const std::vector<double> documents =
      batch.has(kDocuments) ? values_of(batch[kDocuments], row) : std::vector<double>();
  std::vector<TableColumn> columns;
  const auto add = [&](std::string_view name) {
    const std::vector<double> values = values_of(batch[name], row);
    TableColumn& numbers = columns.emplace_back(TableColumn{.above = "", .head = std::string(name)});
    for (std::size_t i = 0; i < count; ++i) numbers.cells.push_back(number_text(values[i]));
    if (tokenizer == nullptr || !are_tokens(name)) return;
    TableColumn& texts = columns.emplace_back(TableColumn{.above = "", .head = "text", .is_text = true});
    for (std::size_t i = 0; i < count; ++i)
      texts.cells.push_back(!documents.empty() && documents[i] < 0 ? "" : text_of_token(*tokenizer, values[i]));
  };
  add(kInputIds);
  for (const auto& [name, field] : batch.fields())
    if (name != kInputIds && goes_with_tokens(batch, field)) add(name);
  std::string text = table_text(columns, width, "  ");
  if (const std::int64_t more = batch[kInputIds].dim(1) - static_cast<std::int64_t>(count); more > 0)
    text += fmt::format("  ... {} more (--block)\n", more);
  return text;
}

Json json_of_row(const Batch& batch, std::int64_t row) {
  Json fields = Json::object();
  for (const auto& [name, field] : batch.fields()) {
    const std::vector<double> values = values_of(field, row);
    Json list = Json::array();
    for (const double value : values)
      list.push_back(is_floating(field.dtype()) ? Json(value) : Json(static_cast<std::int64_t>(value)));
    fields[name] = std::move(list);
  }
  return {{"example", batch.examples()[static_cast<std::size_t>(row)]}, {"fields", fields}};
}

std::int64_t rows_in(const BatchSource& source) {
  std::int64_t rows = 0;
  for (std::int64_t step = 0; step < source.steps(); ++step) rows += source.rows(step);
  return rows;
}

std::string what_negatives_mean(const Batch& batch) {
  std::string text;
  if (batch.has(kLabels)) text += fmt::format("; labels of {} are not learnt", kIgnoreTarget);
  if (batch.has(kDocuments)) text += "; documents of -1 are padding";
  return text;
}

}  // namespace

std::string row_text(const Batch& batch, std::int64_t row, const Tokenizer* tokenizer, std::int64_t most, int width) {
  const std::int64_t example = batch.examples()[static_cast<std::size_t>(row)];
  std::string text = fmt::format("\nrow {}{}\n", row, example < 0 ? "" : fmt::format(", example {}", example));
  std::size_t names = 0;
  for (const auto& [name, field] : batch.fields())
    if (!goes_with_tokens(batch, field)) names = std::max(names, name.size());
  for (const auto& [name, field] : batch.fields())
    if (!goes_with_tokens(batch, field))
      text += fmt::format("  {:<{}}  {}\n", name, names,
                          list_text(values_of(field, row), width - 4 - static_cast<int>(names)));
  return batch.has(kInputIds) ? text + tokens_table(batch, row, tokenizer, most, width) : text;
}

Json show_model_rows(Config config, const ModelRowsOptions& options) {
  const Context host = Context::create({.threads = 1});
  std::unique_ptr<TaskBase> task;
  Data data;
  {
    Bar bar("reading", kReadingPatience);
    task = make_task(config, host, {}, [&](std::uint64_t done, std::uint64_t all) { bar.show(done, all); });
    data = open_training_data(config, *task);
  }
  std::shared_ptr<const Tokenizer> tokenizer;
  for (const auto& [name, text] : data.files)
    if (name == "tokenizer.json") tokenizer = parse_tokenizer(text, name);
  const std::int64_t rows = data.training->rows(0), shown = std::min(rows, options.rows);
  const Batch batch = data.training->load(0, {0, shown});
  std::cout << fmt::format("\nas the model sees it: the first {} of {} rows of the first step{}\n", shown, rows,
                           what_negatives_mean(batch));
  Json json = {{"rows_of_a_step", rows}, {"rows", Json::array()}, {"validation", Json::array()}};
  for (std::int64_t row = 0; row < shown; ++row) {
    std::cout << row_text(batch, row, tokenizer.get(), options.tokens, options.width);
    json["rows"].push_back(json_of_row(batch, row));
  }
  for (const ValidationSet& set : data.validation) {
    const std::string name = set.name.empty() ? "validation" : set.name;
    const std::int64_t held_out = rows_in(*set.source);
    std::cout << fmt::format("{}validation set {}: {} rows\n", &set == &data.validation.front() ? "\n" : "", name,
                             held_out);
    json["validation"].push_back({{"set", name}, {"rows", held_out}});
  }
  return json;
}

}  // namespace keel::cli
