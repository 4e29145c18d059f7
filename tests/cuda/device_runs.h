#pragma once
// Runs of the trainer on a device, beside the same ones on the processor.

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "keel/trainer/generate.h"
#include "tests/cuda/device.h"
#include "tests/trainer/run_support.h"

namespace keel::testing {

// cuBLASLt's algorithms are timed otherwise, and another run may find another one the fastest, with other bits.
inline void choose_products_untimed() { ::setenv("KEEL_TUNE_MATMUL", "0", 1); }

inline std::string on(Device device) { return "device=" + to_string(device); }

// Four steps of a small run with these settings, in folder `ordinary` of the place, have the processor's losses and the
// bits of steps that are recorded. Returns the losses.
inline std::vector<double> expect_losses_of_the_processor(const TemporaryFolder& place,
                                                          const std::vector<std::string>& settings) {
  choose_products_untimed();
  const auto run = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"steps=4",        "model.layers=1",    "model.block=8", "model.dropout=0",
                                    "batch.global=4", "batch.micro=2",     "eval.every=3",  "eval.batches=2",
                                    "strategy=fp32",  "checkpoint.every=2"};
    all.insert(all.end(), settings.begin(), settings.end());
    all.insert(all.end(), more.begin(), more.end());
    return small_run(place, name, all);
  };
  const Config ordinary = run("ordinary", {on(kTestDevice)}),
               graphed = run("graphed", {on(kTestDevice), "cuda_graph=true"});
  Recorder there, recorded, here;
  train(ordinary, there);
  train(graphed, recorded);
  train(run("here", {"device=cpu"}), here);
  EXPECT_EQ(there.losses.size(), 4U);
  EXPECT_EQ(here.losses.size(), 4U);
  for (std::size_t i = 0; i < std::min(there.losses.size(), here.losses.size()); ++i)
    EXPECT_NEAR(there.losses[i], here.losses[i], 1e-4);
  EXPECT_EQ(recorded.losses, there.losses);
  EXPECT_EQ(weights_of(graphed), weights_of(ordinary));
  return there.losses;
}

// The device and the processor write the same with a run's weights: "line" and twelve characters more.
inline void expect_text_of_the_processor(const std::string& run, double temperature) {
  std::string texts[2];
  for (const bool is_there : {false, true})
    generate({.run = run,
              .prompt = "line",
              .tokens = 12,
              .temperature = temperature,
              .device = is_there ? to_string(kTestDevice) : "cpu"},
             [&](std::string_view piece) { texts[is_there ? 1 : 0] += piece; });
  EXPECT_EQ(texts[1], texts[0]) << "temperature " << temperature;
  EXPECT_EQ(texts[1].size(), 16U) << texts[1];
}

}  // namespace keel::testing
