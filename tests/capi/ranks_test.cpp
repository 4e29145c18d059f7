// Ranks that a host starts without MPI: its threads, or what TCP connects. What holds for one rank holds for them.

#include <array>
#include <barrier>
#include <functional>
#include <mutex>
#include <thread>

#include "keel/dist/comm/tcp_socket.h"
#include "tests/capi/host_mse.h"
#include "tests/capi/learner.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr const char* kStages[] = {"ddp", "zero1", "zero2", "zero3"};

void in_threads(int n, const std::function<void(int rank)>& f) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back(f, rank);
  for (std::thread& each : threads) each.join();
}

// Calls f on n threads, each with a context of its own rank.
void on_team(int n, const std::function<void(CContext& context, int rank)>& f) {
  CTeam team;
  EXPECT_KEEL(keel_team_create(n, 30, team.out()));
  in_threads(n, [&](int rank) {
    CContext context;
    EXPECT_KEEL(keel_context_create_thread(team, rank, c_settings({{"threads", "1"}}), context.out()));
    int own = -1, size = -1;
    EXPECT_KEEL(keel_context_ranks(context, &own, &size));
    EXPECT_EQ(own, rank);
    EXPECT_EQ(size, n);
    f(context, rank);
  });
}

std::vector<float> weights_of(const CContext& context, const CModel& model, const char* name = "layers.0.weight") {
  std::vector<float> weights(16 * kInputs);
  EXPECT_KEEL(keel_get_weights(model, name, c_array(context, weights.data(), {16, kInputs})));
  return weights;
}

CBatch batch_of(const CContext& context, Samples& samples) {
  CBatch batch;
  EXPECT_KEEL(keel_batch_create(context, batch.out()));
  EXPECT_KEEL(keel_batch_input(batch, nullptr, c_array(context, samples.x.data(), {kSamples, kInputs})));
  EXPECT_KEEL(keel_batch_target(batch, nullptr, c_array(context, samples.y.data(), {kSamples, kOutputs})));
  return batch;
}

// What three steps on n ranks leave, with keel's loss or the host's: the same in every stage, and on every rank.
TEST(CTeam, HasTheBitsOfEveryStageWithKeelsLossAndTheHosts) {
  for (int n = 1; n <= 4; ++n) {
    std::vector<float> first;
    std::mutex mutex;
    for (const char* stage : kStages)
      for (const bool of_host : {false, true})
        on_team(n, [&](CContext& context, int rank) {
          HostMse seen;
          CLearner learner(context, c_settings({{"strategy", stage}}));
          if (of_host) { EXPECT_KEEL(keel_model_loss(learner.model, host_mse, &seen)); }
          for (int step = 0; step < 3; ++step) learner.step(step, rank);
          if (of_host) { EXPECT_EQ(seen.thread, std::this_thread::get_id()); }
          const std::vector<float> weights = weights_of(context, learner.model);
          const std::lock_guard lock(mutex);
          if (first.empty()) first = weights;
          EXPECT_TRUE(weights == first) << n << ' ' << stage << ' ' << of_host;
        });
  }
}

TEST(CTeam, EndsAStepTogetherWhereALossOfTheHostsFailsOnOneRank) {
  for (const char* stage : kStages)
    on_team(3, [&](CContext& context, int rank) {
      HostMse seen;
      CLearner learner(context, c_settings({{"strategy", stage}}));
      EXPECT_KEEL(keel_model_loss(learner.model, host_mse, &seen));
      for (int fails = 0; fails < 3; ++fails) {
        learner.step(2 * fails, rank);
        if (rank == fails) seen.fails = 3, seen.why = "cell 5 is empty";
        Samples samples(1, rank);
        EXPECT_EQ(keel_train_batch(learner.model, batch_of(context, samples), 1e-2, nullptr, nullptr, nullptr),
                  KEEL_ERROR_INPUT);
        EXPECT_EQ(std::string(keel_last_error()),
                  concat("keel_train_batch: ", fails == 0 ? "" : concat("rank ", fails, ": "),
                         "the host's loss function returned 3: cell 5 is empty"));
        seen.fails = 0;
      }
      learner.step(9, rank);
    });
}

TEST(CTeam, GivesAndTakesWholeParametersAndGradientsInEveryStage) {
  for (const int n : {2, 3}) {
    std::array<std::vector<float>, 3> first;
    std::mutex mutex;
    for (const char* stage : kStages)
      on_team(n, [&](CContext& context, int rank) {
        const CSettings settings = c_settings(
            {{"strategy", stage}, {"optimizer", "{type: SGD, lr: 0.1}"}, {"batch.global", "6"}, {"batch.micro", "1"}});
        CLearner learner(context, settings), twin(context, c_settings({{"strategy", stage}, {"seed", "5"}}));
        std::vector<float> gradient(16 * kInputs);
        const std::vector<float> before = weights_of(context, learner.model);
        for (const bool last : {false, true}) {
          Samples samples(last ? 1 : 0, rank);
          EXPECT_KEEL(keel_train_backward(learner.model, batch_of(context, samples), last ? 1 : 0, nullptr));
        }
        EXPECT_KEEL(
            keel_get_gradient(learner.model, "layers.0.weight", c_array(context, gradient.data(), {16, kInputs})));
        EXPECT_KEEL(keel_train_update(learner.model, 0.5, nullptr, nullptr));
        std::vector<float> after = weights_of(context, learner.model);
        for (std::size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], before[i] - 0.5F * gradient[i], 1e-6);
        // The numbers of rank 0 are set on all.
        std::vector<float> set = after;
        if (rank > 0) std::fill(set.begin(), set.end(), 7.0F);
        EXPECT_KEEL(keel_set_weights(twin.model, "layers.0.weight", c_array(context, set.data(), {16, kInputs})));
        EXPECT_TRUE(weights_of(context, twin.model) == after);
        for (const char* name : {"layers.0.bias", "layers.1.weight", "layers.1.bias"}) {
          int rank_of_shape = 0;
          std::int64_t shape[8] = {};
          EXPECT_KEEL(keel_parameter_shape(learner.model, name, &rank_of_shape, shape));
          std::vector<double> values(64);
          const CArray array = c_array(context, values.data(), std::vector<std::int64_t>(shape, shape + rank_of_shape));
          EXPECT_KEEL(keel_get_weights(learner.model, name, array));
          EXPECT_KEEL(keel_set_weights(twin.model, name, array));
        }
        Samples samples(4, rank);
        double one = -1, other = -2;
        EXPECT_KEEL(keel_evaluate(learner.model, batch_of(context, samples), &one));
        EXPECT_KEEL(keel_evaluate(twin.model, batch_of(context, samples), &other));
        EXPECT_EQ(one, other);
        // A shape that does not fit on one rank is an error of all, and all go on.
        std::vector<float> few(8);
        const CArray bad =
            rank == n - 1 ? c_array(context, few.data(), {8}) : c_array(context, set.data(), {16, kInputs});
        EXPECT_EQ(keel_get_weights(learner.model, "layers.0.weight", bad), KEEL_ERROR_INPUT);
        const std::vector<float> numbers = {static_cast<float>(one)};
        const std::lock_guard lock(mutex);
        if (first[0].empty()) first = {gradient, after, numbers};
        EXPECT_TRUE(gradient == first[0] && after == first[1] && numbers == first[2]) << n << ' ' << stage;
      });
  }
}

// Samples are divided among ranks in any way: their weights count, not the ranks.
TEST(CTeam, WeighsSamplesOfAllRanksAsOne) {
  std::vector<double> losses;
  for (const int n : {1, 3}) {
    std::mutex mutex;
    on_team(n, [&](CContext& context, int rank) {
      CLearner learner(context, c_settings({{"strategy", "zero2"}, {"optimizer.type", "SGD"}}));
      Samples all(1, 0);
      std::vector<float> weights = {1, 2, 0.5, 3, 0, 1, 4, 1};
      const std::int64_t begin = n == 1 ? 0 : rank == 0 ? 0 : rank == 1 ? 5 : 8, end = n == 1 ? 8 : rank == 0 ? 5 : 8;
      const std::int64_t count = end - begin;
      CBatch batch;
      EXPECT_KEEL(keel_batch_create(context, batch.out()));
      const auto at = [&](std::vector<float>& v, std::int64_t width) {
        return count == 0 ? nullptr : &v[static_cast<std::size_t>(begin * width)];
      };
      EXPECT_KEEL(keel_batch_input(batch, nullptr, c_array(context, at(all.x, kInputs), {count, kInputs})));
      EXPECT_KEEL(keel_batch_target(batch, nullptr, c_array(context, at(all.y, kOutputs), {count, kOutputs})));
      EXPECT_KEEL(keel_batch_weights(batch, c_array(context, at(weights, 1), {count})));
      double loss = 0;
      for (int step = 0; step < 3; ++step)
        EXPECT_KEEL(keel_train_batch(learner.model, batch, 0.1, nullptr, nullptr, nullptr));
      EXPECT_KEEL(keel_evaluate(learner.model, batch, &loss));
      const std::lock_guard lock(mutex);
      losses.push_back(loss);
    });
  }
  ASSERT_EQ(losses.size(), 4u);
  EXPECT_EQ(losses[1], losses[2]);
  EXPECT_EQ(losses[1], losses[3]);
  EXPECT_NEAR(losses[0], losses[1], 1e-6 * losses[0]);
}

// What keel_train_..., keel_evaluate() and keel_infer() say of seven samples that lie on one rank, or on several.
TEST(CTeam, EvaluatesAndAnswersWhereSomeRanksHaveNoSample) {
  constexpr const char *kDeep = "dense 16 tanh; layernorm; dense 2", *kTable = "input a 3; embedding b 5 4; output c 2";
  const TemporaryFolder place;
  const std::string folder = place / "disk";
  const auto said_by = [&](const char* text, const char* stage, const std::vector<std::int64_t>& counts,
                           const char* weights_in = "device") {
    std::vector<float> answers(7 * kOutputs);
    std::vector<double> losses;
    std::mutex mutex;
    on_team(static_cast<int>(counts.size()), [&](CContext& context, int rank) {
      CModel model;
      const bool has_table = text == kTable;
      const CSettings settings = c_settings({{"strategy", stage},
                                             {"optimizer.type", "SGD"},
                                             {"sharding.offload_folder", folder.c_str()},
                                             {"sharding.offload_parameters", weights_in}});
      EXPECT_KEEL(keel_model_create_text(context, settings, text, has_table ? 0 : kInputs, "mse", model.out()));
      Samples all(1, 0);
      std::vector<std::int32_t> classes = {0, 4, 2, 1, 3, 3, 0};
      std::int64_t begin = 0;
      const std::int64_t count = counts[static_cast<std::size_t>(rank)], width = has_table ? 3 : kInputs;
      for (int before = 0; before < rank; ++before) begin += counts[static_cast<std::size_t>(before)];
      const auto inputs = [&](CBatch& batch) {
        EXPECT_KEEL(keel_batch_create(context, batch.out()));
        EXPECT_KEEL(keel_batch_input(batch, has_table ? "a" : nullptr,
                                     c_array(context, all.x.data() + begin * width, {count, width})));
        if (has_table) { EXPECT_KEEL(keel_batch_input(batch, "b", c_array(context, classes.data() + begin, {count}))); }
      };
      CBatch batch, asked;
      inputs(batch);
      inputs(asked);
      EXPECT_KEEL(
          keel_batch_target(batch, nullptr, c_array(context, all.y.data() + begin * kOutputs, {count, kOutputs})));
      EXPECT_KEEL(
          keel_batch_target(asked, nullptr, c_array(context, answers.data() + begin * kOutputs, {count, kOutputs})));
      std::vector<double> own(3, -1);
      EXPECT_KEEL(keel_evaluate(model, batch, &own[0]));
      EXPECT_KEEL(keel_train_batch(model, batch, 0.1, nullptr, nullptr, nullptr));
      EXPECT_KEEL(keel_evaluate(model, batch, &own[1]));
      EXPECT_KEEL(keel_infer_batch(model, asked));
      EXPECT_KEEL(keel_train_batch(model, batch, 0.1, nullptr, nullptr, nullptr));
      EXPECT_KEEL(keel_evaluate(model, batch, &own[2]));
      const std::lock_guard lock(mutex);
      if (losses.empty()) losses = own;
      EXPECT_EQ(own, losses) << "each rank hears the same";
    });
    for (const float each : answers) losses.push_back(each);
    return losses;
  };
  for (const char* text : {kDeep, kTable}) {
    const std::vector<double> alone = said_by(text, "ddp", {7});
    EXPECT_LT(alone[1], alone[0]);
    for (const char* stage : kStages)
      for (const std::vector<std::int64_t>& counts : {std::vector<std::int64_t>{0, 7}, {3, 0, 4}, {0, 0, 7}}) {
        const std::vector<double> said = said_by(text, stage, counts);
        for (std::size_t i = 0; i < said.size(); ++i) EXPECT_NEAR(said[i], alone[i], 1e-5) << stage << ' ' << text;
      }
    for (const char* stage : kStages) {
      EXPECT_EQ(said_by(text, stage, {0, 0})[1], 0) << "the mean of nothing";
      EXPECT_EQ(said_by(text, stage, {0, 7}, "file"), said_by(text, stage, {0, 7})) << stage;
    }
  }
}

TEST(CTeam, TellsTheOthersWhenOneCannotGoOnAndGivesEachRankOnce) {
  std::barrier all(3);
  on_team(3, [&](CContext& context, int rank) {
    CLearner learner(context, c_settings({{"strategy", "zero3"}}));
    learner.step(1, rank);
    all.arrive_and_wait();
    if (rank == 1) {
      EXPECT_KEEL(keel_context_fail(context, "out of steam"));
      return;
    }
    Samples samples(2, rank);
    EXPECT_EQ(keel_train_batch(learner.model, batch_of(context, samples), 1e-2, nullptr, nullptr, nullptr),
              KEEL_ERROR_PEER);
    EXPECT_NE(std::string(keel_last_error()).find("out of steam"), std::string::npos) << keel_last_error();
  });
  CTeam team;
  EXPECT_KEEL(keel_team_create(1, 5, team.out()));
  CContext one, other;
  EXPECT_KEEL(keel_context_create_thread(team, 0, c_settings({{"threads", "1"}}), one.out()));
  EXPECT_EQ(keel_context_create_thread(team, 0, nullptr, other.out()), KEEL_ERROR_INPUT);
  EXPECT_NE(std::string(keel_last_error()).find("rank 0 of the team has a context already"), std::string::npos);
}

// A port that was free a moment ago.
std::string free_address() { return to_string(TcpListener(TcpAddress{"127.0.0.1", 0}).address()); }

TEST(CTcp, RanksHaveTheBitsOfThoseOfATeam) {
  for (const char* stage : {"zero1", "zero3"}) {
    std::vector<float> of_team;
    std::mutex mutex;
    const auto train = [&](CContext& context, int rank) {
      CLearner learner(context, c_settings({{"strategy", stage}}));
      for (int step = 0; step < 3; ++step) learner.step(step, rank);
      const std::vector<float> weights = weights_of(context, learner.model);
      const std::lock_guard lock(mutex);
      if (of_team.empty()) of_team = weights;
      EXPECT_TRUE(weights == of_team) << stage;
    };
    on_team(3, train);
    const std::string address = free_address();
    in_threads(3, [&](int rank) {
      CContext context;
      EXPECT_KEEL(keel_context_create_tcp(rank, 3, address.c_str(), "a token", 30, c_settings({{"threads", "1"}}),
                                          context.out()));
      train(context, rank);
    });
  }
}

TEST(CTcp, ARankThatWaitsInVainSaysForWhom) {
  const std::string address = free_address();
  CContext context;
  EXPECT_EQ(keel_context_create_tcp(0, 2, address.c_str(), nullptr, 0.2, nullptr, context.out()), KEEL_ERROR_PEER);
  EXPECT_NE(std::string(keel_last_error()).find("rank 1"), std::string::npos) << keel_last_error();
}

}  // namespace
}  // namespace keel
