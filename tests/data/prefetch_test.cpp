#include "keel/data/prefetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "keel/data/collator.h"
#include "keel/data/divide_rows.h"
#include "keel/data/jsonl.h"
#include "keel/data/sampler.h"
#include "keel/runtime/file.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;

// Row r of step s has the sample id 100 s + r; the last step may have fewer rows, and one step may fail.
class NumberedLoader : public BatchSource {
 public:
  explicit NumberedLoader(std::int64_t steps, std::int64_t last_rows = 6, std::int64_t failing = -1)
      : context_(testing::context()), steps_(steps), last_rows_(last_rows), failing_(failing) {}
  std::int64_t steps() const override { return steps_; }
  std::int64_t rows(std::int64_t step) const override { return step + 1 == steps_ ? last_rows_ : 6; }
  Batch load(std::int64_t step, Rows range) const override {
    check_rows(step, range);
    KEEL_CHECK(step != failing_, "the disk is gone");
    std::vector<double> ids;
    for (std::int64_t row = range.begin; row < range.end; ++row) ids.push_back(static_cast<double>(100 * step + row));
    ++loaded;
    const Tensor tensor = testing::tensor_of(context_, ids, {range.end - range.begin}, DType::i64);
    return Batch(tensor, std::vector<std::int64_t>(ids.size(), -1));
  }
  mutable std::atomic<int> loaded = 0;

 private:
  Context context_;
  std::int64_t steps_, last_rows_, failing_;
};

std::vector<double> ids_until_end(PrefetchLoader& loader) {
  std::vector<double> ids;
  while (const std::optional<Batch> batch = loader.next())
    for (const double id : testing::doubles(batch->sample_ids())) ids.push_back(id);
  return ids;
}

TEST(PrefetchLoader, GivesTheBatchesOfTheWrappedLoaderInOrder) {
  const auto source = std::make_shared<NumberedLoader>(40);
  PrefetchLoader loader(source, 7);
  for (std::int64_t step = 7; step < 40; ++step)
    EXPECT_EQ(testing::doubles(loader.next()->sample_ids()), testing::doubles(source->load_all(step).sample_ids()));
  EXPECT_FALSE(loader.next());
  EXPECT_FALSE(loader.next());
}

TEST(PrefetchLoader, TakesTheRangesOfEachStep) {
  const auto source = std::make_shared<NumberedLoader>(3, 3);
  PrefetchLoader loader(source, 0, [](std::int64_t step) {
    return step == 0 ? std::vector<Rows>{{2, 4}, {4, 6}} : step == 1 ? std::vector<Rows>() : std::vector<Rows>{{0, 1}};
  });
  EXPECT_EQ(ids_until_end(loader), (std::vector<double>{2, 3, 4, 5, 200}));
  PrefetchLoader outside(source, 2, [](std::int64_t) { return std::vector<Rows>{{3, 4}}; });
  EXPECT_EQ(error_of([&] { outside.next(); }), "rows [3, 4) are none of the 3 rows of step 2");
}

TEST(PrefetchLoader, LoadsNoMoreThanItsDepthAhead) {
  const auto source = std::make_shared<NumberedLoader>(BatchSource::kEndless);
  PrefetchLoader loader(source, 0, {}, 3);
  loader.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(source->loaded, 5);  // one taken, three waiting, one in the thread's hands
}

TEST(PrefetchLoader, ThrowsTheThreadsErrorAfterTheBatchesBeforeIt) {
  PrefetchLoader loader(std::make_shared<NumberedLoader>(10, 6, 2), 0);
  EXPECT_TRUE(loader.next());
  EXPECT_TRUE(loader.next());
  EXPECT_EQ(error_of([&] { loader.next(); }), "the disk is gone");
  EXPECT_EQ(error_of([&] { loader.next(); }), "the disk is gone");
}

TEST(PrefetchLoader, LooksAheadForAnErrorBeforeItsBatchIsTaken) {
  const auto halves = [](std::int64_t) { return std::vector<Rows>{{0, 2}, {2, 4}}; };
  PrefetchLoader loader(std::make_shared<NumberedLoader>(10, 6, 3), 0, halves, 2);
  EXPECT_FALSE(error_of([&] { loader.look_ahead(3); }).empty()) << "more than its depth";
  for (int batches = 0; batches < 6; ++batches) {
    EXPECT_EQ(loader.look_ahead(2), batches < 5 ? "" : "the disk is gone") << batches;
    EXPECT_TRUE(loader.next());
  }
  EXPECT_EQ(loader.look_ahead(1), "the disk is gone");
  EXPECT_EQ(error_of([&] { loader.next(); }), "the disk is gone");
  PrefetchLoader to_the_end(std::make_shared<NumberedLoader>(1), 0);
  EXPECT_EQ(to_the_end.look_ahead(2), "");
}

TEST(PrefetchLoader, EndsCleanlyWhetherOrNotItsBatchesWereTaken) {
  for (int taken = 0; taken < 5; ++taken) {
    PrefetchLoader loader(std::make_shared<NumberedLoader>(BatchSource::kEndless), 0, {}, 1);
    for (int i = 0; i < taken; ++i) EXPECT_TRUE(loader.next());
  }
  const auto finished = std::make_shared<NumberedLoader>(1);
  PrefetchLoader loader(finished, 1);
  EXPECT_FALSE(loader.next());
}

TEST(PrefetchLoader, BatchesOutliveIt) {
  std::optional<Batch> batch;
  { batch = PrefetchLoader(std::make_shared<NumberedLoader>(3), 2).next(); }
  EXPECT_EQ(testing::doubles(batch->sample_ids())[0], 200);
}

// Later batches of every four are there first.
class UnevenLoader final : public NumberedLoader {
 public:
  using NumberedLoader::NumberedLoader;
  Batch load(std::int64_t step, Rows range) const override {
    std::this_thread::sleep_for(std::chrono::microseconds(200 * (3 - step % 4)));
    return NumberedLoader::load(step, range);
  }
};

TEST(PrefetchLoader, OfSeveralWorkersGivesTheBatchesOfOne) {
  const auto ranges = [](std::int64_t step) {
    return step % 3 == 1 ? std::vector<Rows>() : std::vector<Rows>{{0, 2}, {2, 3}, {3, 4}};
  };
  PrefetchLoader alone(std::make_shared<NumberedLoader>(40, 4), 3, ranges);
  const std::vector<double> wanted = ids_until_end(alone);
  for (const int workers : {0, 1, 2, 3, 8})
    for (const int depth : {1, 2, 5}) {
      PrefetchLoader loader(std::make_shared<UnevenLoader>(40, 4), 3, ranges, depth, {}, workers);
      EXPECT_EQ(ids_until_end(loader), wanted) << workers << ' ' << depth;
      EXPECT_FALSE(loader.next());
    }
}

TEST(PrefetchLoader, OfSeveralWorkersThrowsTheFirstErrorInItsPlace) {
  for (const int workers : {0, 2, 5}) {
    PrefetchLoader loader(std::make_shared<UnevenLoader>(40, 6, 7), 0, {}, 3, {}, workers);
    for (int step = 0; step < 7; ++step) {
      EXPECT_EQ(loader.look_ahead(1), "");
      EXPECT_EQ(testing::doubles(loader.next()->sample_ids())[0], 100 * step);
    }
    EXPECT_EQ(loader.look_ahead(3), "the disk is gone");
    EXPECT_EQ(error_of([&] { loader.next(); }), "the disk is gone");
    EXPECT_EQ(error_of([&] { loader.next(); }), "the disk is gone");
  }
}

TEST(PrefetchLoader, WithoutWorkersLoadsWhatIsAskedForInTheThreadThatAsks) {
  const auto source = std::make_shared<NumberedLoader>(5);
  PrefetchLoader loader(source, 0, {}, 3, {}, 0);
  EXPECT_EQ(source->loaded, 0);
  EXPECT_EQ(testing::doubles(loader.next()->sample_ids())[0], 0);
  EXPECT_EQ(source->loaded, 1);
  EXPECT_EQ(loader.look_ahead(2), "");
  EXPECT_EQ(source->loaded, 3);
  EXPECT_EQ(ids_until_end(loader).size(), 4u * 6);
  EXPECT_EQ(source->loaded, 5);
}

TEST(PrefetchLoader, OfAnyNumberOfWorkersNamesTheFileAndLineThatIsMalformed) {
  const testing::TemporaryFolder place;
  std::string text;
  for (int line = 1; line <= 9; ++line) text += line == 7 ? "{\"x\": [1, 2}\n" : "{\"x\": [1, 2]}\n";
  write_text_file(place / "points.jsonl", text);
  for (const int workers : {0, 1, 3}) {
    const DatasetPtr points = open_jsonl(place / "points.jsonl");
    PrefetchLoader loader(make_source(testing::context(), points, sequential(points->size(), 2), stack()), 0, {}, 2, {},
                          workers);
    for (int step = 0; step < 3; ++step) EXPECT_TRUE(loader.next());
    const std::string said = loader.look_ahead(1);
    EXPECT_NE(said.find("points.jsonl', line 7, column "), std::string::npos) << said;
    EXPECT_EQ(error_of([&] { loader.next(); }), said);
  }
}

// Each load waits until as many are under way.
class MeetingLoader final : public NumberedLoader {
 public:
  MeetingLoader(std::int64_t steps, int wanted) : NumberedLoader(steps), wanted_(wanted) {}
  Batch load(std::int64_t step, Rows range) const override {
    std::unique_lock lock(mutex_);
    ++here_;
    changed_.notify_all();
    met = changed_.wait_for(lock, std::chrono::seconds(20), [&] { return here_ >= wanted_; }) && met;
    return NumberedLoader::load(step, range);
  }
  mutable bool met = true;

 private:
  int wanted_;
  mutable int here_ = 0;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};

TEST(PrefetchLoader, OfSeveralWorkersLoadsSeveralAtOnce) {
  const auto meeting = std::make_shared<MeetingLoader>(6, 3);
  PrefetchLoader loader(meeting, 0, {}, 1, {}, 3);
  ids_until_end(loader);
  EXPECT_TRUE(meeting->met);
}

TEST(PrefetchLoader, OfSeveralWorkersLoadsNoMoreThanItsDepthAndOneEach) {
  const auto source = std::make_shared<NumberedLoader>(BatchSource::kEndless);
  PrefetchLoader loader(source, 0, {}, 2, {}, 3);
  loader.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(source->loaded, 6);  // one taken, two waiting, one in the hands of each
}

TEST(DivideRows, GivesEachRowToOneMicroBatchOfOneRank) {
  std::vector<Rows> all;
  for (std::int64_t rank = 0; rank < 4; ++rank)
    for (const Rows range : divide_rows(48, 3, rank, 4)) all.push_back(range);
  ASSERT_EQ(all.size(), 16u);
  for (std::int64_t i = 0; i < 16; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], (Rows{3 * i, 3 * i + 3}));
  EXPECT_EQ(divide_rows(3, 1, 2, 4), (std::vector<Rows>{{2, 3}}));
  EXPECT_EQ(divide_rows(3, 1, 3, 4), (std::vector<Rows>{{3, 3}})) << "a rank without rows";
  EXPECT_FALSE(error_of([] { divide_rows(0, 1, 0, 4); }).empty());
  EXPECT_FALSE(error_of([] { divide_rows(10, 0); }).empty());
  EXPECT_FALSE(error_of([] { divide_rows(10, 1, 2, 2); }).empty());
}

TEST(DivideRows, GivesEveryRankAsManyMicroBatchesWhateverTheNumbers) {
  for (const std::int64_t rows : {1, 3, 8, 10, 13, 48})
    for (std::int64_t world = 1; world <= 8; ++world)
      for (const std::int64_t micro : {1, 2, 3, 5, 100}) {
        std::int64_t next = 0;
        for (std::int64_t rank = 0; rank < world; ++rank) {
          const std::vector<Rows> ranges = divide_rows(rows, micro, rank, world);
          EXPECT_EQ(ranges.size(), divide_rows(rows, micro, 0, world).size());
          for (const Rows range : ranges) {
            EXPECT_EQ(range.begin, next);
            EXPECT_LE(range.end - range.begin, micro);
            next = range.end;
          }
        }
        EXPECT_EQ(next, rows);
      }
}

TEST(DivideRows, InTurnGivesARankWhatEachOfItsOwnWouldHave) {
  for (const std::int64_t rows : {3, 10, 13})
    for (const std::int64_t of_each : {1, 2, 4, 8}) {
      std::vector<Rows> all, in_turn;
      for (std::int64_t rank = 0; rank < 8; ++rank)
        for (const Rows range : divide_rows(rows, 1, rank, 8)) all.push_back(range);
      for (std::int64_t rank = 0; rank < 8 / of_each; ++rank)
        for (const Rows range : divide_rows_in_turn(rows, 1, rank, 8, of_each)) in_turn.push_back(range);
      EXPECT_EQ(in_turn, all) << rows << ' ' << of_each;
    }
}

TEST(DivideRows, OneRowIsLoadedForAllThatAreEmptyInThePlaceOfTheFirst) {
  EXPECT_EQ(
      loaded_rows(divide_rows_in_turn(10, 1, 0, 8, 8)),
      (std::vector<Rows>{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {0, 1}, {5, 6}, {6, 7}, {7, 8}, {8, 9}, {9, 10}}));
  EXPECT_EQ(loaded_rows({{0, 2}, {2, 4}}), (std::vector<Rows>{{0, 2}, {2, 4}}));
}

}  // namespace
}  // namespace keel
