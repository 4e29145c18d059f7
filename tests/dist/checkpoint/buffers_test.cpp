// Buffers in checkpoints: other ranks and stages load the same bits, and a checkpoint without one is refused by name.

#include <gtest/gtest.h>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/export.h"
#include "keel/nn/batch_norm.h"
#include "tests/dist/checkpoint/checkpoint_support.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace testing;

struct NormedRows : Module {
  Linear linear{6, 4};
  BatchNorm norm{4};
  void visit(Visitor& v) override {
    v("linear", linear);
    v("norm", norm);
  }
};
struct BareRows : Module {
  Linear linear{6, 4};
  void visit(Visitor& v) override { v("linear", linear); }
};

struct ScaledRows : Module {
  explicit ScaledRows(const Dims& shape) : scale(Buffer::constant(shape, 2)) {}
  Linear linear{6, 4};
  Buffer scale;
  void visit(Visitor& v) override {
    v("linear", linear);
    v("scale", scale);
  }
};

std::vector<double> numbers_of_buffers(Module& model) {
  std::vector<double> all;
  for_each_buffer(model, [&](const std::string&, Buffer& buffer) {
    for (const double each : doubles(buffer.value())) all.push_back(each);
  });
  return all;
}

TEST(CheckpointedBuffers, AreLoadedByAnyNumberOfRanksInAnyStage) {
  const TemporaryFolder place;
  std::vector<double> saved;
  run_ranks(3, [&](Communicator& ranks) {
    NormedRows net;
    Sharded engine(net, testing::context(1), ranks, make_adamw(), stage(2));
    Forward pass{.training = true, .random = {}, .sample_ids = {}, .observes = true};
    const Variable x(uniform_tensor(engine.context(), {5, 6}, static_cast<std::uint64_t>(ranks.rank() + 1)));
    engine.backward(mean(square(net.norm(net.linear(x), pass))), {.weight = 5});
    EXPECT_TRUE(engine.step(1e-2).get().taken);
    save_checkpoint(place / "a", engine, ranks, Json::parse("{}"));
    if (ranks.rank() == 0) saved = numbers_of_buffers(net);
  });
  EXPECT_TRUE(contents_of(place / "a").contains("weights norm.running_var (4)"));
  export_weights(place / "a", read_manifest(place / "a"), place / "exported");
  const SafetensorsFile exported(place / "exported");
  std::vector<double> numbers;
  for (const char* name : {"norm.running_mean", "norm.running_var"})
    for (const double each : doubles(exported.tensor(name, testing::context(1)))) numbers.push_back(each);
  EXPECT_EQ(numbers, saved);
  for (const auto& [n, number] : {std::pair{1, 0}, {2, 3}, {4, 1}})
    run_ranks(n, [&, number = number](Communicator& ranks) {
      NormedRows net;
      Sharded engine(net, testing::context(1), ranks, make_adamw(), stage(number));
      EXPECT_NE(numbers_of_buffers(net), saved);
      load_checkpoint(place / "a", read_manifest(place / "a"), engine, ranks);
      EXPECT_EQ(numbers_of_buffers(net), saved);
    });
}

TEST(CheckpointedBuffers, ThatAreMissingOrOfAnotherShapeAreNamed) {
  const TemporaryFolder place;
  run_ranks(1, [&](Communicator& ranks) {
    BareRows bare;
    Sharded engine(bare, testing::context(1), ranks, make_adamw(), stage(0));
    save_checkpoint(place / "a", engine, ranks, Json::parse("{}"));
    const auto refusal = [&](Module& model, const std::string& checkpoint) {
      Sharded other(model, testing::context(1), ranks, make_adamw(), stage(0));
      return error_of([&] { load_checkpoint(checkpoint, read_manifest(checkpoint), other, ranks); });
    };
    ScaledRows three({3}), four({4}), kept({3});
    BareRows without;
    EXPECT_NE(refusal(three, place / "a").find("missing: scale"), std::string::npos);
    Sharded scaled(kept, testing::context(1), ranks, make_adamw(), stage(0));
    save_checkpoint(place / "b", scaled, ranks, Json::parse("{}"));
    const std::string shapes = refusal(four, place / "b"), extra = refusal(without, place / "b");
    EXPECT_NE(shapes.find("scale"), std::string::npos) << shapes;
    EXPECT_NE(shapes.find("(4)"), std::string::npos) << shapes;
    EXPECT_NE(extra.find("scale"), std::string::npos) << extra;
    EXPECT_EQ(doubles(four.scale.value()), std::vector<double>(4, 2)) << "nothing was loaded";
  });
}

}  // namespace
}  // namespace keel
