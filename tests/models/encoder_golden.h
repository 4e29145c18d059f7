#pragma once
// Small encoders with the weights, inputs and losses of tests/golden/generate_encoders.py.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/autograd/functions.h"
#include "keel/models/catalog.h"
#include "keel/models/hub_tensors.h"
#include "keel/nn/state.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/runtime/random.h"
#include "tests/support.h"

namespace keel::testing {

inline constexpr std::int64_t kGoldenTime = 10, kGoldenWords = 53;

inline const Json& golden_encoders() {
  static const Json all = Json::parse(read_text_file(KEEL_SOURCE_DIR "/tests/golden/encoders.json"));
  return all;
}

inline HeadOptions golden_head(std::string_view name) {
  if (name == "sequence") return {.head = EncoderHead::sequence, .outputs = 3};
  if (name == "tokens") return {.head = EncoderHead::tokens, .outputs = 5};
  return {.head = name == "replaced" ? EncoderHead::replaced : EncoderHead::masked_language};
}

inline std::vector<double> golden_uniform(const std::string& name, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  fill_uniform(values, 1, name);
  return {values.begin(), values.end()};
}

// Of the rows of a batch, row r has r + 1 tokens.
inline bool golden_valid(std::int64_t i) { return i % kGoldenTime <= i / kGoldenTime; }

// A number below `below` for each token; `padding` at padding.
inline std::vector<std::int64_t> golden_numbers(const std::string& name, std::int64_t below, std::int64_t padding,
                                                std::int64_t shift = 0) {
  std::vector<std::int64_t> numbers;
  for (const double u : golden_uniform(name, kGoldenTime * kGoldenTime)) {
    const bool valid = golden_valid(std::ssize(numbers));
    numbers.push_back(valid ? shift + static_cast<std::int64_t>(u * static_cast<double>(below)) : padding);
  }
  return numbers;
}

// By the names of parameters, packed ones from their parts.
inline NamedTensors golden_weights(const Context& context, Module& model, const std::vector<HubTensor>& tensors) {
  std::vector<std::pair<std::string, std::vector<float>>> flat;
  std::map<std::string, Dims> shapes;
  for_each_parameter(model,
                     [&](const std::string& name, Parameter& parameter) { shapes.emplace(name, parameter.shape()); });
  for (const HubTensor& tensor : tensors) {
    if (flat.empty() || flat.back().first != tensor.parameter) flat.emplace_back(tensor.parameter, 0);
    const bool bias = tensor.name.ends_with("bias"), norm = !bias && tensor.shape.size() == 1;
    for (const double u : golden_uniform(tensor.name, product(tensor.shape))) {
      const float centred = 2 * static_cast<float>(u) - 1;
      flat.back().second.push_back(centred * (bias ? 0.1f : 0.2f) + (norm ? 1.0f : 0.0f));
    }
  }
  NamedTensors named;
  for (const auto& [name, values] : flat) named.emplace_back(name, from_values(context, values, shapes.at(name)));
  return named;
}

struct GoldenEncoder {
  Context context;
  ModelSpecPtr spec;
  std::string head;
  std::int64_t padding = 0;
  std::unique_ptr<EncoderModel> model;
  const Json* expected = nullptr;

  GoldenEncoder(const Context& given, const std::string& family, std::string head_name)
      : context(given), head(std::move(head_name)), expected(&golden_encoders().at(family).at(head)) {
    const Json& config = expected->at("config");
    spec = read_hub_spec(config.dump(), "config.json");
    padding = config.at("pad_token_id").integer();
    model = spec->make_encoder(golden_head(head));
  }

  std::vector<HubTensor> tensors() const { return hub_tensors(*model, spec->entry().naming); }

  NamedTensors weights() const { return golden_weights(context, *model, tensors()); }

  EncoderInput input() const {
    const Dims shape = {kGoldenTime, kGoldenTime};
    EncoderInput input;
    input.tokens = from_values(context, golden_numbers("tokens", kGoldenWords - 2, padding, 2), shape);
    std::vector<std::int64_t> lengths, types;
    for (std::int64_t r = 1; r <= kGoldenTime; ++r) {
      lengths.push_back(r);
      for (std::int64_t t = 0; t < kGoldenTime; ++t) types.push_back(t >= (r + 1) / 2 && t < r ? 1 : 0);
    }
    input.lengths = from_values(context, lengths, {kGoldenTime});
    if (model->token_types() > 1) input.types = from_values(context, types, shape);
    return input;
  }

  Tensor masked_labels() const {
    std::vector<std::int64_t> labels = golden_numbers("masked_language", kGoldenWords, -100);
    const std::vector<std::int64_t> masked = golden_numbers("masked", 3, 1);
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (masked[i] != 0) labels[i] = -100;
    return from_values(context, labels, {kGoldenTime, kGoldenTime});
  }

  Variable loss(Forward& pass) const {
    const Dims shape = {kGoldenTime, kGoldenTime};
    if (head == "masked_language") return model->masked_loss(input(), masked_labels(), pass).loss;
    const Variable logits = (*model)(input(), pass);
    if (head == "tokens")
      return cross_entropy(logits, from_values(context, golden_numbers("tokens_labels", 5, -100), shape)).loss;
    if (head == "sequence") {
      std::vector<std::int64_t> labels;
      for (std::int64_t r = 1; r <= kGoldenTime; ++r) labels.push_back(r % 3);
      return cross_entropy(logits, from_values(context, labels, {kGoldenTime})).loss;
    }
    // Binary cross-entropy of what is no padding.
    std::vector<double> labels, share;
    for (const std::int64_t label : golden_numbers("replaced", 2, 0)) {
      share.push_back(golden_valid(std::ssize(labels)) ? 2.0 / (kGoldenTime * (kGoldenTime + 1)) : 0);
      labels.push_back(static_cast<double>(label));
    }
    const Variable of_each = sub(softplus(logits), mul(logits, Variable(tensor_of(context, labels, shape))));
    return sum(mul(of_each, Variable(tensor_of(context, share, shape))));
  }
};

// Norm, and product with the numbers of the tensor's name.
struct GoldenSummary {
  double norm = 0, product = 0;
};
inline GoldenSummary golden_summary(const std::string& name, const std::vector<double>& values) {
  const std::vector<double> probe = golden_uniform("probe." + name, std::ssize(values));
  GoldenSummary summary;
  for (std::size_t i = 0; i < values.size(); ++i) {
    summary.norm += values[i] * values[i];
    summary.product += values[i] * (2 * probe[i] - 1);
  }
  summary.norm = std::sqrt(summary.norm);
  return summary;
}

// The larger difference of both numbers, as a share of the norm. Where that is 0, rounding noise counts as none.
inline double golden_error(const GoldenSummary& mine, const Json& expected) {
  const double norm = expected.items()[0].number();
  const double worst = std::max(std::abs(mine.norm - norm), std::abs(mine.product - expected.items()[1].number()));
  return norm > 0 ? worst / norm : worst < 1e-6 ? 0 : INFINITY;
}

inline void for_each_golden(const std::function<void(const std::string& family, const std::string& head)>& f) {
  for (const auto& [family, heads] : golden_encoders().members())
    for (const auto& [head, expected] : heads.members()) f(family, head);
}

// All tensors of transformers' model, by their names there; each must be there once.
inline void expect_golden_tensors(const std::vector<HubTensor>& tensors,
                                  const std::map<std::string, Tensor>& by_parameter, const Json& expected, double limit,
                                  const std::string& left_out = "none") {
  std::size_t compared = 0;
  for (const HubTensor& tensor : tensors) {
    if (!expected.contains(tensor.name)) {
      ADD_FAILURE() << "transformers has no " << tensor.name;
      continue;
    }
    ++compared;
    if (tensor.name.find(left_out) != std::string::npos) continue;
    const Tensor whole = by_parameter.at(tensor.parameter);
    const Tensor part = whole.slice(0, tensor.first_row, tensor.first_row + tensor.shape[0]);
    EXPECT_LT(golden_error(golden_summary(tensor.name, doubles(part)), expected.at(tensor.name)), limit) << tensor.name;
  }
  EXPECT_EQ(compared, expected.members().size());
}

inline void expect_golden_tensors(const GoldenEncoder& golden, const std::map<std::string, Tensor>& by_parameter,
                                  const Json& expected, double limit, const std::string& left_out = "none") {
  expect_golden_tensors(golden.tensors(), by_parameter, expected, limit, left_out);
}

// Of rows of a batch, (batch, time, ...), zeros at padding.
inline double worst_golden_row(const std::string& name, const Tensor& batch, const Json& expected) {
  double worst = 0;
  for (std::int64_t r = 0; r < kGoldenTime; ++r) {
    std::vector<double> row = doubles(batch.select(0, r));
    if (batch.rank() > 1 && batch.dim(1) == kGoldenTime) {
      const auto each = row.size() / static_cast<std::size_t>(kGoldenTime);
      std::fill(row.begin() + static_cast<std::ptrdiff_t>(each) * (r + 1), row.end(), 0.0);
    }
    worst = std::max(worst, golden_error(golden_summary(name, row), expected.items()[static_cast<std::size_t>(r)]));
  }
  return worst;
}

}  // namespace keel::testing
