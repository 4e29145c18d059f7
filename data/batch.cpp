#include "keel/data/batch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

void check_name(std::string_view what, std::string_view name) {
  KEEL_CHECK(is_name(name), "'", printable(name, 64), "' is no name of a ", what,
             ": letters, digits and _ are possible");
}

std::int64_t count_of(const Tensor& sample_ids) {
  KEEL_CHECK(sample_ids.defined() && sample_ids.dtype() == DType::i64 && sample_ids.rank() == 1,
             "the sample ids of a batch are i64 (rows)");
  return sample_ids.dim(0);
}

std::vector<std::int64_t> numbers_from(std::int64_t first, std::int64_t count) {
  KEEL_CHECK(first >= 0 && count >= 0, "rows ", first, " to ", first + count, " cannot be numbered");
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// The place of a name in a list that is ordered by name, or where it would be.
template <class Entries>
auto place_of(Entries& entries, std::string_view name) {
  return std::ranges::lower_bound(entries, name, {}, [](const auto& entry) { return std::string_view(entry.first); });
}

template <class Entries>
bool is_in(const Entries& entries, std::string_view name) {
  const auto place = place_of(entries, name);
  return place != entries.end() && place->first == name;
}

// "; did you mean 'labels'? It has labels i32 (8, 64), input_ids i32 (8, 64)": the likeliest first.
template <class Entries, class Text>
std::string what_there_is(const Entries& entries, std::string_view name, Text&& text_of) {
  std::vector<std::string_view> names;
  for (const auto& entry : entries) names.push_back(entry.first);
  const std::string likely = nearest(name.substr(0, 64), names);
  std::string first, others;
  for (const auto& entry : entries) (entry.first == likely ? first : others) += concat(", ", text_of(entry));
  const std::string all = first + others;
  return concat(likely.empty() ? std::string(". ") : concat("; did you mean '", likely, "'? "), "It has ",
                all.empty() ? "none" : all.substr(2));
}

}  // namespace

Batch::Batch(Tensor sample_ids, std::vector<std::int64_t> examples)
    : sample_ids_(std::move(sample_ids)), examples_(std::move(examples)) {
  const std::int64_t rows = count_of(sample_ids_);
  KEEL_CHECK(std::ssize(examples_) == rows, "a batch of ", rows, " rows has the numbers of ", examples_.size(),
             " examples");
  put_weight(std::string(kRowWeight), static_cast<double>(rows));
}

Batch::Batch(const Context& context, std::int64_t first, std::int64_t rows)
    : Batch(from_values(context, numbers_from(first, rows), {rows}), numbers_from(first, rows)) {}

Batch& Batch::set(std::string name, Tensor values) {
  check_name("field", name);
  KEEL_CHECK(sample_ids_.defined(), "field '", name, "' belongs to a batch that has no rows yet");
  KEEL_CHECK(values.defined() && values.rank() >= 1 && values.dim(0) == rows(), "field '", name, "' ",
             values.defined() ? concat("is ", values.dtype(), ' ', values.shape()) : std::string("has no tensor"),
             ", but the batch has ", rows(), " rows: its first extent is the rows");
  KEEL_CHECK(values.context() == sample_ids_.context(), "field '", name, "' is on ", values.device(),
             " in another context than the batch's sample ids on ", sample_ids_.device());
  const auto place = place_of(fields_, name);
  KEEL_CHECK(place == fields_.end() || place->first != name, "the batch has a field '", name, "' already");
  fields_.insert(place, {std::move(name), std::move(values)});
  return *this;
}

Batch& Batch::keep_on_host(std::string_view name) {
  (void)(*this)[name];
  on_host_.emplace_back(name);
  return *this;
}

bool Batch::stays_on_host(std::string_view name) const { return std::ranges::find(on_host_, name) != on_host_.end(); }

bool Batch::has(std::string_view name) const { return is_in(fields_, name); }

const Tensor& Batch::operator[](std::string_view name) const {
  const auto place = place_of(fields_, name);
  if (place != fields_.end() && place->first == name) return place->second;
  throw Error(
      concat("the batch has no '", printable(name, 64), "'", what_there_is(fields_, name, [](const auto& field) {
               return concat(field.first, ' ', field.second.dtype(), ' ', field.second.shape());
             })));
}

void Batch::put_weight(std::string name, double value) {
  const std::vector<float> rounded = {static_cast<float>(value)};
  Tensor tensor = from_values(sample_ids_.context(), rounded, {});
  const auto place = place_of(weight_tensors_, name);
  if (place != weight_tensors_.end() && place->first == name) place->second = std::move(tensor);
  else weight_tensors_.insert(place, {name, std::move(tensor)});
  weights_.insert_or_assign(std::move(name), value);
}

Batch& Batch::set_weight(std::string name, double value) {
  check_name("weight", name);
  KEEL_CHECK(sample_ids_.defined(), "weight '", name, "' belongs to a batch that has no rows yet");
  KEEL_CHECK(std::isfinite(value) && value >= 0, "weight '", name, "' of a batch is ", value,
             "; it must be finite and not negative");
  KEEL_CHECK(!has_weight(name), "the batch has a weight '", name, "' already");
  put_weight(std::move(name), value);
  return *this;
}

bool Batch::has_weight(std::string_view name) const { return weights_.contains(name); }

double Batch::weight(std::string_view name) const {
  const auto place = weights_.find(name);
  if (place != weights_.end()) return place->second;
  throw Error(concat("the batch has no weight '", printable(name, 64), "'",
                     what_there_is(weights_, name, [](const auto& entry) { return entry.first; })));
}

const Tensor& Batch::weight_tensor(std::string_view name) const {
  (void)weight(name);
  return place_of(weight_tensors_, name)->second;
}

Batch Batch::stand_in() const {
  Batch copy = *this;
  copy.is_stand_in_ = true;
  for (const auto& [name, value] : weights_) copy.put_weight(name, 0);
  return copy;
}

void Batch::used_by(const Stream& stream) const {
  sample_ids_.storage()->used_by(stream);
  for (const auto& [name, tensor] : fields_)
    if (tensor.context() == sample_ids_.context()) tensor.storage()->used_by(stream);
  for (const auto& [name, tensor] : weight_tensors_) tensor.storage()->used_by(stream);
}

std::string Batch::signature(const std::vector<std::string>& varying) const {
  for (const std::string& name : varying) (void)(*this)[name];
  std::string lines;
  for (const auto& [name, tensor] : fields_) {
    const bool varies = std::ranges::find(varying, name) != varying.end();
    lines += concat(name, ' ', tensor.dtype(), " (rows");
    for (int i = 1; i < tensor.rank(); ++i) lines += varies ? ", *" : concat(", ", tensor.dim(i));
    lines += ")\n";
  }
  lines += "weights";
  for (const auto& [name, value] : weights_) lines += concat(' ', name);
  return lines += '\n';
}

Batch transfer(const Batch& batch, const Context& target) {
  if (!batch.sample_ids_.defined() || batch.sample_ids_.context() == target) return batch;
  Batch moved = batch;
  moved.sample_ids_ = transfer(batch.sample_ids_, target);
  for (auto& [name, tensor] : moved.fields_)
    if (!batch.stays_on_host(name)) tensor = transfer(tensor, target);
  for (auto& [name, tensor] : moved.weight_tensors_) tensor = transfer(tensor, target);
  return moved;
}

void BatchSource::check_rows(std::int64_t step, Rows range) const {
  KEEL_CHECK(step >= 0 && step < steps(), "step ", step, " is outside the source's ", steps(), " steps");
  KEEL_CHECK(0 <= range.begin && range.begin < range.end && range.end <= rows(step), "rows [", range.begin, ", ",
             range.end, ") are none of the ", rows(step), " rows of step ", step);
}

}  // namespace keel
