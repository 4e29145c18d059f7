// Two engines whose graphs meet, as those of a GAN do: on points of a ring, in every stage.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <mutex>
#include <optional>

#include "keel/autograd/backward.h"
#include "keel/autograd/checkpoint.h"
#include "keel/dist/parallel/constant_scope.h"
#include "keel/kernels/elementwise.h"
#include "keel/optim/lbfgs.h"
#include "tests/dist/parallel/gan_support.h"
#include "tests/dist/parallel/rows_support.h"

namespace keel {
namespace {

using namespace keel::testing;

// A rank that asks for the unit of one engine, and one that asks for the same unit of the other, do not take each
// other's for their own.
TEST(Engines, AskForUnitsByNumbersOfTheirOwn) {
  const std::string message = [] {
    std::string told;
    std::mutex mutex;
    run_ranks(2, [&](Communicator& comm) {
      const Context own = testing::context(1);
      PointNet first(3, 2), second(3, 2);
      ShardedOptions options = stage(3);
      const Sharded one(first, own, comm, make_adamw(), options);
      options.first_subject = 1 + static_cast<int>(one.units().size());
      const Sharded other(second, own, comm, make_adamw(), options);
      const Variable x = Variable(uniform_tensor(own, {2, 3}, 1));
      try {
        (comm.rank() == 0 ? first : second)(x);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        told = error.what();
      }
    });
    return told;
  }();
  EXPECT_NE(message.find(" about 1"), std::string::npos) << message;
  EXPECT_NE(message.find(" about 4"), std::string::npos) << message;
}

TEST(Engines, AGanHasTheSameBitsInEveryStage) {
  const auto train = [](int ranks, int of_generator, int of_discriminator) {
    return of_rank_0(ranks, [=](Communicator& comm) {
      Gan gan(comm, of_generator, of_discriminator, 2);
      std::vector<double> outcome;
      for (int step = 0; step < 3; ++step) {
        for (const int micro : {0, 1}) gan.train_discriminator(2 * step + micro, micro == 1);
        outcome.push_back(gan.discriminator.step(1e-2).get().grad_norm);
        for (const int micro : {0, 1}) gan.train_generator(2 * step + micro, micro == 1);
        outcome.push_back(gan.generator.step(1e-2).get().grad_norm);
      }
      append(outcome, whole_values(gan.generator));
      append(outcome, whole_values(gan.discriminator));
      return outcome;
    });
  };
  for (const int ranks : {1, 2, 3, 4}) {
    const std::vector<double> reference = train(ranks, 0, 0);
    for (const auto& [g, d] : {std::pair{1, 1}, {2, 2}, {3, 3}, {0, 3}, {3, 0}})
      EXPECT_TRUE(train(ranks, g, d) == reference) << ranks << " ranks, stages " << g << " and " << d;
  }
}

TEST(Engines, TrainAlikeAndRecordLessWhereTheOtherModelIsConstant) {
  const auto train = [](int ranks, int number, bool constant) {
    return of_rank_0(ranks, [=](Communicator& comm) {
      Gan gan(comm, number, number, 2);
      const std::size_t buckets = gan.context.memory()[Purpose::bucket].current;
      std::vector<double> outcome;
      for (int step = 0; step < 2; ++step) {
        for (const int micro : {0, 1}) {
          std::optional<ConstantScope> scope;
          if (constant) scope.emplace(gan.generator);
          EXPECT_EQ(gan.make_g(noise(gan.context, comm, micro)).requires_grad(), !constant);
          gan.train_discriminator(2 * step + micro, micro == 1);
        }
        outcome.push_back(gan.discriminator.step(1e-2).get().grad_norm);
        for (const int micro : {0, 1}) {
          std::optional<ConstantScope> scope;
          if (constant) scope.emplace(gan.discriminator);
          EXPECT_TRUE(gan.generator_loss(micro).requires_grad());
          gan.train_generator(2 * step + micro, micro == 1);
        }
        outcome.push_back(gan.generator.step(1e-2).get().grad_norm);
        EXPECT_EQ(gan.context.memory()[Purpose::bucket].current, buckets) << "whole weights are given back";
      }
      append(outcome, whole_values(gan.generator));
      append(outcome, whole_values(gan.discriminator));
      return outcome;
    });
  };
  for (const int ranks : {1, 2, 3})
    for (const int number : {0, 2, 3})
      EXPECT_TRUE(train(ranks, number, true) == train(ranks, 0, false)) << ranks << " ranks, stage " << number;
}

// Between the micro-batches of the discriminator's step the generator does whole steps through it, or nothing.
TEST(Engines, AStepIsWhatItIsWithoutTheOtherEngine) {
  const auto train = [](int ranks, int number, bool meet) {
    return of_rank_0(ranks, [=](Communicator& comm) {
      Gan gan(comm, number, number, 2);
      const Variable points = ring(gan.context, comm, 50);
      std::vector<double> outcome;
      for (int step = 0; step < 2; ++step) {
        for (const int micro : {0, 1}) {
          if (meet) {
            for (const int of_generator : {0, 1}) gan.train_generator(step + of_generator, of_generator == 1);
            EXPECT_TRUE(gan.generator.step(1e-2).get().taken);
          }
          gan.discriminator.backward(mean(square(gan.score(ring(gan.context, comm, step + micro)))),
                                     {.weight = points.dim(0), .last = micro == 1});
        }
        const StepResult result = gan.discriminator.step(1e-2).get();
        append(outcome, {result.grad_norm, result.weight});
      }
      append(outcome, whole_values(gan.discriminator));
      return outcome;
    });
  };
  for (const int ranks : {1, 2, 3})
    for (const int number : {0, 1, 2, 3})
      EXPECT_TRUE(train(ranks, number, true) == train(ranks, number, false)) << ranks << " ranks, stage " << number;
}

// The discriminator never had a backward pass of its own. Frozen and without an engine it gives the same gradient.
TEST(Engines, ALossGoesThroughAModelWhoseEngineNeverRan) {
  const auto outcome_of = [](Sharded& generator) {
    const StepResult result = generator.step(1e-2).get();
    std::vector<double> outcome = {result.grad_norm, result.weight};
    append(outcome, whole_values(generator));
    return outcome;
  };
  for (const int ranks : {1, 2, 3, 4})
    for (const int number : {0, 1, 2, 3}) {
      const std::vector<double> meeting = of_rank_0(ranks, [&](Communicator& comm) {
        Gan gan(comm, number, number);
        gan.train_generator(0);
        return outcome_of(gan.generator);
      });
      const std::vector<double> frozen = of_rank_0(ranks, [&](Communicator& comm) {
        const Context context = testing::context(1);
        PointNet g(3, 2), d(2, 1);
        for_each_parameter(d, [](const std::string&, Parameter& parameter) { parameter.set_trainable(false); });
        materialize(d, context);
        Sharded generator(g, context, comm, make_adamw(), stage(number));
        generator.backward(mean(square(shift(d(g(noise(context, comm, 0))), -1))), {.weight = kPoints + comm.rank()});
        return outcome_of(generator);
      });
      EXPECT_TRUE(meeting == frozen) << ranks << " ranks, stage " << number;
    }
}

// The discriminator is looked at without gradients, and computed again in the generator's backward pass.
TEST(Engines, RecomputationAndEvaluationInBetweenChangeNoBit) {
  enum class Way { plain, evaluated, recomputed, recomputed_together };
  const auto train = [](int ranks, int number, Way way) {
    return of_rank_0(ranks, [=](Communicator& comm) {
      Gan gan(comm, number, number);
      std::vector<double> outcome;
      for (int step = 0; step < 2; ++step) {
        gan.train_discriminator(step);
        if (way == Way::evaluated) {
          const NoGrad no_grad;
          EXPECT_TRUE(std::isfinite(gan.generator_loss(step).value().item()));
        }
        outcome.push_back(gan.discriminator.step(1e-2).get().grad_norm);
        const std::function<Variable(const Variable&)> score = [&](const Variable& x) { return gan.score(x); };
        const std::function<Variable(const Variable&)> both = [&](const Variable& z) {
          return gan.score(gan.make_g(z));
        };
        const Variable z = noise(gan.context, comm, step);
        const Variable result = way == Way::recomputed            ? checkpoint(score, gan.make_g(z))
                                : way == Way::recomputed_together ? checkpoint(both, z)
                                                                  : both(z);
        const Variable loss = mean(square(shift(result, -1)));
        if (way == Way::evaluated) {
          const NoGrad no_grad;
          EXPECT_TRUE(std::isfinite(gan.generator_loss(step).value().item()));
        }
        gan.generator.backward(loss, {.weight = z.dim(0)});
        outcome.push_back(gan.generator.step(1e-2).get().grad_norm);
      }
      append(outcome, whole_values(gan.generator));
      append(outcome, whole_values(gan.discriminator));
      return outcome;
    });
  };
  for (const int ranks : {1, 3})
    for (const int number : {0, 3}) {
      const std::vector<double> plain = train(ranks, number, Way::plain);
      for (const Way way : {Way::evaluated, Way::recomputed, Way::recomputed_together})
        EXPECT_TRUE(train(ranks, number, way) == plain)
            << ranks << " ranks, stage " << number << ", way " << static_cast<int>(way);
    }
}

// Rows of tables that another engine's loss looks up are no rows of the step.
TEST(Engines, LookUpsOfAnotherEnginesLossDoNotCount) {
  const auto train = [](int number, bool meet) {
    return of_rank_0(3, [=](Communicator& comm) {
      const Context context = testing::context(1);
      PointNet g(3, kFeatures);
      Tables tables;
      Sharded generator(g, context, comm, make_adamw(), stage(number));
      Sharded owner(tables, context, comm, sparse_adam(), stage(number));
      for (int step = 0; step < 3; ++step) {
        const std::int64_t count = kPoints + comm.rank();
        const Tensor ids = kernels::full(context, {count}, kUnused, DType::i64),
                     tags = ids_of(context, step, {0, count}, tag_of);
        if (meet) {
          generator.backward(mean(mul(g(noise(context, comm, step)), tables(ids, tags))), {.weight = count});
          EXPECT_TRUE(generator.step(1e-2).get().taken);
        }
        train_tables(owner, tables, step, step + 1);
      }
      return whole_values(owner);
    });
  };
  for (const int number : {0, 3}) EXPECT_TRUE(train(number, true) == train(number, false)) << "stage " << number;
}

// fp16 numbers and a loss scale of the generator alone.
TEST(Engines, ALossScaleOfOneEngineIsNotSeenByTheOther) {
  const auto train = [](int number, bool meet) {
    return of_rank_0(2, [=](Communicator& comm) {
      const Context context = testing::context(1);
      PointNet g(3, 2), d(2, 1);
      ShardedOptions half = stage(number);
      half.policy = PrecisionPolicy::of(DType::f16);
      half.scaling = LossScaling::dynamic();
      half.loss_scale = 0x1p40;  // infinite in fp16 at first
      Sharded generator(g, context, comm, make_adamw(), half);
      Sharded discriminator(d, context, comm, make_adamw(), stage(number));
      std::vector<double> outcome;
      int taken = 0;
      for (int step = 0; step < 30; ++step) {
        if (meet) {
          const Variable z(uniform_tensor(context, {kPoints, 3}, 1, DType::f16));
          generator.backward(mean(square(d(cast(g(z), DType::f32)))), {.weight = kPoints});
          taken += generator.step(1e-3).get().taken ? 1 : 0;
        }
        if (step % 10 != 0) continue;
        discriminator.backward(mean(square(d(ring(context, comm, step)))), {.weight = kPoints});
        const StepResult result = discriminator.step(1e-3).get();
        append(outcome, {result.grad_norm, result.loss_scale});
      }
      if (meet) {
        EXPECT_GT(taken, 0);
        EXPECT_LT(taken, 30);
      }
      append(outcome, whole_values(discriminator));
      return outcome;
    });
  };
  for (const int number : {0, 3}) EXPECT_TRUE(train(number, true) == train(number, false)) << "stage " << number;
}

// A closure evaluates the loss several times, through the other engine's model.
TEST(Engines, EvaluationsOfAClosureLeaveTheOtherEngineAlone) {
  const auto train = [](int number, bool meet) {
    return of_rank_0(3, [=](Communicator& comm) {
      const Context context = testing::context(1);
      PointNet g(3, 2), d(2, 1);
      Sharded generator(g, context, comm, make_lbfgs({.max_iterations = 3}), stage(number));
      Sharded discriminator(d, context, comm, make_adamw(), in_micros(number, 2));
      const auto half = [&](int micro) {
        discriminator.backward(mean(square(d(ring(context, comm, micro)))), {.weight = kPoints, .last = micro == 1});
      };
      half(0);
      if (meet) {
        const StepResult result = generator
                                      .step(
                                          [&] {
                                            const Variable loss =
                                                mean(square(shift(d(g(noise(context, comm, 0))), -1)));
                                            generator.backward(loss, {.weight = kPoints});
                                            return loss.value().item();
                                          },
                                          1.0)
                                      .get();
        EXPECT_GT(result.evaluations, 1);
      }
      half(1);
      std::vector<double> outcome = {discriminator.step(1e-2).get().grad_norm};
      append(outcome, whole_values(discriminator));
      return outcome;
    });
  };
  for (const int number : {0, 3}) EXPECT_TRUE(train(number, true) == train(number, false)) << "stage " << number;
}

// The graph of what is a constant stays for the engine that trains it.
TEST(Engines, ALossOfTheDiscriminatorDoesNotConsumeTheGeneratorsGraph) {
  run_ranks(2, [](Communicator& comm) {
    Gan gan(comm, 3, 3);
    const Variable fake = gan.make_g(noise(gan.context, comm, 0));
    gan.discriminator.backward(mean(square(gan.score(fake))));
    gan.generator.backward(mean(square(gan.score(fake))));
    EXPECT_GT(gan.generator.step(1e-2).get().grad_norm, 0);
    EXPECT_GT(gan.discriminator.step(1e-2).get().grad_norm, 0);
  });
}

TEST(Engines, ALossOfAnotherEngineAloneIsAnError) {
  const Context context = testing::context(1);
  PointNet g(3, 2), d(2, 1);
  Sharded generator(g, context, make_adamw()), discriminator(d, context, make_adamw());
  const Variable points(uniform_tensor(context, {4, 2}, 1));
  EXPECT_THROW(generator.backward(mean(d(points))), Error);
  EXPECT_THROW(backward(mean(d(points))), Error);  // of no engine
  discriminator.zero_grad();
  discriminator.backward(mean(d(points)));
  EXPECT_TRUE(discriminator.step(1e-2).get().taken);
}

}  // namespace
}  // namespace keel
