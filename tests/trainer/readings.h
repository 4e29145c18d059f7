#pragma once
// A table of weather, and a run of the task `supervised` that learns from it.

#include <cstdint>
#include <string>
#include <vector>

#include "keel/runtime/file.h"
#include "keel/runtime/random.h"
#include "keel/trainer/config.h"
#include "tests/temporary_folder.h"

namespace keel::testing {

struct WeatherReading {
  double a, b, far;
  std::string sky;
};

// far is of another unit: 1,000 more than 100 times what a and b say.
inline WeatherReading reading(int i) {
  std::vector<float> place(2);
  fill_uniform(place, 3, "readings", static_cast<std::uint64_t>(2 * i));
  const double a = 2 * place[0] - 1, b = 2 * place[1] - 1;
  return {a, b, 1000 + 100 * (a - 2 * b), a + b < -0.3 ? "clear" : a + b > 0.3 ? "rain" : "clouds"};
}

inline void write_readings(const TemporaryFolder& place, int count = 120) {
  std::string table = "a,b,far,sky\n", objects;
  for (int i = 0; i < count; ++i) {
    const WeatherReading r = reading(i);
    table += concat(r.a, ',', r.b, ',', r.far, ',', r.sky, '\n');
    objects += concat("{\"place\": [", r.a, ", ", r.b, "], \"far\": ", r.far, ", \"sky\": \"", r.sky, "\"}\n");
  }
  write_text_file(place / "r.csv", table);
  write_text_file(place / "r.jsonl", objects);
}

inline Config readings_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {concat("run=", place / run), concat("data.path=", place / "r.csv")});
  return parse_config(R"(
steps: 6
task: {type: supervised, regularizers: [{head: far, type: square, weight: 0.001}]}
model:
  trunk: dense 16 tanh; dropout 0.1
  heads: [{name: sky, type: classification}, {name: far, scale: standard, weight: 0.5, loss: huber}]
data: {validation: 0.2}
batch: {global: 10, micro: 2}
optimizer: {lr: 1e-2}
eval: {every: 3}
checkpoint: {every: 3}
log: {every: 1}
threads: 1
)",
                      "readings.yaml", more);
}

}  // namespace keel::testing
