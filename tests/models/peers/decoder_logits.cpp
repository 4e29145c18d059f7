// Logits of decoders with random weights, which peers/transformers_agrees compares with transformers.
//
// usage: decoder_logits <IN >OUT
// IN: a line {"name":...,"config":{...},"tokens":[[...],...]} each. OUT: likewise {"logits":[...],"config":{...}}: the
// logits, row after row, with weights as those of tests/golden/decoders.json; and config.json as keel writes it.

#include <iostream>
#include <string>

#include "tests/models/golden_decoders.h"

namespace keel {
namespace {

Json answer(const Json& asked) {
  testing::GoldenDecoder decoder(asked);
  const std::vector<FlatBuffer> buffers = decoder.materialize();
  std::vector<std::int64_t> ids;
  const Json::Array& rows = asked.at("tokens").items();
  for (const Json& row : rows)
    for (const Json& id : row.items()) ids.push_back(id.integer());
  const std::int64_t batch = std::ssize(rows), time = std::ssize(ids) / batch;
  Forward pass;
  const Variable logits = (*decoder.model)(from_values(decoder.context, ids, {batch, time}), pass);
  return {{"logits", testing::doubles(logits.value())}, {"config", decoder.spec->hub_config()}};
}

int run() {
  try {
    for (std::string line; std::getline(std::cin, line);) std::cout << answer(Json::parse(line)).dump() << '\n';
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace keel

int main() { return keel::run(); }
