#include "keel/data/collator.h"

#include <algorithm>
#include <mutex>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

bool is_whole(const Value& value) {
  return std::holds_alternative<std::int64_t>(value) || std::holds_alternative<Integers>(value);
}

Dims shape_of(const Value& value) {
  if (const auto* numbers = std::get_if<Numbers>(&value)) return numbers->shape;
  if (const auto* integers = std::get_if<Integers>(&value)) return integers->shape;
  return {};
}

std::string described(std::string_view field, const CollatedRow& row, const Value& value) {
  return concat("field '", printable(field, 64), "' of example ", row.index, " is ", kind_of(value));
}

std::int32_t narrowed(std::int64_t value, std::string_view field, const CollatedRow& row) {
  KEEL_CHECK(value == static_cast<std::int32_t>(value), "field '", printable(field, 64), "' of example ", row.index,
             " has ", value, ", which does not fit in 32 bits");
  return static_cast<std::int32_t>(value);
}

std::span<const std::int64_t> whole_numbers(const Value& value) {
  if (const auto* single = std::get_if<std::int64_t>(&value)) return {single, 1};
  return std::get<Integers>(value).values;
}

void copy_as_floats(const Value& value, float* out) {
  if (const auto* single = std::get_if<double>(&value)) *out = static_cast<float>(*single);
  else if (const auto* numbers = std::get_if<Numbers>(&value)) std::ranges::copy(numbers->values, out);
  else std::ranges::transform(whole_numbers(value), out, [](std::int64_t whole) { return static_cast<float>(whole); });
}

// The values of a field in all rows, of one shape.
std::vector<const Value*> column_of(std::span<const CollatedRow> rows, std::string_view field) {
  std::vector<const Value*> column;
  for (const CollatedRow& row : rows) {
    const Value* value = row.example.find(field);
    KEEL_CHECK(value != nullptr, "example ", row.index, " has no field '", printable(field, 64), "', and example ",
               rows.front().index, " has");
    column.push_back(value);
    const Value& first = *column.front();
    KEEL_CHECK(
        (text_or_json(*value) == nullptr) == (text_or_json(first) == nullptr) && shape_of(*value) == shape_of(first),
        described(field, row, *value), ", and ", described(field, rows.front(), first),
        "; rows of one batch have one shape (pad() fills up)");
  }
  return column;
}

void stack_field(std::span<const CollatedRow> rows, const std::string& field, const Context& context, Batch& batch) {
  const std::vector<const Value*> column = column_of(rows, field);
  if (text_or_json(*column.front()) != nullptr) return;
  Dims shape = shape_of(*column.front());
  const std::int64_t width = product(shape);
  shape.insert(0, std::ssize(rows));
  const bool whole = std::ranges::all_of(column, [](const Value* value) { return is_whole(*value); });
  const Tensor tensor = empty(context, shape, whole ? DType::i32 : DType::f32);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::int64_t at = static_cast<std::int64_t>(row) * width;
    if (whole)
      std::ranges::transform(whole_numbers(*column[row]), tensor.data<std::int32_t>() + at,
                             [&](std::int64_t value) { return narrowed(value, field, rows[row]); });
    else copy_as_floats(*column[row], tensor.data<float>() + at);
  }
  batch.set(field, tensor);
}

bool has_number_field(const CollatedRow& row, std::string_view field) {
  const Value* value = row.example.find(field);
  return value != nullptr && text_or_json(*value) == nullptr;
}

// All fields of the first row, of which `left_out` are done already. Whatever another row has beside them is an Error.
void stack_fields(std::span<const CollatedRow> rows, std::span<const PaddedField> left_out, const Context& context,
                  Batch& batch) {
  for (const auto& [name, value] : rows.front().example.fields())
    if (std::ranges::find(left_out, name, &PaddedField::name) == left_out.end())
      stack_field(rows, name, context, batch);
  for (const CollatedRow& row : rows)
    for (const auto& [name, value] : row.example.fields())
      KEEL_CHECK(text_or_json(value) != nullptr || has_number_field(rows.front(), name), described(name, row, value),
                 ", and example ", rows.front().index, " has no such field");
}

const Integers& sequence_of(const CollatedRow& row, const std::string& field) {
  const Value& value = row.example[field];
  const auto* sequence = std::get_if<Integers>(&value);
  KEEL_CHECK(sequence != nullptr && sequence->shape.size() == 1, described(field, row, value),
             "; what is filled up is a sequence of whole numbers");
  return *sequence;
}

// The length of each row's sequences.
std::vector<std::int64_t> lengths_of(std::span<const CollatedRow> rows, const PadOptions& options) {
  std::vector<std::int64_t> lengths;
  for (const CollatedRow& row : rows) {
    for (const PaddedField& field : options.fields) {
      const std::int64_t length = std::ssize(sequence_of(row, field.name).values);
      if (&field == &options.fields.front()) lengths.push_back(length);
      KEEL_CHECK(length == lengths.back(), "field '", field.name, "' of example ", row.index, " has ", length,
                 " elements, and '", options.fields.front().name, "' has ", lengths.back());
    }
    KEEL_CHECK(options.length == 0 || lengths.back() <= options.length, "example ", row.index, " has ", lengths.back(),
               " elements, more than the ", options.length, " that are filled up to; shorten it or enlarge the length");
  }
  return lengths;
}

class PaddedRows {
 public:
  explicit PaddedRows(PadOptions options) : options_(std::move(options)) {
    KEEL_CHECK(!options_.fields.empty(), "name the fields that are to be filled up");
    KEEL_CHECK(options_.multiple >= 1 && options_.length >= 0 && options_.length % options_.multiple == 0,
               "sequences cannot be filled up to a length of ", options_.length, " and a multiple of ",
               options_.multiple);
  }

  void operator()(std::span<const CollatedRow> rows, const CollateInfo& info, Batch& batch) const {
    const std::vector<std::int64_t> lengths = lengths_of(rows, options_);
    const std::int64_t longest = options_.length != 0 ? options_.length : std::ranges::max(lengths);
    const std::int64_t time = (longest + options_.multiple - 1) / options_.multiple * options_.multiple;
    const auto count = std::ssize(rows);
    // Where a row's own elements begin.
    const auto begin = [&](std::size_t row) {
      return static_cast<std::int64_t>(row) * time + (options_.left ? time - lengths[row] : 0);
    };
    for (const PaddedField& field : options_.fields) {
      const Tensor tensor = empty(info.context, {count, time}, DType::i32);
      auto* out = tensor.data<std::int32_t>();
      std::fill_n(out, tensor.numel(), narrowed(field.value, field.name, rows.front()));
      for (std::size_t row = 0; row < rows.size(); ++row)
        std::ranges::transform(sequence_of(rows[row], field.name).values, out + begin(row),
                               [&](std::int64_t value) { return narrowed(value, field.name, rows[row]); });
      batch.set(field.name, tensor);
    }
    if (options_.mask) {
      const Tensor mask = zeros(info.context, {count, time}, DType::u8);
      for (std::size_t row = 0; row < rows.size(); ++row)
        std::fill_n(mask.data<std::uint8_t>() + begin(row), lengths[row], std::uint8_t{1});
      batch.set("mask", mask);
    }
    stack_fields(rows, options_.fields, info.context, batch);
    std::int64_t tokens = 0;
    for (const std::int64_t length : lengths) tokens += length;
    batch.set("lengths", from_values(info.context, lengths, {count}));
    batch.set_weight("tokens", static_cast<double>(tokens));
    batch.set_weight(std::string(kPositionWeight), static_cast<double>(count * time));
  }

 private:
  PadOptions options_;
};

class CollatedSource final : public BatchSource {
 public:
  CollatedSource(Context context, DatasetPtr data, SamplerPtr sampler, Collator collator, SourceOptions options)
      : info_{std::move(context), options.seed},
        data_(std::move(data)),
        sampler_(std::move(sampler)),
        collator_(std::move(collator)),
        varying_(std::move(options.varying)) {
    KEEL_CHECK(data_ && sampler_ && collator_, "batches are made of a data set, a sampler and a collator");
  }

  std::int64_t steps() const override { return sampler_->steps(); }
  double steps_per_epoch() const override { return sampler_->steps_per_epoch(); }
  std::int64_t rows(std::int64_t step) const override { return sampler_->rows(step); }
  std::string fingerprint() const override { return data_->fingerprint(); }

  Batch load(std::int64_t step, Rows range) const override {
    check_rows(step, range);
    std::vector<std::int64_t> indices, samples;
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      indices.push_back(sampler_->example(step, row));
      samples.push_back(sampler_->first_sample(step) + row);
    }
    std::vector<Example> examples = data_->examples(indices);
    KEEL_CHECK(examples.size() == indices.size(), "the data set gave ", examples.size(), " examples where ",
               indices.size(), " were asked for");
    std::vector<CollatedRow> rows;
    for (std::size_t i = 0; i < indices.size(); ++i)
      rows.push_back({std::move(examples[i]), indices[i], samples[i],
                      sampler_->epoch(step, range.begin + static_cast<std::int64_t>(i))});
    const auto count = std::ssize(samples);
    Batch batch(from_values(info_.context, samples, {count}), std::move(indices));
    collator_(rows, info_, batch);
    compare(batch, step);
    return batch;
  }

 private:
  void compare(const Batch& batch, std::int64_t step) const {
    const std::string signature = batch.signature(varying_);
    const std::lock_guard lock(mutex_);
    if (signature_.empty()) {
      signature_ = signature;
      first_ = step;
    }
    if (signature != signature_)
      throw Error(MessageLines{concat(
          "the batch of step ", step, " has\n", signature, "and that of step ", first_, " had\n", signature_,
          "All batches of a source have the same fields. Where extents differ as rows are filled up to the longest, "
          "name those fields (SourceOptions::varying, or the last argument of make_data()), or give pad() a length")});
  }

  CollateInfo info_;
  DatasetPtr data_;
  SamplerPtr sampler_;
  Collator collator_;
  std::vector<std::string> varying_;
  mutable std::mutex mutex_;
  mutable std::string signature_;  // of the batch that was made first
  mutable std::int64_t first_ = 0;
};

}  // namespace

Collator stack() {
  return [](std::span<const CollatedRow> rows, const CollateInfo& info, Batch& batch) {
    stack_fields(rows, {}, info.context, batch);
  };
}

Collator pad(const PadOptions& options) { return PaddedRows(options); }

std::shared_ptr<const BatchSource> make_source(const Context& context, DatasetPtr data, SamplerPtr sampler,
                                               Collator collator, const SourceOptions& options) {
  return std::make_shared<CollatedSource>(context, std::move(data), std::move(sampler), std::move(collator), options);
}

}  // namespace keel
