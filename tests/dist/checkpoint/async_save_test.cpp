// Saves beside the training: the bytes of the moment, whatever happens to the numbers meanwhile, on all ranks or none.

#include "keel/dist/checkpoint/async_save.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <thread>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/comm/thread_transport.h"
#include "tests/dist/checkpoint/checkpoint_support.h"
#include "tests/dist/comm/forwarding_transport.h"

namespace keel {
namespace {

using namespace testing;

TEST(AsyncSave, WritesTheBytesOfItsMomentWhileTheNumbersChange) {
  for (const int n : {1, 2, 3, 4})
    for (const int number : {0, 1, 2, 3}) {
      const TemporaryFolder place;
      run_ranks(n, [&](Communicator& ranks) {
        Trained rank(ranks, bf16_stage(number));
        AsyncSave save(rank.engine, ranks);
        rank.train(0, 2);
        save_checkpoint(place / "at-once", rank.engine, ranks, {{"step", 2}});
        save.begin(place / "beside", {{"step", 2}});
        rank.train(2, 4);
        EXPECT_EQ(save.finish().failure, "");
        save_checkpoint(place / "later", rank.engine, ranks, {{"step", 2}});
      });
      EXPECT_TRUE(files_of(place / "beside") == files_of(place / "at-once")) << n << " ranks, stage " << number;
      EXPECT_FALSE(files_of(place / "later") == files_of(place / "at-once")) << n << " ranks, stage " << number;
      EXPECT_EQ(names_of(place.path()), (std::vector<std::string>{"at-once", "beside", "later"}));
    }
}

// MPI's at MPI_THREAD_FUNNELED: one thread may call. Its large messages take a while.
class OneThreaded : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  std::unique_ptr<Message> receive(int from, std::uint64_t tag, void* data, std::size_t bytes) override {
    std::unique_ptr<Message> message = ForwardingTransport::receive(from, tag, data, bytes);
    if (bytes < kLarge) return message;
    return std::make_unique<LateMessage>(std::move(message));
  }
  std::optional<SharedAreas> share(std::size_t /*bytes*/) override { return {}; }
  void check_thread() const override {
    KEEL_CHECK(std::this_thread::get_id() == thread_, "another thread calls the communicator");
  }

 private:
  static constexpr std::size_t kLarge = 2000;  // bytes
  class LateMessage : public Message {
   public:
    explicit LateMessage(std::unique_ptr<Message> inner) : inner_(std::move(inner)) {}
    bool has_finished() override { return std::chrono::steady_clock::now() >= due_ && inner_->has_finished(); }
    void keep(const std::shared_ptr<const void>& owner) override { inner_->keep(owner); }

   private:
    std::unique_ptr<Message> inner_;
    std::chrono::steady_clock::time_point due_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  };
  std::thread::id thread_ = std::this_thread::get_id();
};

TEST(SaveCheckpoint, LeavesCollectivesThatAreUnderWayToTheThreadThatTrains) {
  for (const int n : {2, 3})
    for (const int number : {0, 1, 2, 3}) {
      const TemporaryFolder place;
      ThreadHub hub(n);
      run_ranks(n, [&](Communicator& ranks) {
        const auto slow = make_communicator(std::make_unique<OneThreaded>(hub.connect(ranks.rank())));
        Trained rank(ranks, stage(number)), late(*slow, stage(number));
        rank.train(0, 2);
        late.train(0, 2);
        save_checkpoint(place / "late", late.engine, *slow, {{"step", 2}});
        save_checkpoint(place / "at-once", rank.engine, ranks, {{"step", 2}});
      });
      EXPECT_TRUE(files_of(place / "late") == files_of(place / "at-once")) << n << " ranks, stage " << number;
    }
}

TEST(AsyncSave, IsCommittedByPollingAndTellsItsResultOnceOnEveryRank) {
  const TemporaryFolder place;
  run_ranks(3, [&](Communicator& ranks) {
    Trained rank(ranks, stage(2));
    AsyncSave save(rank.engine, ranks);
    EXPECT_FALSE(save.poll());
    int told = 0, committed = 0;
    for (int i = 0; i < 3; ++i) {
      rank.train(i, i + 1);
      save.begin(place / concat("c", i), {}, [&] { ++committed; });
      EXPECT_NE(error_of([&] { save.begin(place / "other", {}); }).find("is being saved"), std::string::npos);
      while (save.is_under_way())
        if (const std::optional<SaveResult> result = save.poll()) {
          EXPECT_EQ(result->path, place / concat("c", i));
          EXPECT_EQ(result->failure, "");
          ++told;
        }
    }
    EXPECT_EQ(told, 3);
    EXPECT_EQ(committed, ranks.rank() == 0 ? 3 : 0);
  });
  EXPECT_EQ(names_of(place.path()), (std::vector<std::string>{"c0", "c1", "c2"}));
}

// A device's notes are heard one step late; a loop of one's own may be later still.
TEST(AsyncSave, IsCommittedByNotesHoweverLateTheyAreHeard) {
  for (const std::size_t delay : {0, 1, 5}) {
    const TemporaryFolder place;
    run_ranks(3, [&](Communicator& ranks) {
      Trained rank(ranks, stage(1));
      AsyncSave save(rank.engine, ranks);
      std::deque<std::vector<SaveNote>> told;
      int results = 0;
      for (int step = 0; step < 400 && results < 2; ++step) {
        if (!save.is_under_way()) save.begin(place / concat("c", results), {});
        told.push_back(gather_values(ranks, save.note()));
        if (told.size() <= delay) continue;
        if (save.hear(told.front())) ++results;
        told.pop_front();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_EQ(results, 2) << "delay " << delay;
      if (save.is_under_way()) save.finish();
    });
    EXPECT_EQ(names_of(place.path()), (std::vector<std::string>{"c0", "c1"})) << "delay " << delay;
  }
}

// Its first or its last parameter has a name that no file can hold: the rank that owns it cannot write.
struct Unwritable : Module {
  Linear first{64, 64}, last{64, 64};
  bool is_first = false;
  void visit(Visitor& v) override {
    v(is_first ? "\xff" : "first", first);
    v(is_first ? "last" : "\xff", last);
  }
  bool is_unit() const override { return true; }
};

TEST(AsyncSave, ThatARankCannotWriteFailsOnAllWithItsReasonAndLeavesWhatWasThere) {
  for (const bool is_first : {true, false}) {
    const TemporaryFolder place;
    run_ranks(3, [&](Communicator& ranks) {
      Trained good(ranks, stage(2));
      save_checkpoint(place / "c", good.engine, ranks, {{"step", 1}});
      Unwritable net;
      net.is_first = is_first;
      Sharded engine(net, testing::context(1), ranks, make_adamw({}), stage(2));
      AsyncSave save(engine, ranks);
      for (int again = 0; again < 2; ++again) {
        save.begin(place / "c", {{"step", 2}});
        const SaveResult result = save.finish();
        EXPECT_EQ(result.path, place / "c");
        EXPECT_EQ(result.failure,
                  concat("rank ", is_first ? 0 : 1, ": a tensor's name or the metadata are not valid UTF-8"));
      }
      EXPECT_EQ(error_of([&] { save_checkpoint(place / "c", engine, ranks, {}); }),
                concat("rank ", is_first ? 0 : 1, ": a tensor's name or the metadata are not valid UTF-8"));
    });
    EXPECT_EQ(read_manifest(place / "c").state.at("step").integer(), 1);
    EXPECT_EQ(names_of(place.path()), std::vector<std::string>{"c"});
  }
}

TEST(AsyncSave, ThatCannotBeginIsAnErrorOfAllAndTheNextCan) {
  const TemporaryFolder place;
  write_text_file(place / "file", "");
  run_ranks(2, [&](Communicator& ranks) {
    Trained rank(ranks, stage(2));
    AsyncSave save(rank.engine, ranks);
    EXPECT_NE(error_of([&] { save.begin(place / "file/c", {}); }).find(place / "file/c"), std::string::npos);
    EXPECT_NE(error_of([&] { save.begin(place / "c", {{"text", "\xff"}}); }), "");
    EXPECT_FALSE(save.is_under_way());
    save.begin(place / "c", {});
    EXPECT_EQ(save.finish().failure, "");
  });
  EXPECT_EQ(names_of(place.path()), (std::vector<std::string>{"c", "file"}));
}

TEST(AsyncSave, ThatNobodyFinishesDisappears) {
  const TemporaryFolder place;
  run_ranks(2, [&](Communicator& ranks) {
    Trained rank(ranks, stage(2));
    {
      AsyncSave save(rank.engine, ranks);
      save.begin(place / "c", {});
    }
    ranks.barrier();
  });
  EXPECT_EQ(names_of(place.path()), std::vector<std::string>{});
}

// A rank that makes one file after the other, and notices late that the first rank has left.
TEST(SaveJob, ThatIsGivenUpLeavesNothingHoweverLongARankGoesOn) {
  constexpr int kFiles = 400;
  const TemporaryFolder place;
  run_ranks(2, [&](Communicator& ranks) {
    const Context host = testing::context(1);
    for (int round = 0; round < 10; ++round) {
      {
        std::optional<SaveJob> job;
        job.emplace(place / "c", 1, ranks, Json::object(), [] {});
        job->write([&] {
          std::vector<Section> sections;
          for (int i = 0; ranks.rank() == 1 && i < kFiles; ++i)
            sections.push_back({"s", concat("file-", i), {{"t", {1}, 0, zeros(host, {1})}}});
          return sections;
        });
        while (ranks.rank() == 0 && job->note().state == SaveNote::State::writing) std::this_thread::yield();
        if (ranks.rank() == 0) job.reset();
        ranks.barrier();
      }
      ranks.barrier();
      EXPECT_EQ(names_of(place.path()), std::vector<std::string>{});
      ranks.barrier();
    }
  });
}

TEST(AsyncSave, CountsItsCopyAsMemoryForCheckpoints) {
  run_ranks(2, [&](Communicator& ranks) {
    Trained rank(ranks, bf16_stage(2));
    const std::int64_t bytes = bytes_of(sections_of(rank.engine, number_files(rank.engine, ranks)));
    EXPECT_GT(bytes, 0);
    EXPECT_EQ(rank.engine.context().memory()[Purpose::checkpoint].current, 0u);
    const AsyncSave save(rank.engine, ranks);
    const auto counted = static_cast<std::int64_t>(rank.engine.context().memory()[Purpose::checkpoint].current);
    EXPECT_EQ(counted, bytes);
  });
}

}  // namespace
}  // namespace keel
