#include "keel/tasks/predictions.h"

#include <utility>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::string_view kExample = "example";

}  // namespace

Predictions::Predictions(const std::vector<std::int64_t>& examples) {
  for (const std::int64_t example : examples) rows_.emplace(example, nullptr);
}

void Predictions::add(std::int64_t example, Json prediction) {
  KEEL_CHECK(prediction.is_object(), "a prediction is an object of JSON, not ", prediction.dump(-1, BadUtf8::replace));
  KEEL_CHECK(!prediction.contains(kExample), "a prediction has its example's number as `example` already");
  const auto row = rows_.find(example);
  KEEL_CHECK(row != rows_.end(), "example ", example, " is not in the batch that is predicted");
  KEEL_CHECK(row->second.is_null(), "example ", example, " was predicted twice");
  row->second = std::move(prediction);
}

std::string Predictions::lines() const {
  std::string text;
  for (const auto& [example, prediction] : rows_) {
    Json line = {{std::string(kExample), example}};
    if (prediction.is_object())
      for (const auto& [name, value] : prediction.members()) line[name] = value;
    text += line.dump(-1, BadUtf8::replace) + '\n';
  }
  return text;
}

}  // namespace keel
