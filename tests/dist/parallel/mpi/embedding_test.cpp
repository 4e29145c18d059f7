// keel inside a code that has started MPI at MPI_THREAD_FUNNELED, and goes on with it: what it must leave as it was.

#include <gtest/gtest.h>

#include <cfenv>
#include <csignal>
#include <limits>

#include "keel/autograd/loss.h"
#include "keel/dist/comm/mpi_transport.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/nn/layers.h"
#include "tests/dist/comm/mpi/mpi_ranks.h"
#include "tests/dist/parallel/mpi/live_objects.h"
#include "tests/process_state.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr std::int64_t kRows = 8;

ShardedOptions stage(int number) {
  ShardedOptions options;
  options.sharding.stage = number;
  return options;
}

// What a code keeps to train one model on the processes of a communicator.
struct Learner {
  Context context = testing::context(1);
  std::unique_ptr<Communicator> ranks;
  Mlp net{{4, 16, 1}, ActivationKind::tanh};
  Sharded engine;

  explicit Learner(MPI_Comm comm, int number = 2)
      : ranks(make_mpi_communicator(comm)), engine(net, context, *ranks, make_adamw(), stage(number)) {}

  // The loss of this rank before the step.
  double step(std::uint64_t seed) {
    seed = 10 * seed + static_cast<std::uint64_t>(ranks->rank());
    const Variable x(uniform_tensor(context, {kRows, 4}, seed));
    const Variable wanted(uniform_tensor(context, {kRows, 1}, seed + 5));
    const Variable loss = mse_loss(net(x), wanted);
    engine.backward(loss, {.weight = kRows});
    engine.step(1e-2);
    return loss.value().item();
  }
};

// Acceptance checks 18 and 19: the code is at MPI_THREAD_FUNNELED.
TEST(Embedding, TrainsOnHalfOfTheProcessesWhileTheOthersDoOtherThings) {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  ASSERT_EQ(level, MPI_THREAD_FUNNELED);
  on_first_processes(processes(), [](MPI_Comm all) {
    MPI_Comm half = MPI_COMM_NULL;
    const bool learns = process() < (processes() + 1) / 2;
    MPI_Comm_split(all, learns ? 0 : 1, 0, &half);
    const MpiCounts before = mpi_counts();
    for (int number = 0; number < 4; ++number) {
      if (learns) {
        Learner learner(half, number);
        for (std::uint64_t step = 0; step < 5; ++step) {
          const double loss = learner.step(step);
          double sum = 0;  // the host's own, between keel's
          MPI_Allreduce(&loss, &sum, 1, MPI_DOUBLE, MPI_SUM, half);
          EXPECT_GE(sum, loss);
        }
        EXPECT_EQ(learner.engine.steps_taken(), 5);
      } else {
        std::vector<int> ranks(static_cast<std::size_t>(processes()));
        for (int i = 0; i < 100; ++i) {
          const int mine = process();
          MPI_Allgather(&mine, 1, MPI_INT, ranks.data(), 1, MPI_INT, half);
          EXPECT_EQ(ranks[0], (processes() + 1) / 2);
        }
      }
    }
    EXPECT_EQ(mpi_counts().of_world, before.of_world);
    EXPECT_EQ(mpi_counts().starts_and_ends, before.starts_and_ends);
    EXPECT_EQ(mpi_counts().communicators, before.communicators);
    MPI_Comm_free(&half);
  });
}

// Acceptance check 20.
TEST(Embedding, TwoModelsOnTwoCommunicatorsTakeTurns) {
  on_first_processes(processes(), [](MPI_Comm all) {
    // Each process is in one of two halves, and in a communicator of all in the opposite order.
    MPI_Comm half = MPI_COMM_NULL, reversed = MPI_COMM_NULL;
    MPI_Comm_split(all, process() % 2, 0, &half);
    MPI_Comm_split(all, 0, -process(), &reversed);
    std::vector<double> alone[2], together[2];
    const MPI_Comm comms[2] = {half, reversed};
    for (const int i : {0, 1}) {
      Learner learner(comms[i]);
      for (std::uint64_t step = 0; step < 4; ++step) alone[i].push_back(learner.step(step));
    }
    {
      Learner first(half), second(reversed);
      for (std::uint64_t step = 0; step < 4; ++step) {
        together[0].push_back(first.step(step));
        together[1].push_back(second.step(step));
      }
    }
    for (const int i : {0, 1}) EXPECT_EQ(together[i], alone[i]);
    MPI_Comm_free(&half);
    MPI_Comm_free(&reversed);
  });
}

// Acceptance check 21.
TEST(Embedding, AHundredModelsLeaveNothingBehind) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    struct Held {
      std::int64_t communicators = mpi_counts().communicators, threads = testing::threads(),
                   files = testing::open_files(), objects = live_objects;
    };
    Held before;
    for (int i = 0; i < 100; ++i) {
      if (i == 4) before = Held();  // each stage has been there once
      Learner learner(comm, i % 4);
      learner.step(1);
    }
    const Held after;
    EXPECT_EQ(after.communicators, before.communicators);
    EXPECT_EQ(after.threads, before.threads);
    EXPECT_EQ(after.files, before.files);
    EXPECT_EQ(after.objects, before.objects);
  });
}

// Acceptance check 24.
TEST(Embedding, ErrorsComeBackAndTheCodeGoesOn) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    for (int i = 0; i < 3; ++i) {
      Learner learner(comm);
      EXPECT_NE(error_of([&] { learner.net(Variable(zeros(learner.context, {2, 5}))); }), "") << "a bad shape";
      EXPECT_NE(error_of([&] { learner.engine.step(1e-2); }), "") << "a step without a gradient";
      EXPECT_NE(error_of([&] { empty(learner.context, {std::int64_t{1} << 50}); }), "") << "more memory than there is";
      const Tensor nan =
          tensor_of(learner.context, std::vector<double>(4, std::numeric_limits<double>::quiet_NaN()), {1, 4});
      learner.engine.backward(mse_loss(learner.net(Variable(nan)), Variable(zeros(learner.context, {1, 1}))));
      EXPECT_FALSE(learner.engine.step(1e-2).get().taken);
      learner.step(1);
      EXPECT_EQ(learner.engine.steps_taken(), 1);

      // A rank whose work fails: the others hear of it, and all can begin anew.
      const int fails = i % processes();
      if (process() == fails) learner.ranks->fail("out of steam");
      else EXPECT_NE(error_of([&] { learner.step(2); }).find("out of steam"), std::string::npos);
      int sum = 0;
      const int mine = 1;
      MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
      EXPECT_EQ(sum, processes());
    }
    Learner learner(comm);
    learner.step(1);
    EXPECT_EQ(learner.engine.steps_taken(), 1);
  });
}

// Acceptance check 24, its second half.
TEST(Embedding, SaysNothingAndLeavesSignalsAndErrorHandlersAlone) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    struct sigaction own = {};
    own.sa_handler = [](int) {};
    struct sigaction former = {};
    ::sigaction(SIGTERM, &own, &former);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    const auto actions = [] {
      std::vector<decltype(former.sa_handler)> handlers;
      for (int number = 1; number < NSIG; ++number) {
        struct sigaction action = {};
        if (::sigaction(number, nullptr, &action) == 0) handlers.push_back(action.sa_handler);
      }
      return handlers;
    };
    const auto before = actions();
    const int traps = ::fegetexcept(), rounding = ::fegetround();

    const std::string said = said_by([&] {
      Learner learner(comm);
      learner.step(1);
      learner.ranks->fail("enough");
      (void)error_of([&] { learner.step(2); });
    });
    EXPECT_EQ(said, "");

    EXPECT_EQ(actions(), before);
    EXPECT_EQ(::fegetexcept(), traps);
    EXPECT_EQ(::fegetround(), rounding);
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_get_errhandler(comm, &handler);
    EXPECT_TRUE(handler == MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&handler);
    ::sigaction(SIGTERM, &former, nullptr);
  });
}

}  // namespace
}  // namespace keel
