#pragma once
// The decoders of tests/golden/decoders.json, with the weights that the file's generator makes from names.

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "keel/models/catalog.h"
#include "keel/models/hub_tensors.h"
#include "keel/nn/state.h"
#include "keel/runtime/file.h"
#include "keel/runtime/random.h"
#include "tests/support.h"

namespace keel::testing {

inline constexpr std::uint64_t kDecoderSeed = 12;
inline constexpr std::int64_t kDecoderVocabulary = 97;

inline const Json& golden_decoders() {
  static const Json file = Json::parse(read_text_file(KEEL_SOURCE_DIR "/tests/golden/decoders.json"));
  return file;
}

inline std::vector<double> numbers_of(const Json& list) {
  std::vector<double> values;
  for (const Json& value : list.items()) values.push_back(value.number());
  return values;
}

inline std::vector<float> golden_weight(const std::string& name, std::int64_t rank, std::int64_t count) {
  const bool is_bias = name.ends_with(".bias");
  const float scale = is_bias ? 0.1F : 0.2F, offset = rank == 1 && !is_bias ? 1.0F : 0.0F;
  std::vector<float> values(static_cast<std::size_t>(count));
  fill_uniform(values, kDecoderSeed, name);
  for (float& value : values) value = (2 * value - 1) * scale + offset;
  return values;
}

// Every parameter whole: those of packed layers are made of their parts.
inline NamedTensors golden_weights(const Context& context, Module& model, const HubNaming& naming) {
  NamedTensors weights;
  std::vector<float> values;
  Dims shape;
  std::string last;
  const auto finish = [&] {
    if (!last.empty()) weights.emplace_back(last, from_values(context, values, shape));
    values.clear();
  };
  for (const HubTensor& tensor : hub_tensors(model, naming)) {
    if (tensor.parameter != last) {
      finish();
      shape = tensor.shape;
      shape[0] = 0;
    }
    last = tensor.parameter;
    shape[0] += tensor.shape[0];
    const std::vector<float> part = golden_weight(tensor.name, std::ssize(tensor.shape), product(tensor.shape));
    values.insert(values.end(), part.begin(), part.end());
  }
  finish();
  return weights;
}

using NamedNumbers = std::map<std::string, std::vector<double>>;

struct GoldenDecoder {
  Context context;
  std::string name;
  ModelSpecPtr spec;
  std::unique_ptr<CausalModel> model;

  explicit GoldenDecoder(const Json& stored, Context where = testing::context(1))
      : context(std::move(where)),
        name(stored.at("name").string()),
        spec(read_hub_spec(stored.at("config").dump(), name)),
        model(spec->make_decoder()) {}
  NamedTensors weights() { return golden_weights(context, *model, spec->entry().naming); }
  std::vector<FlatBuffer> materialize() {
    std::vector<FlatBuffer> buffers = keel::materialize(*model, context);
    load_state(*model, buffers, weights());
    return buffers;
  }
  // The file's tensors, by name, of the parameters' elements.
  NamedNumbers by_hub_name(const NamedNumbers& parameters) const {
    NamedNumbers tensors;
    for (const HubTensor& tensor : hub_tensors(*model, spec->entry().naming)) {
      const std::vector<double>& all = parameters.at(tensor.parameter);
      const std::int64_t count = product(tensor.shape), first = tensor.first_row * (count / tensor.shape[0]);
      tensors[tensor.name] = {all.begin() + first, all.begin() + first + count};
    }
    return tensors;
  }
};

// Rows of several lengths, padded at their ends, whose targets are -100 there.
struct GoldenBatch {
  std::vector<std::int64_t> lengths;
  Tensor tokens, targets;

  explicit GoldenBatch(const Context& context) {
    for (const Json& length : golden_decoders().at("lengths").items()) lengths.push_back(length.integer());
    const std::int64_t time = *std::ranges::max_element(lengths);
    const Dims shape = {std::ssize(lengths), time};
    const auto drawn = [&](std::string_view name) {
      std::vector<std::int64_t> ids;
      for (std::int64_t i = 0; i < product(shape); ++i)
        ids.push_back(stream_word(key_of(kDecoderSeed, name), static_cast<std::uint64_t>(i)) % kDecoderVocabulary);
      return ids;
    };
    std::vector<std::int64_t> wanted = drawn("targets");
    for (std::size_t row = 0; row < lengths.size(); ++row)
      for (std::int64_t t = lengths[row]; t < time; ++t) wanted[row * static_cast<std::size_t>(time) + t] = -100;
    wanted[static_cast<std::size_t>(time) + 3] = -100;
    tokens = from_values(context, drawn("tokens"), shape);
    targets = from_values(context, wanted, shape);
  }
  // What stands at tokens, of (batch, time, ...), row after row.
  std::vector<double> without_padding(const Tensor& all) const {
    std::vector<double> values;
    for (std::size_t row = 0; row < lengths.size(); ++row)
      for (const double value : doubles(all.select(0, static_cast<std::int64_t>(row)).slice(0, 0, lengths[row])))
        values.push_back(value);
    return values;
  }
};

// How far an array is from its stored sample, its norm and some elements: the larger of the norms' relative difference
// and the elements' distance, relative to as many elements of the usual size.
inline double sample_error(const std::string& name, const std::vector<double>& values, const Json& stored) {
  const std::vector<double> expected = numbers_of(stored);
  double square = 0;
  for (const double value : values) square += value * value;
  const double norm = std::sqrt(square);
  if (std::isnan(norm)) return INFINITY;
  if (expected[0] == 0) return norm;
  double distance = 0;
  for (std::size_t i = 1; i < expected.size(); ++i) {
    const std::uint32_t word = stream_word(key_of(kDecoderSeed, "sample." + name), i - 1);
    const double difference = values[word % values.size()] - expected[i];
    distance += difference * difference;
  }
  const double usual = expected[0] * std::sqrt(static_cast<double>(expected.size() - 1) / std::ssize(values));
  return std::max(std::abs(norm - expected[0]) / expected[0], std::sqrt(distance) / usual);
}

}  // namespace keel::testing
