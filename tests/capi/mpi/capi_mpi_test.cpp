// The C interface in a code that has started MPI: the ranks of a communicator that it gives as Fortran has it.

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <sstream>
#include <thread>

#include "keel/dist/comm/mpi_transport.h"
#include "tests/capi/full_disk.h"
#include "tests/capi/host_mse.h"
#include "tests/capi/learner.h"
#include "tests/dist/comm/mpi/mpi_ranks.h"
#include "tests/dist/parallel/mpi/live_objects.h"
#include "tests/process_state.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr const char* kStages[] = {"ddp", "zero1", "zero2", "zero3"};

CContext context_of(MPI_Comm comm) {
  CContext context;
  EXPECT_KEEL(keel_context_create_mpi(MPI_Comm_c2f(comm), c_settings({{"threads", "1"}}), context.out()));
  return context;
}

// A folder that all processes see; the first one removes it.
class SharedFolder {
 public:
  explicit SharedFolder(MPI_Comm comm) : comm_(comm) {
    int rank = 0;
    MPI_Comm_rank(comm, &rank);
    char name[256] = {};
    if (rank == 0) own_.emplace();
    if (rank == 0) own_->path().copy(name, sizeof name - 1);
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, comm);
    path_ = name;
  }
  ~SharedFolder() { MPI_Barrier(comm_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  MPI_Comm comm_;
  std::optional<TemporaryFolder> own_;
  std::string path_;
};

TEST(CRanks, HaveTheBitsOfTheSameTrainingInCppInEveryStage) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    const SharedFolder place(comm);
    for (const char* stage : kStages) {
      {
        CContext context = context_of(comm);
        int rank = -1, size = -1;
        EXPECT_KEEL(keel_context_ranks(context, &rank, &size));
        EXPECT_EQ(rank, process());
        EXPECT_EQ(size, processes());
        CLearner c(context, c_settings({{"strategy", stage}}));
        const auto ranks = make_mpi_communicator(comm);
        CppLearner cpp(*ranks, parse_config("steps: 1\ndata: {type: addition}", "test", {concat("strategy=", stage)}));
        for (int step = 0; step < 4; ++step) EXPECT_EQ(c.step(step, process()), cpp.step(step, process()));
        EXPECT_KEEL(keel_model_save(c.model, (place / "c").c_str()));
        cpp.save(place / "cpp");
        const int files = std::filesystem::exists(place / "c/model.safetensors") ? 1 : processes();
        EXPECT_EQ(files == 1, processes() == 1 || stage == kStages[0]);
        EXPECT_EQ(saved_numbers(place / "c", files), saved_numbers(place / "cpp", files)) << stage;
        MPI_Barrier(comm);
      }
      EXPECT_KEEL(keel_export_weights((place / "c").c_str(), (place / concat(stage, process())).c_str()));
      EXPECT_EQ(read_text_file(place / concat(stage, process())), read_text_file(place / concat("ddp", process())))
          << "every stage has the same bits";
      MPI_Barrier(comm);
    }
  });
}

// The weights, after three steps whose loss is keel's or the host's.
std::string weights_of(CContext& context, const std::string& folder, const char* stage, bool of_host) {
  HostMse seen;
  CLearner learner(context, c_settings({{"strategy", stage}}));
  if (of_host) { EXPECT_KEEL(keel_model_loss(learner.model, host_mse, &seen)); }
  for (int step = 0; step < 3; ++step) learner.step(step, process());
  EXPECT_KEEL(keel_model_save(learner.model, folder.c_str()));
  const std::string file = concat(folder, process());
  EXPECT_KEEL(keel_export_weights(folder.c_str(), file.c_str()));
  return read_text_file(file);
}

TEST(CRanks, MayHaveALossOfTheHostsWithTheBitsOfKeels) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    const SharedFolder place(comm);
    CContext context = context_of(comm);
    std::string first;
    for (const char* stage : kStages)
      for (const bool of_host : {false, true}) {
        const std::string weights = weights_of(context, place / "c", stage, of_host);
        if (first.empty()) first = weights;
        EXPECT_EQ(weights, first) << stage << ' ' << of_host;
        MPI_Barrier(comm);
      }
  });
}

TEST(CRanks, EndAStepTogetherWhereALossOfTheHostsFailsOnOne) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    for (const char* stage : kStages)
      for (int fails = 0; fails < processes(); ++fails) {
        CContext context = context_of(comm);
        CLearner own(context, c_settings({{"strategy", stage}})), learner(context, c_settings({{"strategy", stage}}));
        HostMse seen;
        EXPECT_KEEL(keel_model_loss(learner.model, host_mse, &seen));
        if (process() == fails) seen.fails = 3, seen.why = "cell 5 is empty";
        Samples samples(2, process());
        const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs});
        const CArray y = c_array(context, samples.y.data(), {kSamples, kOutputs});
        EXPECT_EQ(keel_train_step(learner.model, x, y, 1e-2, nullptr, nullptr, nullptr), KEEL_ERROR_INPUT);
        const std::string said = keel_last_error();
        EXPECT_NE(said.find("returned 3: cell 5 is empty"), std::string::npos) << said;
        EXPECT_EQ(said.find(concat("rank ", fails, ": ")) != std::string::npos, fails > 0) << said;
        seen.fails = 0;
        // All go on, with a model that has not changed.
        const double loss = own.step(1, process());
        EXPECT_NEAR(learner.step(1, process()), loss, 3e-7 * loss);
        const double later = own.step(2, process());
        EXPECT_NEAR(learner.step(2, process()), later, 3e-7 * later);
      }
  });
}

TEST(CRanks, GoOnFromAFolderInAnotherStageToTheSameBits) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    const SharedFolder place(comm);
    CContext context = context_of(comm);
    CLearner through(context, c_settings({{"strategy", "zero3"}})),
        resumed(context, c_settings({{"strategy", "zero1"}}));
    through.step(1, process());
    EXPECT_KEEL(keel_model_save(through.model, (place / "saved").c_str()));
    EXPECT_KEEL(keel_model_load(resumed.model, (place / "saved").c_str()));
    for (int step = 2; step < 5; ++step) EXPECT_EQ(through.step(step, process()), resumed.step(step, process()));
    std::string path = place / "nowhere";
    EXPECT_EQ(keel_model_load(resumed.model, path.c_str()), KEEL_ERROR_IO) << "on every rank";
    EXPECT_EQ(through.step(5, process()), resumed.step(5, process()));
  });
}

// The first line in which two folders' manifests differ; empty where they do not.
std::string difference(const std::string& folder, const std::string& other) {
  std::istringstream lines(read_text_file(folder + "/manifest.json")), others(read_text_file(other + "/manifest.json"));
  for (int number = 1;; ++number) {
    std::string line, its;
    const bool has_line = !std::getline(lines, line).fail(), has_its = !std::getline(others, its).fail();
    if (has_line != has_its || line != its)
      return concat("line ", number, " of ", folder, ": ", line, "\n", other, ": ", its);
    if (!has_line) return {};
  }
}

TEST(CRanks, SaveWhileTheyTrain) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    const SharedFolder place(comm);
    const std::string at_once = place / "at_once", beside = place / "beside";
    for (const char* stage : kStages) {
      CContext context = context_of(comm);
      CLearner learner(context, c_settings({{"strategy", stage}}));
      int step = 0;
      const auto train_until_saved = [&] {
        int state = KEEL_SAVE_UNDER_WAY;
        keel_status status = KEEL_OK;
        while (status == KEEL_OK && state == KEEL_SAVE_UNDER_WAY) {
          learner.step(++step, process());
          status = keel_model_save_poll(learner.model, &state);
        }
        return status;
      };
      learner.step(++step, process());
      const keel_status saved_at_once = keel_model_save(learner.model, at_once.c_str());
      const std::string said_at_once = saved_at_once == KEEL_OK ? "which was saved" : keel_last_error();
      EXPECT_EQ(saved_at_once, KEEL_OK) << said_at_once << ", " << stage;
      EXPECT_KEEL(keel_model_save_begin(learner.model, beside.c_str()));
      EXPECT_KEEL(train_until_saved());
      EXPECT_EQ(difference(beside, at_once), "") << stage << ", " << said_at_once;
      MPI_Barrier(comm);
      {
        // The last process cannot write, be it no more than what it tells the first one.
        std::optional<FullDisk> full;
        if (process() == processes() - 1) full.emplace();
        EXPECT_KEEL(keel_model_save_begin(learner.model, beside.c_str()));
        EXPECT_EQ(train_until_saved(), KEEL_ERROR_IO);
        const std::string said = keel_last_error();
        EXPECT_NE(said.find("File too large"), std::string::npos) << said << ", " << stage;
        MPI_Barrier(comm);
      }
      EXPECT_EQ(difference(beside, at_once), "") << stage << ", " << said_at_once;
      MPI_Barrier(comm);
      EXPECT_KEEL(keel_model_save_begin(learner.model, beside.c_str()));
      learner.step(++step, process());
      EXPECT_KEEL(keel_model_save_finish(learner.model));
      EXPECT_KEEL(keel_model_load(learner.model, beside.c_str()));
      // Nobody waits for a save that is given up.
      EXPECT_KEEL(keel_model_save_begin(learner.model, (place / "never").c_str()));
    }
    MPI_Barrier(comm);
    EXPECT_FALSE(std::filesystem::exists(place / "never"));
  });
}

TEST(CRanks, MayBeWithoutSamples) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    CContext context = context_of(comm);
    CLearner learner(context, c_settings({{"strategy", "zero2"}}));
    const bool has_samples = process() == 0;
    Samples samples(1, 0);
    const std::int64_t count = has_samples ? kSamples : 0;
    const CArray x = c_array(context, has_samples ? samples.x.data() : nullptr, {count, kInputs});
    const CArray y = c_array(context, has_samples ? samples.y.data() : nullptr, {count, kOutputs});
    double loss = -1, norm = -1;
    int taken = 0;
    EXPECT_KEEL(keel_train_step(learner.model, x, y, 1e-2, &loss, &norm, &taken));
    EXPECT_EQ(taken, 1);
    EXPECT_GT(norm, 0);
    EXPECT_EQ(loss > 0, has_samples);
    // As if the one rank were alone.
    CContext own;
    EXPECT_KEEL(keel_context_create(c_settings({{"threads", "1"}}), own.out()));
    CLearner alone(own, CSettings());
    alone.step(1);
    const CArray all = c_array(context, samples.x.data(), {kSamples, kInputs}),
                 same = c_array(own, samples.x.data(), {kSamples, kInputs});
    std::vector<float> answers(kSamples * kOutputs), wanted(kSamples * kOutputs);
    EXPECT_KEEL(keel_infer(learner.model, all, c_array(context, answers.data(), {kSamples, kOutputs})));
    EXPECT_KEEL(keel_infer(alone.model, same, c_array(own, wanted.data(), {kSamples, kOutputs})));
    EXPECT_EQ(answers, wanted);
  });
}

TEST(CRanks, MayBeWithoutSequences) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    CContext context = context_of(comm);
    const CSettings settings = c_settings({{"strategy", "zero3"},
                                           {"model.layers", "2"},
                                           {"model.heads", "2"},
                                           {"model.width", "8"},
                                           {"model.block", "6"},
                                           {"model.vocabulary", "11"}});
    CModel model;
    EXPECT_KEEL(keel_model_create(context, settings, model.out()));
    const bool has_sequences = process() == 0;
    std::vector<std::int32_t> tokens = {1, 2, 3, 4}, next = {2, 3, 4, 5};
    const std::int64_t count = has_sequences ? 1 : 0;
    const CArray x = c_array(context, has_sequences ? tokens.data() : nullptr, {count, 4});
    const CArray y = c_array(context, has_sequences ? next.data() : nullptr, {count, 4});
    double loss = -1, norm = -1;
    int taken = 0;
    EXPECT_KEEL(keel_train_step(model, x, y, 1e-2, &loss, &norm, &taken));
    EXPECT_EQ(taken, 1);
    EXPECT_GT(norm, 0);
    EXPECT_EQ(loss > 0, has_sequences);
  });
}

TEST(CRanks, TellEachOtherWhenOneCannotGoOn) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    for (int fails = 0; fails < processes(); ++fails) {
      CContext context = context_of(comm);
      CLearner learner(context, c_settings({{"strategy", "zero3"}}));
      learner.step(1, process());
      if (process() == fails) {
        EXPECT_KEEL(keel_context_fail(context, "out of steam"));
        continue;
      }
      Samples samples(2, process());
      const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs});
      const CArray y = c_array(context, samples.y.data(), {kSamples, kOutputs});
      EXPECT_EQ(keel_train_step(learner.model, x, y, 1e-2, nullptr, nullptr, nullptr), KEEL_ERROR_PEER);
      EXPECT_NE(std::string(keel_last_error()).find("out of steam"), std::string::npos) << keel_last_error();
    }
    // Where settings differ, all ranks hear of it, and may begin anew.
    CContext context = context_of(comm);
    const CSettings different = c_settings({{"strategy", process() == 0 ? "zero2" : "zero3"}});
    const std::int64_t widths[] = {kInputs, kOutputs};
    CModel model;
    EXPECT_EQ(keel_model_create_mlp(context, different, widths, 2, "tanh", "mse", model.out()) == KEEL_OK,
              processes() == 1);
    const CSettings broken = c_settings({{"clip", process() == 0 ? "-1" : "1"}});
    CModel none;
    EXPECT_EQ(keel_model_create_mlp(context, broken, widths, 2, "tanh", "mse", none.out()), KEEL_ERROR_INPUT);
    EXPECT_NE(std::string(keel_last_error()).find("clip"), std::string::npos);
    CLearner learner(context, CSettings());
    learner.step(1, process());
  });
}

// Nobody begins to allocate where one rank's memory is too small.
TEST(CRanks, RefuseAModelThatIsLargerThanTheirMachine) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    CContext context = context_of(comm);
    const std::int64_t widths[] = {std::int64_t{1} << 24, std::int64_t{1} << 24, 1};
    CModel model;
    EXPECT_EQ(keel_model_create_mlp(context, nullptr, widths, 3, "tanh", "mse", model.out()), KEEL_ERROR_INPUT);
    EXPECT_NE(std::string(keel_last_error()).find("training needs "), std::string::npos) << keel_last_error();
    CLearner learner(context, CSettings());
    learner.step(1, process());
  });
}

TEST(CRanks, RefuseWhatIsNoCommunicator) {
  for (const std::int64_t number :
       {std::int64_t{-1}, std::int64_t{1} << 40, std::int64_t{MPI_Comm_c2f(MPI_COMM_NULL)}}) {
    CContext context;
    EXPECT_EQ(keel_context_create_mpi(number, nullptr, context.out()), KEEL_ERROR_INPUT);
    EXPECT_NE(std::string(keel_last_error()).find("MPI_Comm_c2f"), std::string::npos) << keel_last_error();
  }
}

TEST(CRanks, RefuseACommunicatorBetweenTwoGroups) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    if (processes() == 1) return;  // one process makes no two groups
    const int half = process() < processes() / 2 ? 0 : 1;
    MPI_Comm own = MPI_COMM_NULL, both = MPI_COMM_NULL;
    MPI_Comm_split(comm, half, 0, &own);
    MPI_Intercomm_create(own, 0, comm, half == 0 ? processes() / 2 : 0, 1, &both);
    CContext context;
    EXPECT_EQ(keel_context_create_mpi(MPI_Comm_c2f(both), nullptr, context.out()), KEEL_ERROR_INPUT);
    EXPECT_NE(std::string(keel_last_error()).find("MPI_Intercomm_merge"), std::string::npos) << keel_last_error();
    MPI_Comm_free(&both);
    MPI_Comm_free(&own);
  });
}

// This program has started MPI at MPI_THREAD_FUNNELED.
TEST(CRanks, RefuseAThreadThatMayNotCallMpi) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    CContext context = context_of(comm);
    CLearner learner(context, c_settings({{"strategy", "zero1"}}));
    Samples samples(1, process());
    const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs});
    const CArray y = c_array(context, samples.y.data(), {kSamples, kOutputs});
    const MpiCounts before = mpi_counts();
    std::thread([&] {
      const auto refused = [](keel_status status) {
        EXPECT_EQ(status, KEEL_ERROR_UNSUPPORTED);
        EXPECT_NE(std::string(keel_last_error()).find("this thread may not call MPI"), std::string::npos)
            << keel_last_error();
      };
      CContext other;
      refused(keel_context_create_mpi(MPI_Comm_c2f(comm), nullptr, other.out()));
      refused(keel_train_step(learner.model, x, y, 1e-2, nullptr, nullptr, nullptr));
    }).join();
    EXPECT_EQ(mpi_counts().of_other_threads, before.of_other_threads);
    EXPECT_KEEL(keel_train_step(learner.model, x, y, 1e-2, nullptr, nullptr, nullptr));
  });
}

TEST(CRanks, AHundredSessionsLeaveNothingBehind) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    const MpiCounts start = mpi_counts();
    struct Held {
      std::int64_t communicators = mpi_counts().communicators, threads = testing::threads(),
                   files = testing::open_files(), objects = live_objects;
      bool operator==(const Held&) const = default;
    };
    Held before;
    for (int i = 0; i < 100; ++i) {
      if (i == 8) before = Held();  // each stage has been there
      CContext context = context_of(comm);
      CLearner learner(context, c_settings({{"strategy", kStages[i % 4]}}));
      learner.step(1, process());
      const std::int64_t shape[] = {1};
      keel_array* none = nullptr;
      EXPECT_EQ(keel_array_create(context, nullptr, KEEL_F32, KEEL_HOST, 1, shape, nullptr, &none), KEEL_ERROR_INPUT);
      EXPECT_EQ(none, nullptr);
    }
    EXPECT_TRUE(Held() == before);
    EXPECT_EQ(mpi_counts().of_world, start.of_world);
    EXPECT_EQ(mpi_counts().starts_and_ends, start.starts_and_ends);
  });
}

}  // namespace
}  // namespace keel
