#pragma once
// What tests of checkpoints share: an engine that has trained, and all that it owns as numbers.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "keel/dist/checkpoint/async_save.h"
#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/dist/checkpoint/load.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/runtime/file.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/temporary_folder.h"

namespace keel::testing {

inline ShardedOptions bf16_stage(int number) {
  ShardedOptions options = stage(number);
  options.policy = PrecisionPolicy::of(DType::bf16);
  return options;
}

// A model and its engine on one rank.
struct Trained {
  explicit Trained(Communicator& ranks, const ShardedOptions& options = stage(0),
                   std::unique_ptr<const Optimizer> optimizer = make_adamw({}))
      : ranks(ranks), engine(net, testing::context(1), ranks, std::move(optimizer), options) {}
  void train(int from, int to) {
    const DType dtype = engine.options().policy.parameter;
    for (int step = from; step < to; ++step) {
      const Tensor x = rows(engine.context(), step, ranks, 0, 1, 100, dtype);
      engine.backward(mean(square(net(x))), {.weight = x.dim(0)});
      EXPECT_TRUE(engine.step(1e-2).get().taken);
    }
  }

  Communicator& ranks;
  UnitNet net;
  Sharded engine;
};

// Everything that a checkpoint holds, whole, by section and name.
using Contents = std::map<std::string, std::vector<double>>;
inline Contents contents_of(const std::string& folder) {
  const Manifest manifest = read_manifest(folder);
  const Context host = testing::context(1);
  Contents contents;
  for (const std::string& section : manifest.sections())
    for (const TensorPart& part : ExtentReader(folder, manifest).read(section, host))
      contents[concat(section, ' ', part.name, ' ', part.shape)] = doubles(part.values);
  return contents;
}

// The files of a folder, by name.
inline std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename().string()] = read_text_file(entry.path().string());
  return files;
}

inline std::vector<std::string> names_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace keel::testing
