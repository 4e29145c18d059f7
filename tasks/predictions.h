#pragma once
// What a model says of each example, on its way to a file.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "keel/runtime/json.h"

namespace keel {

// The predictions of one batch. They are written in the order of examples at any number of ranks: batches are shared
// out in rounds, and the first rank writes a round when it is there. Those of a rank without rows are dropped.
class Predictions {
 public:
  // Of these examples, batch.examples().
  explicit Predictions(const std::vector<std::int64_t>& examples);

  // An object of JSON for the example. One twice, one that is not in the batch, a value that is no object, and a member
  // `example` are an Error.
  void add(std::int64_t example, Json prediction);
  // A line for each example, in their order: {"example":3,...}. One that was left out has its number alone. A number
  // that is not finite is null, and what is not UTF-8 in a text becomes U+FFFD.
  std::string lines() const;

 private:
  std::map<std::int64_t, Json> rows_;  // null: not there yet
};

}  // namespace keel
