#include "tests/dist/parallel/compression_laws.h"

namespace keel::testing {

TEST_P(CompressionLaws, GivesTheSameBitsInEveryStageBucketAndSchedule) {
  for (const Compression& compression : all_kinds())
    for (const int n : GetParam().ranks) {
      const Trained reference =
          train(GetParam(), {.ranks = n, .steps = GetParam().steps, .options = options_of(0, compression)});
      EXPECT_NE(reference.weights,
                train(GetParam(), {.ranks = n, .steps = GetParam().steps, .options = stage(0)}).weights);
      for (const int number : {0, 1, 2, 3}) {
        Training other{.ranks = n, .steps = GetParam().steps, .options = options_of(number, compression), .delays = 7};
        other.options.sharding.overlap = number % 2 == 0;
        other.options.sharding.bucket = other.options.sharding.first_bucket = number == 0 ? 1 : 1 << 20;
        EXPECT_EQ(train(GetParam(), other).weights, reference.weights)
            << text_of(compression) << ", stage " << number << ", " << n << " ranks";
      }
    }
}

TEST_P(CompressionLaws, OfAllNumbersIsNoneToTheBit) {
  for (const int number : {0, 2})
    for (const int n : GetParam().ranks) {
      const Trained plain = train(GetParam(), {.ranks = n, .steps = GetParam().steps, .options = stage(number)});
      const Trained whole =
          train(GetParam(), {.ranks = n, .steps = GetParam().steps, .options = options_of(number, top_k_of(1))});
      EXPECT_EQ(whole.weights, plain.weights) << "stage " << number << ", " << n << " ranks";
      EXPECT_EQ(whole.losses, plain.losses);
    }
}

TEST_P(CompressionLaws, OfOneRankAloneIsNone) {
  for (const Compression& compression : all_kinds())
    EXPECT_EQ(train(GetParam(), {.ranks = 1, .steps = 2, .options = options_of(2, compression)}).weights,
              train(GetParam(), {.ranks = 1, .steps = 2, .options = stage(2)}).weights);
}

TEST_P(CompressionLaws, ASkippedStepChangesNothing) {
  for (const Compression& compression : all_kinds())
    for (const int number : {0, 3}) {
      const int steps = GetParam().steps;
      const Training good{
          .ranks = GetParam().ranks.back(), .steps = steps - 1, .options = options_of(number, compression)};
      const std::vector<double> expected = train(GetParam(), good).weights;
      for (const int bad_step : {0, steps / 2, steps - 1}) {
        Training bad = good;
        bad.steps = steps;
        bad.bad_step = bad_step;
        EXPECT_EQ(train(GetParam(), bad).weights, expected) << text_of(compression) << ", step " << bad_step;
      }
    }
}

// The residual is that of the true gradient, so a loss scale that changes every two steps makes no difference.
TEST_P(CompressionLaws, OfAScaledLossDeliversTheSameBits) {
  for (const Compression& compression : all_kinds()) {
    const Training plain{
        .ranks = GetParam().ranks.back(), .steps = GetParam().steps + 2, .options = options_of(2, compression)};
    Training scaled = plain;
    scaled.options.loss_scale = 1024;
    scaled.options.scaling = {.growth = 2, .backoff = 0.5, .interval = 2};
    EXPECT_EQ(train(GetParam(), scaled).weights, train(GetParam(), plain).weights) << text_of(compression);
  }
}

// What all steps delivered and the residuals of all ranks add up to all gradients.
// Acceptance check 11.
TEST_P(CompressionLaws, LosesNothing) {
  const int steps = GetParam().steps + 1;
  for (const int n : GetParam().ranks)
    for (const int number : {0, 2}) {
      // Rate 0 keeps the weights, so that gradients are those of the engine without compression.
      const auto sums = [&](const ShardedOptions& options) {
        std::vector<double> delivered;
        std::mutex mutex;
        GetParam().run(n, [&](Communicator& ranks, const Context& context) {
          UnitNet net = GetParam().net();
          Sharded engine(net, context, ranks, make_sgd(), options);
          std::vector<double> mine;
          const auto add = [&](std::size_t at, const Tensor& numbers) {
            const std::vector<double> values = doubles(numbers);
            if (mine.size() < at + values.size()) mine.resize(at + values.size());
            for (std::size_t i = 0; i < values.size(); ++i) mine[at + i] += values[i];
          };
          for (int step = 0; step < steps; ++step) {
            engine.backward(loss_of(net, context, step, ranks));
            std::size_t at = 0;
            for (const auto& unit : engine.units()) {
              const auto begin = static_cast<std::size_t>(unit->shard().begin);
              add(at + begin, unit->counted(unit->gradient().own()));
              at += static_cast<std::size_t>(unit->layout().padded);
            }
            engine.step(0);
          }
          std::size_t at = 0;
          for (const auto& unit : engine.units()) {
            if (unit->reducer()->feedback() != nullptr) add(at, unit->reducer()->feedback()->residual());
            at += static_cast<std::size_t>(unit->layout().padded);
          }
          const std::lock_guard lock(mutex);
          delivered.resize(at);
          for (std::size_t i = 0; i < mine.size(); ++i) delivered[i] += mine[i];
        });
        return delivered;
      };
      const std::vector<double> expected = sums(stage(number));
      for (const Compression& compression :
           {kInt8, kInt4, top_k_of(0.01), kPowerSgd,
            Compression{.type = Compression::Type::power_sgd, .rank = GetParam().width}})
        EXPECT_LT(relative_error(sums(options_of(number, compression)), expected), 2e-6)
            << text_of(compression) << ", stage " << number << ", " << n << " ranks";
    }
}

// The gradient of a few examples has at most as many independent rows as there are examples, so factors with as many
// columns deliver all of it.
TEST_P(CompressionLaws, DeliversAGradientOfLowRankWhole) {
  GetParam().run(2, [&](Communicator& ranks, const Context& context) {
    const Compression wide{.type = Compression::Type::power_sgd, .rank = 8};
    UnitNet compressed_net = GetParam().net(), plain_net = GetParam().net();
    Sharded compressed(compressed_net, context, ranks, make_sgd(), options_of(0, wide));
    Sharded plain(plain_net, context, ranks, make_sgd(), stage(0));
    const Tensor x = uniform_tensor(context, {4, GetParam().width}, 5 + static_cast<std::uint64_t>(ranks.rank()));
    compressed.backward(mean(compressed_net(x)));
    plain.backward(mean(plain_net(x)));
    for (std::size_t i = 0; i < plain.units().size(); ++i)
      EXPECT_LT(
          relative_error(doubles(compressed.units()[i]->gradient().own()), doubles(plain.units()[i]->gradient().own())),
          1e-5);
  });
}

// Two or four ranks take over the residuals of three: the sum of the residuals stays the same.
TEST_P(CompressionLaws, KeepsWhatIsUndeliveredOnOtherNumbersOfRanks) {
  struct Saved {
    std::string name;
    Dims shape;
    std::vector<double> values;
  };
  const auto total = [](const std::vector<std::vector<Saved>>& ranks) {
    std::vector<double> sum;
    for (const std::vector<Saved>& saved : ranks) {
      std::size_t at = 0;
      for (const Saved& each : saved) {
        if (!each.name.starts_with("residual.")) continue;
        sum.resize(std::max(sum.size(), at + each.values.size()));
        for (const double value : each.values) sum[at++] += value;
      }
    }
    return sum;
  };
  const auto state_of = [](const Sharded& engine) {
    std::vector<Saved> saved;
    for (const TensorPart& part : engine.compression_state())
      saved.push_back({part.name, part.shape, doubles(part.values)});
    return saved;
  };
  for (const Compression& compression : all_kinds()) {
    std::vector<std::vector<Saved>> left(3);
    GetParam().run(3, [&](Communicator& ranks, const Context& context) {
      UnitNet net = GetParam().net();
      Sharded engine(net, context, ranks, make_sgd(), options_of(1, compression));
      for (int step = 0; step < 3; ++step) {
        engine.backward(loss_of(net, context, step, ranks));
        engine.step(0.5);
      }
      left[static_cast<std::size_t>(ranks.rank())] = state_of(engine);
    });
    ASSERT_GT(relative_error(total(left), std::vector<double>(total(left).size())), 0) << "something is left";
    for (const int n : GetParam().ranks) {
      std::vector<std::vector<Saved>> taken(static_cast<std::size_t>(n));
      GetParam().run(n, [&](Communicator& ranks, const Context& context) {
        UnitNet net = GetParam().net();
        Sharded engine(net, context, ranks, make_sgd(), options_of(1, compression));
        std::vector<TensorParts> states;
        for (auto r = static_cast<std::size_t>(ranks.rank()); r < left.size(); r += static_cast<std::size_t>(n)) {
          states.emplace_back();
          for (const Saved& each : left[r])
            states.back().push_back(
                {each.name, each.shape, 0,
                 tensor_of(context.host(), each.values, {static_cast<std::int64_t>(each.values.size())})});
        }
        engine.load_compression_state(states);
        taken[static_cast<std::size_t>(ranks.rank())] = state_of(engine);
      });
      EXPECT_LT(relative_error(total(taken), total(left)), 1e-6) << text_of(compression) << ", " << n << " ranks";
      for (std::size_t r = 0; r < left.size() && n == 3; ++r)
        for (std::size_t i = 0; i < left[r].size(); ++i) EXPECT_EQ(taken[r][i].values, left[r][i].values);
    }
  }
}

// What a rank keeps beside weights is all that the steps to come depend on.
TEST_P(CompressionLaws, GoesOnFromItsStateAsIfItHadNeverStopped) {
  for (const Compression& compression : all_kinds())
    GetParam().run(2, [&](Communicator& ranks, const Context& context) {
      UnitNet net = GetParam().net(), copy = GetParam().net();
      Sharded engine(net, context, ranks, make_sgd(), options_of(1, compression));
      Sharded other(copy, context, ranks, make_sgd(), options_of(1, compression));
      expect_to_go_on(engine, net, other, copy, context, ranks, text_of(compression));
    });
}

}  // namespace keel::testing
