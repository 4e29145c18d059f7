// When two engines' graphs meet: whole weights are gathered as often as they are needed, and released again.

#include <gtest/gtest.h>

#include <functional>

#include "keel/autograd/backward.h"
#include "keel/autograd/checkpoint.h"
#include "keel/dist/comm/decorators.h"
#include "tests/dist/parallel/gan_support.h"

namespace keel {
namespace {

using namespace keel::testing;

bool is_whole(const ShardUnit& unit) { return unit.layout().values.storage()->resident(); }

int whole_units(const Sharded& engine) {
  int count = 0;
  for (const auto& unit : engine.units()) count += is_whole(*unit) ? 1 : 0;
  return count;
}

// Stage 3: the weights that the generator's backward pass went through are released before it comes to the generator.
TEST(EngineWeights, WeightsOfTheOtherEngineAreReleasedInThePassAndAfterIt) {
  for (const bool recomputes : {false, true})
    run_ranks(3, [&](Communicator& comm) {
      Gan gan(comm, 0, 3);
      int whole = -1;
      gan.make_g.last.weight.variable().leaf()->when_ready(
          &whole, [&](BackwardPass&) { whole = whole_units(gan.discriminator); });
      const std::function<Variable(const Variable&)> score = [&](const Variable& x) { return gan.score(x); };
      const Variable fake = gan.make_g(noise(gan.context, comm, 0));
      gan.generator.backward(mean(square(recomputes ? checkpoint(score, fake) : score(fake))));
      EXPECT_EQ(whole, 0) << recomputes;
      EXPECT_EQ(whole_units(gan.discriminator), 0) << recomputes;
      gan.make_g.last.weight.variable().leaf()->forget_hooks(&whole);
    });
}

// A pass in which weights are constants gathers them as often as the pass that trains them.
TEST(EngineWeights, APassThroughTheOtherModelGathersItsUnitsAsOftenAsItsOwn) {
  run_ranks(2, [&](Communicator& direct) {
    std::int64_t gathers = 0;
    WatchedCommunicator comm(direct, [&](std::int64_t, const Collective& collective) {
      gathers += collective.kind == CollectiveKind::all_gather ? 1 : 0;
    });
    Gan gan(comm, 0, 3);
    const auto counted = [&](Sharded& engine, const Variable& loss) {
      const std::int64_t before = gathers;
      engine.backward(loss, {.last = false});
      return gathers - before;
    };
    const auto fake = [&] { return gan.make_g(noise(gan.context, comm, 0)); };
    counted(gan.discriminator, mean(square(gan.score(fake().detach()))));  // after which the order of units is known
    const std::int64_t own = counted(gan.discriminator, mean(square(gan.score(fake().detach()))));
    EXPECT_EQ(counted(gan.generator, mean(square(gan.score(fake())))), own);
  });
}

// A pass through one unit alone: what the forward pass has left, and what was gathered ahead, is released at its end.
TEST(EngineWeights, APassThroughAPartOfTheOtherModelLeavesNothingBehind) {
  run_ranks(2, [&](Communicator& comm) {
    Gan gan(comm, 0, 3);
    const Variable fake = gan.make_g(noise(gan.context, comm, 0));
    gan.score(Variable(fake.value()));
    gan.generator.backward(mean(gan.make_d.units[1](tanh(linear(fake, gan.make_d.first.weight.variable(), {})))));
    EXPECT_EQ(whole_units(gan.discriminator), 0);
  });
}

// Nothing of the other model is trained: no parameter of it tells that a pass has come by.
TEST(EngineWeights, FrozenWeightsOfTheOtherEngineAreReleasedAfterThePass) {
  run_ranks(3, [&](Communicator& comm) {
    const Context context = testing::context(1);
    PointNet student(3, 2);
    UnitNet teacher(kWidth, 3);
    for_each_parameter(teacher, [](const std::string&, Parameter& parameter) { parameter.set_trainable(false); });
    ShardedOptions options = stage(3);
    options.sharding.keep_last_unit = false;
    Sharded trained(student, context, comm, make_adamw()), fixed(teacher, context, comm, make_adamw(), options);
    const Variable y = student(noise(context, comm, 0));
    Variable wide = matmul(y, Variable(uniform_tensor(context, {2, kWidth}, 3)));
    for (const UnitLayer& layer : teacher.layers) wide = layer(wide);
    EXPECT_EQ(whole_units(fixed), 0);
    trained.backward(mean(square(wide)));
    EXPECT_EQ(whole_units(fixed), 0);
    EXPECT_GT(trained.step(1e-2).get().grad_norm, 0);
  });
}

// A table and a layer, units that tell nobody when a forward pass of theirs begins.
struct SilentNet : Module {
  struct Table : Embedding {
    using Embedding::Embedding;
    bool is_unit() const override { return true; }
  };
  struct Head : Linear {
    using Linear::Linear;
    bool is_unit() const override { return true; }
  };
  Table table{7, 6};
  LayerNorm norm{6};
  Head head{6, 3};
  Variable operator()(const Tensor& ids) const {
    Forward pass;
    return head(norm(table(ids), pass), pass);
  }
  void visit(Visitor& v) override {
    v("table", table);
    v("norm", norm);
    v("head", head);
  }
};

// Weights that are gathered when somebody reads them are gathered by ranks that have nothing to compute, too.
TEST(EngineWeights, AreGatheredByARankWithoutRowsWhenItsPassComesToThem) {
  const int n = 3;
  for (const int empty : {0, 2})
    for (const bool trains : {false, true})
      run_ranks(n, [&](Communicator& direct) {
        std::vector<std::int64_t> gathered;
        WatchedCommunicator comm(direct, [&](std::int64_t, const Collective& collective) {
          if (collective.kind == CollectiveKind::all_gather) gathered.push_back(collective.count());
        });
        const Context context = testing::context(1);
        SilentNet net;
        Sharded engine(net, context, comm, make_sgd(), stage(3));
        gathered.clear();
        const std::int64_t rows = comm.rank() == empty ? 0 : 4;
        const Tensor ids = from_values(context, std::vector<std::int64_t>(static_cast<std::size_t>(rows), 5), {rows});
        if (trains) {
          engine.backward(mean(square(net(ids))), {.weight = static_cast<double>(rows)});
          EXPECT_TRUE(engine.step(0.1).get().taken);
        } else {
          const NoGrad no_grad;
          const Variable answer = net(ids);
          EXPECT_EQ(answer.shape(), (Dims{rows, 3}));
          EXPECT_EQ(whole_units(engine), 3);
          ASSERT_EQ(gathered.size(), 3U);
          engine.release_weights();
        }
      });
}

}  // namespace
}  // namespace keel
