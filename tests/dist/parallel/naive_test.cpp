#include "keel/dist/parallel/naive.h"

#include <gtest/gtest.h>

#include "keel/nn/state.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace testing;

TEST(NaiveDataParallel, FollowsTheEngine) {
  for (const int n : {1, 2, 3, 4})
    run_ranks(n, [](Communicator& ranks) {
      const Context context = testing::context(1);
      UnitNet plain, net;
      NaiveDataParallel naive(plain, context, ranks);
      Sharded engine(net, context, ranks, make_sgd(), stage(3));
      for (int step = 0; step < 5; ++step) {
        const Tensor x = rows(context, step, ranks, 0, 1, 100, DType::f32);
        const Tensor y = rows(context, step, ranks, 0, 1, 900, DType::f32);
        naive.step(mse_loss(plain(x), Variable(y)), 0.1);
        engine.backward(mse_loss(net(x), Variable(y)), {.weight = x.dim(0)});
        engine.step(0.1);
      }
      std::vector<double> values;
      for (const auto& [name, tensor] : state_dict(plain))
        for (const double value : doubles(tensor)) values.push_back(value);
      EXPECT_LT(relative_error(values, whole_values(engine)), 1e-6) << ranks.size() << " ranks";
    });
}

}  // namespace
}  // namespace keel
