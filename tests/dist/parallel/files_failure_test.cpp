// Files that fail while an engine trains: every rank hears of it, and nothing that was learnt is lost without a word.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/decorators.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/optim/elementwise.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/error_of.h"
#include "tests/runtime/faulty_file.h"

namespace keel {
namespace {

using namespace keel::testing;
using Call = FaultyFile::Call;

ShardedOptions all_in_files(int number, std::function<std::unique_ptr<ScratchFile>()> make) {
  ShardedOptions options = stage(number);
  options.policy = PrecisionPolicy::of(DType::bf16);
  options.sharding.offload_optimizer = options.sharding.offload_parameters = options.sharding.offload_gradients =
      Residence::file;
  options.sharding.offload_threads = 1;
  options.scratch_file = [make = std::move(make)](const std::string&) { return make(); };
  return options;
}

const std::pair<std::string, std::unique_ptr<Optimizer> (*)()> kFailingOptimizers[] = {
    {"AdamW", [] { return make_adamw(); }},
    {"Muon", [] { return make_elementwise("Muon", {.settings = MuonSettings{}}); }}};

void take_step(Sharded& engine, const UnitNet& net, const Communicator& comm, int step) {
  const Tensor x = rows(engine.context(), step, comm, 0, 1, 7, DType::bf16);
  engine.backward(mean(square(net(x))), {.weight = x.dim(0)});
  EXPECT_TRUE(engine.step(1e-2).get().taken);
}

// Of a training in which the last rank's file fails, what each rank is told.
std::vector<std::string> told_by_failing(int ranks, int number, std::unique_ptr<Optimizer> (*optimizer)(),
                                         const FaultyFile::Fault& fault) {
  std::vector<std::string> told(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  const std::string first = error_of([&] {
    run_ranks(ranks, [&](Communicator& comm) {
      try {
        UnitNet net;
        Sharded engine(net, testing::context(1), comm, optimizer(), all_in_files(number, [&] {
                         return std::make_unique<FaultyFile>(comm.rank() == ranks - 1 ? fault : FaultyFile::Fault{});
                       }));
        for (int step = 0; step < 4; ++step) take_step(engine, net, comm, step);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        told[static_cast<std::size_t>(comm.rank())] = error.what();
        throw;
      }
    });
  });
  EXPECT_NE(first, "");
  return told;
}

TEST(FailingFiles, OfOneRankEndTheTrainingOfAll) {
  const std::string reason = "Input/output error";
  for (const auto& [name, optimizer] : kFailingOptimizers)
    for (const int ranks : {1, 2, 3})
      for (const int number : {1, 3})
        for (const Call call : {Call::reserve, Call::read, Call::write})
          for (const std::int64_t at : {1, 3, 9, 20, 33, 47}) {
            if (call == Call::reserve && at > 1) continue;  // once
            for (const std::string& each : told_by_failing(ranks, number, optimizer, fails_from(call, at, reason)))
              EXPECT_NE(each.find(reason), std::string::npos)
                  << name << ", stage " << number << ", " << ranks << " ranks, call " << at << ": '" << each << "'";
          }
}

constexpr const char* kHalfUpdated =
    "an update from files ended in the middle: weights and optimizer state are those of no step";

// Fails once, in the first read that a test asks for.
struct OneFault {
  std::atomic<bool> is_due = false;
  FaultyFile::Fault fault() {
    return [this](Call call, std::int64_t) {
      if (call == Call::read && is_due.exchange(false)) throw Error("a bad sector", ErrorKind::io);
    };
  }
};

TEST(FailingFiles, InAPassLeaveWeightsAndStateAsTheyWere) {
  for (const int number : {0, 3})
    for (const int ranks : {1, 2}) {
      OneFault once;
      run_ranks(ranks, [&](Communicator& comm) {
        UnitNet net;
        Sharded engine(net, testing::context(1), comm, make_adamw(), all_in_files(number, [&] {
                         return std::make_unique<FaultyFile>(comm.rank() == 0 ? once.fault() : FaultyFile::Fault{});
                       }));
        take_step(engine, net, comm, 0);
        const std::vector<double> weights = numbers_of(engine.weights()), state = numbers_of(engine.optimizer_state());
        engine.release_weights();
        comm.barrier();
        if (comm.rank() == 0) once.is_due = true;
        try {
          take_step(engine, net, comm, 1);
          ADD_FAILURE() << "the failure was not told";
        } catch (const AgreedError& error) {
          EXPECT_STREQ(error.what(), "a bad sector");
          EXPECT_EQ(error.kind(), ErrorKind::io);
        } catch (const Error& error) { EXPECT_EQ(ranks, 1) << error.what(); }
        EXPECT_TRUE(numbers_of(engine.weights()) == weights);
        EXPECT_TRUE(numbers_of(engine.optimizer_state()) == state);
      });
    }
}

// A step of two micro-batches of which some call of the last rank's file fails, and all later ones of its kind, as
// those of a full disk do: what that leaves is the weights and the state before the step, or the word that it left
// none.
void expect_whole_or_told(int ranks, const ShardedOptions& made, Call call, std::int64_t fails) {
  std::atomic<bool> is_due = false;
  std::atomic<std::int64_t> calls = 0;
  run_ranks(ranks, [&](Communicator& comm) {
    ShardedOptions options = made;
    options.scratch_file = [&](const std::string&) {
      return std::make_unique<FaultyFile>([&, is_last = comm.rank() == ranks - 1](Call each, std::int64_t) {
        if (is_due && is_last && each == call && ++calls >= fails) throw Error("the disk is gone", ErrorKind::io);
      });
    };
    UnitNet net;
    Sharded engine(net, testing::context(1), comm, make_adamw(), options);
    const auto step = [&](int number) {
      for (int micro = 0; micro < 2; ++micro) {
        const Tensor x = rows(engine.context(), number, comm, micro, 2, 7, DType::bf16);
        engine.backward(mean(square(net(x))), {.weight = x.dim(0), .last = micro == 1});
      }
      engine.step(1e-2).get();
    };
    step(0);
    const std::vector<double> weights = numbers_of(engine.weights()), state = numbers_of(engine.optimizer_state());
    engine.release_weights();
    comm.barrier();
    is_due = true;
    const std::string told = error_of([&] { step(1); });
    if (call == Call::read) is_due = false;
    comm.barrier();
    EXPECT_EQ(error_of([&] { engine.zero_grad(); }), "") << told;
    std::vector<double> left;
    const std::string refusal = error_of([&] { left = numbers_of(engine.weights()); });
    if (told.empty()) {
      EXPECT_EQ(refusal, "");
      return;
    }
    EXPECT_NE(told.find("the disk is gone"), std::string::npos) << told;
    if (refusal == kHalfUpdated) return;
    EXPECT_EQ(refusal, "");
    EXPECT_TRUE(left == weights);
    EXPECT_TRUE(numbers_of(engine.optimizer_state()) == state);
  });
  EXPECT_TRUE(calls >= fails || fails > 8) << "none of " << calls << " calls has failed";
}

TEST(FailingFiles, LeaveWeightsAndStateOfAWholeStepOrSayThatTheyDoNot) {
  for (const auto& [number, reduces_each] : {std::pair(0, false), {2, false}, {3, true}})
    for (const bool gradients_alone : {true, false})
      for (const int ranks : {1, 2}) {
        ShardedOptions options = all_in_files(number, {});
        options.micro_batches = 2;
        if (reduces_each) options.sharding.accumulation = Accumulation::each_backward;
        if (gradients_alone)
          options.sharding.offload_parameters = options.sharding.offload_optimizer = Residence::device;
        for (const Call call : {Call::read, Call::write})
          for (const std::int64_t fails : {1, 5, 16}) {
            SCOPED_TRACE(concat("stage ", number, ", ", ranks, " ranks", gradients_alone ? ", gradients alone, " : ", ",
                                call == Call::read ? "read " : "write ", fails));
            expect_whole_or_told(ranks, options, call, fails);
          }
      }
}

// Of an update of one rank, whose weights are in memory and all else in a file: weights by unit, whether it has ended,
// and the bytes that it has read and written. `fails`: which of its reads does; 0: none.
struct FiledUpdate {
  std::vector<std::vector<double>> before, after;
  bool is_whole = false;
  std::int64_t reads = 0, read = 0, written = 0;
};

FiledUpdate filed_update(const UpdateSettings& settings, std::int64_t fails) {
  FiledUpdate update;
  run_ranks(1, [&](Communicator& comm) {
    bool is_due = false;
    UnitNet net;
    ShardedOptions options = all_in_files(0, [&] {
      return std::make_unique<FaultyFile>([&](Call call, std::int64_t) {
        if (is_due && call == Call::read && ++update.reads == fails) throw Error("a bad sector", ErrorKind::io);
      });
    });
    options.sharding.offload_parameters = options.sharding.offload_gradients = Residence::device;
    options.sharding.offload_budget = 100000;
    Sharded engine(net, testing::context(1), comm, make_elementwise("test", {.settings = settings}), options);
    const auto weights = [&] {
      std::vector<std::vector<double>> all;
      for (const auto& unit : engine.units()) all.push_back(doubles(unit->parameters().own_values()));
      return all;
    };
    take_step(engine, net, comm, 0);
    update.before = weights();
    const PageTraffic traffic = engine.file_traffic();
    const Tensor x = rows(engine.context(), 1, comm, 0, 1, 7, DType::bf16);
    engine.backward(mean(square(net(x))), {.weight = x.dim(0)});
    is_due = true;
    update.is_whole = error_of([&] { engine.step(1e-2).get(); }).empty();
    is_due = false;
    update.after = weights();
    update.read = engine.file_traffic().read - traffic.read;
    update.written = engine.file_traffic().written - traffic.written;
  });
  return update;
}

// A piece of which one part cannot be read, be it the last one, is not updated and not written; all others are.
void expect_one_piece_left(const UpdateSettings& settings, std::int64_t reads_of_a_piece, std::int64_t pieces) {
  const FiledUpdate good = filed_update(settings, 0);
  ASSERT_TRUE(good.is_whole);
  const std::int64_t units = std::ssize(good.before), count = std::ssize(good.before.front());
  ASSERT_EQ(good.reads, units * pieces * reads_of_a_piece);
  EXPECT_EQ(good.written, units * 12 * count) << "masters, and two states";
  const auto length =
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>((count + pieces - 1) / pieces)));
  for (std::int64_t fails = 1; fails <= good.reads; ++fails) {
    const FiledUpdate bad = filed_update(settings, fails);
    EXPECT_FALSE(bad.is_whole);
    const std::int64_t piece = (fails - 1) / reads_of_a_piece, begin = piece % pieces * length;
    const std::int64_t end = std::min(begin + length, count);
    std::vector<std::vector<double>> expected = good.after;
    const auto at = static_cast<std::size_t>(piece / pieces);
    std::copy(good.before[at].begin() + begin, good.before[at].begin() + end, expected[at].begin() + begin);
    EXPECT_NE(expected, good.after);
    EXPECT_TRUE(bad.after == expected) << "read " << fails;
    EXPECT_EQ(bad.reads, good.reads) << "the walk goes on";
    EXPECT_EQ(bad.written, good.written - 12 * (end - begin));
  }
}

TEST(FailingFiles, LeaveAPieceOfWhichTheyDoNotReadAPartAsItIs) {
  expect_one_piece_left(AdamSettings{.decoupled = true}, 3, 3);
}

// Of an optimizer that measures whole parameters.
TEST(FailingFiles, LeaveAUnitOfWhichTheyDoNotReadAPageAsItIs) { expect_one_piece_left(LambSettings{}, 3, 1); }

// Of Muon the first read of an update belongs to the walk that prepares matrices, before ranks exchange them.
TEST(FailingFiles, InTheMiddleOfAnUpdateLeaveNoWeightsThatLookRight) {
  for (const auto& failing : kFailingOptimizers)
    for (const MatrixWork work : {MatrixWork::dealt, MatrixWork::everyone})
      for (const int number : {0, 2})
        for (const int ranks : {1, 2, 3}) {
          OneFault once;
          const std::string& name = failing.first;
          const auto make = failing.second;
          run_ranks(ranks, [&](Communicator& comm) {
            UnitNet net;
            ShardedOptions options = all_in_files(number, [&] {
              return std::make_unique<FaultyFile>(comm.rank() == 0 ? once.fault() : FaultyFile::Fault{});
            });
            options.sharding.offload_parameters = options.sharding.offload_gradients = Residence::device;
            options.sharding.matrices = work;
            Sharded engine(net, testing::context(1), comm, make(), options);
            take_step(engine, net, comm, 0);
            comm.barrier();
            if (comm.rank() == 0) once.is_due = true;
            EXPECT_NE(error_of([&] { take_step(engine, net, comm, 1); }).find("a bad sector"), std::string::npos)
                << name;
            EXPECT_EQ(error_of([&] { engine.weights(); }), kHalfUpdated);
            EXPECT_NE(error_of([&] { engine.optimizer_state(); }), "");
          });
        }
}

// A disk that is full from some write of the first walk on: which writes momentum, and nothing else.
TEST(FailingFiles, ThatAreFullWhileMatricesArePreparedEndTheStepOfAllRanksInOrder) {
  for (const int ranks : {1, 2, 3}) {
    std::atomic<bool> is_full = false;
    run_ranks(ranks, [&](Communicator& comm) {
      UnitNet net;
      const bool fails = comm.rank() == ranks - 1;
      ShardedOptions options = all_in_files(2, [&] {
        return std::make_unique<FaultyFile>([&, fails](Call call, std::int64_t) {
          if (fails && is_full && call == Call::write) throw Error("No space left on device", ErrorKind::io);
        });
      });
      options.sharding.offload_parameters = options.sharding.offload_gradients = Residence::device;
      Sharded engine(net, testing::context(1), comm, kFailingOptimizers[1].second(), options);
      take_step(engine, net, comm, 0);
      comm.barrier();
      is_full = true;
      const std::string told = error_of([&] { take_step(engine, net, comm, 1); });
      EXPECT_NE(told.find("No space left on device"), std::string::npos) << told;
      EXPECT_EQ(error_of([&] { engine.weights(); }), kHalfUpdated);
    });
  }
}

// A rank fails between two units, whatever it fails in: the others hear of it, and none has weights to save.
TEST(FailingFiles, OrRanksThatFailInTheMiddleOfAnUpdateLeaveNoWeightsThatLookRight) {
  for (const int ranks : {2, 3})
    for (const int number : {1, 2}) {
      std::atomic<bool> is_due = false;
      std::atomic<int> told = 0;
      const std::string reason = error_of([&] {
        run_ranks(ranks, [&](Communicator& direct) {
          int shared = 0;  // units
          WatchedCommunicator comm(direct, [&](std::int64_t, const Collective& collective) {
            const bool shares = collective.kind == CollectiveKind::all_gather && collective.dtype() == DType::bf16;
            if (is_due && direct.rank() == 1 && shares && ++shared == 2) throw Error("the rank lost its way");
          });
          UnitNet net;
          ShardedOptions options = all_in_files(number, [] { return std::make_unique<FaultyFile>(); });
          options.sharding.offload_parameters = options.sharding.offload_gradients = Residence::device;
          Sharded engine(net, testing::context(1), comm, make_adamw(), options);
          take_step(engine, net, comm, 0);
          const std::vector<double> before = numbers_of(engine.weights());
          direct.barrier();
          is_due = true;
          try {
            take_step(engine, net, comm, 1);
          } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find("the rank lost its way"), std::string::npos) << error.what();
            std::vector<double> weights;
            const std::string refusal = error_of([&] { weights = numbers_of(engine.weights()); });
            // Others may have heard of it before they began to update.
            const bool has_begun = direct.rank() == 1 || !refusal.empty();
            EXPECT_EQ(refusal, has_begun ? kHalfUpdated : "");
            EXPECT_TRUE(has_begun || weights == before);
            ++told;
            throw;
          }
        });
      });
      EXPECT_EQ(reason, "the rank lost its way");
      EXPECT_EQ(told, ranks) << "stage " << number;
    }
}

TEST(FailingFiles, ThatHaveChangedANumberAreNoticed) {
  FaultyFile* disk = nullptr;
  UnitNet net;
  ThreadHub hub(1);
  const auto comm = make_communicator(hub.connect(0));
  Sharded engine(net, testing::context(1), *comm, make_adamw(), all_in_files(3, [&] {
                   auto made = std::make_unique<FaultyFile>();
                   disk = made.get();
                   return made;
                 }));
  take_step(engine, net, *comm, 0);
  disk->damage(100);
  EXPECT_EQ(error_of([&] { take_step(engine, net, *comm, 1); }),
            "the numbers of weights of layers.0 in a file in 'memory' have changed: 8704 bytes from 0 on are not those "
            "that were written");
}

}  // namespace
}  // namespace keel
