// Products of low rank in exports: added in fp32 to the rows of their layer, and rounded once.

#include <gtest/gtest.h>

#include <map>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/dist/checkpoint/hub_export.h"
#include "keel/dist/checkpoint/save.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/nn/layers.h"
#include "tests/error_of.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace testing;

struct AdaptedPair : Module {
  Linear packed{5, 6, false}, turned{4, 3, false};
  AdaptedPair() {
    packed.parts = {{"q", 2}, {"v", 4}};
    packed.add_adapter("v", 2, 0.75, 0);
    turned.add_adapter("", 3, -1.5, 0);
    for (LowRankAdapter* adapter : {&packed.adapters[0], &turned.adapters[0]})
      adapter->b = Parameter(adapter->b.shape(), Initializer::normal(0.5));
  }
  void visit(Visitor& v) override {
    v("packed", packed);
    v("turned", turned);
  }
};

std::vector<HubTensor> tensors_of_pair() {
  std::vector<HubTensor> all = {{"q", "packed.weight", {2, 5}, 0, false},
                                {"v", "packed.weight", {4, 5}, 2, false},
                                {"t", "turned.weight", {4, 3}, 0, true}};
  all[1].low_rank = HubLowRank{"packed.v.lora_A.weight", "packed.v.lora_B.weight", 0.75};
  all[2].low_rank = HubLowRank{"turned.lora_A.weight", "turned.lora_B.weight", -1.5};
  return all;
}

TEST(LowRankExport, AddsProductsInFp32AndRoundsOnce) {
  const TemporaryFolder place;
  std::map<std::string, std::vector<double>> numbers;
  run_ranks(2, [&](Communicator& ranks) {
    AdaptedPair model;
    ShardedOptions options;
    options.sharding.stage = 3;
    Sharded engine(model, context(1), ranks, make_sgd(), options);
    save_checkpoint(place / "checkpoint", engine, ranks, Json::object());
  });
  const Manifest manifest = read_manifest(place / "checkpoint");
  for (const TensorPart& part : ExtentReader(place / "checkpoint", manifest).read("weights", context(1)))
    numbers[part.name] = doubles(part.values);
  const auto product = [&](const std::string& layer, std::size_t row, std::size_t column, std::size_t rank,
                           std::size_t in) {
    double sum = 0;
    for (std::size_t r = 0; r < rank; ++r)
      sum +=
          numbers.at(layer + ".lora_B.weight")[row * rank + r] * numbers.at(layer + ".lora_A.weight")[r * in + column];
    return sum;
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::string out = place / concat("out-", dtype);
    export_hub(place / "checkpoint", manifest, out, {.tensors = tensors_of_pair(), .dtype = dtype});
    const SafetensorsFile file(out + "/model.safetensors");
    const double most = dtype == DType::f32 ? 1e-6 : 4e-3;
    const std::vector<double> q = doubles(file.tensor("q", context(1))), v = doubles(file.tensor("v", context(1))),
                              t = doubles(file.tensor("t", context(1)));
    for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(q[i], numbers.at("packed.weight")[i], most);
    for (std::size_t i = 0; i < 20; ++i) {
      const double whole = numbers.at("packed.weight")[10 + i] + 0.75 * product("packed.v", i / 5, i % 5, 2, 5);
      EXPECT_NEAR(v[i], whole, most * (1 + std::abs(whole)));
      EXPECT_GT(std::abs(whole - numbers.at("packed.weight")[10 + i]), 1e-5);
    }
    for (std::size_t i = 0; i < 12; ++i) {
      const std::size_t row = i % 3, column = i / 3;  // of the parameter
      const double whole = numbers.at("turned.weight")[row * 4 + column] - 1.5 * product("turned", row, column, 3, 4);
      EXPECT_NEAR(t[i], whole, most * (1 + std::abs(whole)));
    }
  }
  std::vector<HubTensor> wrong = tensors_of_pair();
  wrong[1].low_rank->b = "turned.lora_B.weight";
  EXPECT_NE(error_of([&] {
              export_hub(place / "checkpoint", manifest, place / "no", {.tensors = wrong});
            }).find("cannot be added to v"),
            std::string::npos);
  wrong[1].low_rank->b = "nothing";
  EXPECT_NE(error_of([&] {
              export_hub(place / "checkpoint", manifest, place / "no", {.tensors = wrong});
            }).find("has no weights of nothing"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
