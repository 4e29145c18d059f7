// Copies of the newest state in the memory of hosts, and the checkpoints that are made of them.

#include "keel/dist/checkpoint/memory_copies.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <set>

#include "keel/dist/checkpoint/memory_promotion.h"
#include "keel/dist/comm/decorators.h"
#include "tests/dist/checkpoint/checkpoint_support.h"

namespace keel {
namespace {

using namespace testing;
namespace fs = std::filesystem;
using Files = std::map<std::string, std::string>;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// Hosts that are folders, and a disk that all ranks see. `map` has the host of each rank.
struct World {
  explicit World(std::vector<int> map, bool has_nodes = true) : map(std::move(map)) {
    if (has_nodes) options.nodes = this->map;
    for (const int host : this->map) fs::create_directories(root(host));
    fs::create_directory(place / "disk");
  }
  std::string root(int host) const { return place / concat("host-", host); }
  MemoryFolder folder(int host) const { return {root(host), "/runs/mine", "0123456789abcdef"}; }
  MemoryFolder folder_of(const Communicator& ranks) const {
    return folder(map[static_cast<std::size_t>(ranks.rank())]);
  }
  std::string checkpoint(std::int64_t step) const { return place / concat("disk/step-", step); }
  // Trains to each step and copies it; and saves it beside.
  void copy(const std::vector<int>& steps, const ShardedOptions& options = stage(2)) {
    run_ranks(
        static_cast<int>(map.size()),
        [&](Communicator& ranks) {
          Trained rank(ranks, options);
          MemoryCopies copies(rank.engine, ranks, folder_of(ranks));
          for (int done = 0; const int step : steps) {
            rank.train(done, step);
            done = step;
            EXPECT_EQ(copies.take(step, {{"step", step}}), "");
            save_checkpoint(place / concat("saved-", step), rank.engine, ranks, {{"step", step}});
          }
        },
        this->options);
  }
  // By ranks of these hosts. Returns the step, 0: none.
  std::int64_t promote(const std::vector<int>& hosts, std::int64_t above = -1, std::int64_t below = kMost) {
    std::int64_t step = 0;
    told.clear();
    run_ranks(static_cast<int>(hosts.size()),
              [&](Communicator& ranks) {
                const std::optional<Promotion> made = promote_copy(
                    folder(hosts[static_cast<std::size_t>(ranks.rank())]), ranks, above, below,
                    [&](std::int64_t each) { return checkpoint(each); },
                    [&](std::string_view complaint) { told += concat(complaint, '\n'); });
                if (ranks.rank() != 0 || !made) return;
                step = made->step;
                origin = made->hosts;
                EXPECT_EQ(made->path, checkpoint(step));
              },
              {.nodes = hosts});
    return step;
  }
  // The file of that name wherever it lies in memory.
  std::vector<std::string> places_of(const std::string& name) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(place.path()))
      if (entry.path().filename() == name && entry.path().string().find("/host-") != std::string::npos)
        found.push_back(entry.path().string());
    return found;
  }
  void expect_saved(std::int64_t step) const {
    EXPECT_TRUE(files_of(checkpoint(step)) == files_of(place / concat("saved-", step)));
  }

  TemporaryFolder place;
  std::vector<int> map;
  CommunicatorOptions options;
  std::string told, origin;
};

void flip(const std::string& path, std::int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char byte = static_cast<char>(file.get());
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 4));
}

const std::vector<std::vector<int>> kMaps = {{0},          {0, 0, 0}, {0, 1},         {0, 0, 1},
                                             {0, 0, 1, 1}, {0, 1, 2}, {0, 1, 0, 1, 1}};

TEST(MemoryCopies, AreTheFilesOfACheckpointOfThatStepOnTwoHosts) {
  for (const std::vector<int>& map : kMaps)
    for (const int number : {0, 3}) {
      World world(map);
      ShardedOptions options = bf16_stage(number);
      if (number == 0 && map.size() > 1) options.compression = {.type = Compression::Type::int8};
      world.copy({2}, options);
      const Files saved = files_of(world.place / "saved-2");
      std::map<std::string, std::size_t> times;
      const std::set<int> hosts(map.begin(), map.end());
      for (const int host : hosts) {
        EXPECT_EQ(world.folder(host).steps(), std::vector<std::int64_t>{2});
        for (const auto& [name, bytes] : files_of(world.folder(host).of_step(2))) {
          if (name.ends_with(".json")) continue;
          EXPECT_TRUE(saved.at(name) == bytes) << name;
          ++times[name];
        }
      }
      EXPECT_EQ(times.size(), saved.size() - 1) << "all but the manifest";
      for (const auto& [name, count] : times) EXPECT_EQ(count, hosts.size() > 1 ? 2u : 1u) << name;
      EXPECT_EQ(world.promote(map), 2);
      world.expect_saved(2);
      EXPECT_EQ(world.told, "");
    }
}

TEST(MemoryCopies, OfHostsOnOneNodeLieInEachOnesFolder) {
  World world({0, 0, 1}, false);
  world.copy({2});
  EXPECT_EQ(world.places_of("part-0.json").size(), 2u);
  EXPECT_EQ(world.promote({1, 1, 1}), 2);
  world.expect_saved(2);
}

// The files of the one before stay for the next, but count for nothing.
TEST(MemoryCopies, OfTheNewestStepAloneCount) {
  World world({0, 0, 1});
  world.copy({2, 3, 5, 6});
  for (const int host : {0, 1}) {
    EXPECT_EQ(world.folder(host).steps(), (std::vector<std::int64_t>{5, 6}));
    EXPECT_FALSE(fs::exists(world.folder(host).of_step(5) + "/copy.json"));
  }
  EXPECT_EQ(world.promote({0, 0, 1}, 6), 0);
  EXPECT_EQ(world.promote({0, 0, 1}, -1, 6), 0);
  EXPECT_EQ(world.told, "");
  EXPECT_EQ(world.promote({0, 0, 1}, 5, 7), 6);
  world.expect_saved(6);
}

// Writing to files that nobody finds any more would be no copy.
TEST(MemoryCopies, AreMadeAnewWhereSomebodyHasRemovedTheirFiles) {
  for (const bool all : {true, false}) {
    World world({0, 0, 1});
    run_ranks(
        3,
        [&](Communicator& ranks) {
          Trained rank(ranks, stage(2));
          MemoryCopies copies(rank.engine, ranks, world.folder_of(ranks));
          for (const int step : {1, 2}) EXPECT_EQ(copies.take(step, {{"step", step}}), "");
          ranks.barrier();
          if (ranks.rank() == 0 && all) fs::remove_all(world.folder(1).path());
          else if (ranks.rank() == 0) fs::remove(world.folder(1).of_step(1) + "/model-2-of-3.safetensors");
          ranks.barrier();
          rank.train(0, 1);
          for (const int step : {3, 4}) EXPECT_EQ(copies.take(step, {{"step", step}}), "");
          save_checkpoint(world.place / "saved-4", rank.engine, ranks, {{"step", 4}});
        },
        world.options);
    fs::remove_all(world.root(0));
    EXPECT_EQ(world.promote({1, 1}), 4) << world.told;
    world.expect_saved(4);
  }
}

TEST(MemoryCopies, OfALostHostAreOnTheOthersForAnyNumberOfRanks) {
  for (const std::vector<int>& map : kMaps)
    for (const int lost : {0, 1, 2}) {
      World world(map);
      const std::set<int> hosts(map.begin(), map.end());
      if (hosts.size() < 2 || !hosts.contains(lost)) continue;
      world.copy({2});
      fs::remove_all(world.root(lost));
      std::vector<int> left;
      for (const int host : map)
        if (host != lost) left.push_back(host);
      EXPECT_EQ(world.promote(left), 2);
      EXPECT_EQ(world.origin.find(concat("host-", lost)), std::string::npos) << world.origin;
      world.expect_saved(2);
      fs::remove_all(world.checkpoint(2));
      fs::create_directories(world.root(lost));  // an empty one answers again, with more ranks than before
      std::vector<int> more = {lost};
      more.insert(more.end(), map.begin(), map.end());
      EXPECT_EQ(world.promote(more), 2);
      world.expect_saved(2);
    }
}

TEST(MemoryCopies, WithoutAPartAreNotUsableAndOneLineSaysWhose) {
  World world({0, 1, 2});
  world.copy({2});
  fs::remove_all(world.root(1));
  fs::remove_all(world.root(2));
  EXPECT_EQ(world.promote({0, 0}), 0);
  EXPECT_EQ(world.told, "the copy of step 2 in memory is not usable: no host has the part of rank 1 of 3\n");
  fs::remove_all(world.root(0));
  EXPECT_EQ(world.promote({0, 1, 2}), 0);
  EXPECT_EQ(world.told, "");
  EXPECT_EQ(names_of(world.place / "disk"), std::vector<std::string>{});
}

// In every way in which a file can be damaged, on one host and on both.
TEST(MemoryCopies, ThatAreDamagedOnOneHostAreTakenFromTheOtherAndOnBothNotAtAll) {
  struct Damage {
    const char* what;
    std::function<void(const std::string& path)> f;
  };
  const Damage damages[] = {
      {"a number", [](const std::string& path) { flip(path, -9); }},
      {"its head", [](const std::string& path) { flip(path, 20); }},
      {"its length", [](const std::string& path) { fs::resize_file(path, fs::file_size(path) - 1); }},
      {"all of it", [](const std::string& path) { fs::remove(path); }}};
  for (const char* name : {"model-2-of-3.safetensors", "part-1.json", "copy.json"})
    for (const Damage& damage : damages) {
      SCOPED_TRACE(concat(damage.what, " of ", name));
      World world({0, 0, 1});
      world.copy({2});
      const std::vector<std::string> places = world.places_of(name);
      ASSERT_EQ(places.size(), 2u);
      std::size_t promoted = 0;
      for (const std::string& path : places) {
        if (std::string(damage.what) == "a number") flip(path, static_cast<std::int64_t>(fs::file_size(path)) - 9);
        else damage.f(path);
        if (path != places.front()) break;
        EXPECT_EQ(world.promote({0, 0, 1}), 2);
        world.expect_saved(2);
        promoted += 1;
        fs::remove_all(world.checkpoint(2));
      }
      EXPECT_EQ(promoted, 1u);
      EXPECT_EQ(world.promote({0, 0, 1}), 0);
      EXPECT_EQ(names_of(world.place / "disk"), std::vector<std::string>{});
      const bool is_gone = std::string(damage.what) == "all of it";
      // Without copy.json it is a copy that nobody has finished.
      if (is_gone && name == std::string("copy.json")) EXPECT_EQ(world.told, "");
      else
        EXPECT_NE(world.told.find(is_gone && name == std::string("part-1.json") ? "rank 1" : name), std::string::npos)
            << world.told;
    }
}

TEST(MemoryCopies, ThatNobodyHasFinishedCountForNothing) {
  World world({0, 0, 1});
  world.copy({2});
  const auto unfinished = [&](int host) { return world.folder(host).of_step(4); };
  for (const int host : {0, 1}) fs::copy(world.folder(host).of_step(2), unfinished(host));
  for (const int host : {0, 1}) fs::remove(unfinished(host) + "/copy.json");
  EXPECT_EQ(world.promote({0, 0, 1}), 2);
  EXPECT_EQ(world.told, "");
  world.expect_saved(2);
}

TEST(MemoryCopies, ReplaceADamagedCheckpointOfTheirStepAndNothingElse) {
  World world({0, 1});
  world.copy({2});
  fs::create_directory(world.checkpoint(2));
  write_text_file(world.checkpoint(2) + "/manifest.json", "nonsense");
  EXPECT_EQ(world.promote({0, 1}), 2);
  world.expect_saved(2);
  fs::remove_all(world.place / "disk");
  write_text_file(world.place / "disk", "");
  EXPECT_EQ(world.promote({0, 1}), 0);
  EXPECT_TRUE(world.told.starts_with("the copy of step 2 in memory is not usable: cannot create folder "))
      << world.told;
}

// The rank that keeps a copy for another one cannot write it, or the rank its own.
TEST(MemoryCopies, ThatCannotBeMadeAreToldByAllAndTheOnesBeforeStay) {
  for (const bool own : {true, false}) {
    World world({0, 0, 1});
    run_ranks(
        3,
        [&](Communicator& ranks) {
          Trained rank(ranks, stage(2));
          MemoryCopies copies(rank.engine, ranks, world.folder_of(ranks));
          EXPECT_EQ(copies.take(2, {{"step", 2}}), "");
          save_checkpoint(world.place / "saved-2", rank.engine, ranks, {{"step", 2}});
          rank.train(0, 1);
          const std::string in_the_way = concat(world.folder(1).of_step(3), own ? "" : "/model-1-of-3.safetensors");
          if (ranks.rank() == 0) own ? write_text_file(in_the_way, "") : (void)fs::create_directories(in_the_way);
          if (ranks.rank() == 0 && !own) fs::permissions(world.folder(1).of_step(3), fs::perms::owner_all);
          ranks.barrier();
          const std::string failure = copies.take(3, {{"step", 3}});
          EXPECT_TRUE(failure.starts_with("rank 2: cannot ")) << failure;
          EXPECT_NE(failure.find(in_the_way), std::string::npos) << failure;
          ranks.barrier();
          EXPECT_EQ(world.folder_of(ranks).steps(),
                    own && ranks.rank() == 2 ? std::vector<std::int64_t>({2, 3}) : std::vector<std::int64_t>({2}));
          ranks.barrier();
          if (ranks.rank() == 0) fs::remove(in_the_way);
          ranks.barrier();
          EXPECT_EQ(copies.take(4, {{"step", 4}}), "");
          copies.remove();
          ranks.barrier();
          EXPECT_TRUE(copies.folder().steps().empty());
          rank.train(1, 2);
          EXPECT_EQ(copies.take(5, {{"step", 5}}), "");
        },
        world.options);
    EXPECT_EQ(world.promote({0, 0, 1}), 5);
  }
}

// Changes a byte of the message that a rank receives as the n-th.
class ChangedMessage : public CommunicatorDecorator {
 public:
  ChangedMessage(Communicator& inner, int number) : CommunicatorDecorator(inner), left_(number) {}
  Work begin(const Collective& collective) override {
    const Work work = inner_.begin(collective);
    if (collective.kind != CollectiveKind::receive || --left_ != 0) return work;
    work.wait();
    collective.output.raw()[collective.output.bytes() / 2] ^= std::byte{1};
    return {};
  }

 private:
  int left_;
};

// The text of a part, the weights, and the state of the optimizer.
TEST(MemoryCopies, ThatChangeOnTheirWayAreNoCopies) {
  for (const int number : {1, 2, 3}) {
    World world({0, 1});
    run_ranks(
        2,
        [&](Communicator& ranks) {
          Trained rank(ranks, stage(2));
          ChangedMessage changed(ranks, ranks.rank() == 1 ? number : -1);
          MemoryCopies copies(rank.engine, changed, world.folder_of(ranks));
          const std::string failure = copies.take(2, {{"step", 2}});
          EXPECT_TRUE(failure.starts_with("rank 1: ")) << failure;
          EXPECT_NE(failure.find("(its hash differs)"), std::string::npos) << failure;
          ranks.barrier();
          EXPECT_TRUE(copies.folder().steps().empty());
          EXPECT_EQ(copies.take(3, {{"step", 3}}), "");
        },
        world.options);
    EXPECT_EQ(world.promote({0, 1}), 3);
  }
}

TEST(MemoryCopies, CannotBeMadeOfAStateThatIsNoText) {
  World world({0, 1, 1});
  run_ranks(
      3,
      [&](Communicator& ranks) {
        Trained rank(ranks, stage(2));
        MemoryCopies copies(rank.engine, ranks, world.folder_of(ranks));
        EXPECT_TRUE(copies.take(2, {{"text", "\xff"}}).starts_with("rank 0: "));
        ranks.barrier();
        EXPECT_TRUE(copies.folder().steps().empty());
      },
      world.options);
}

TEST(MemoryCopies, TravelInPiecesOfSixteenMebibytes) {
  World world({0, 1});
  run_ranks(
      2,
      [&](Communicator& ranks) {
        LargeNet net;
        Sharded engine(net, testing::context(1), ranks, make_adamw({}), stage(2));
        MemoryCopies copies(engine, ranks, world.folder_of(ranks));
        EXPECT_GT(bytes_of(sections_of(engine, number_files(engine, ranks))), kExtentBytes);
        const std::size_t before = engine.context().host().memory().total.peak;
        EXPECT_EQ(copies.take(2, {{"step", 2}}), "");
        EXPECT_EQ(engine.context().host().memory().total.peak, before) << "out of memory into memory";
        save_checkpoint(world.place / "saved-2", engine, ranks, {{"step", 2}});
      },
      world.options);
  fs::remove_all(world.root(0));
  EXPECT_EQ(world.promote({1}), 2);
  world.expect_saved(2);
}

TEST(MemoryMark, IsReadAsItWasWrittenOrRefused) {
  const MemoryMark mark{3, {{"step", 35}, {"config", "steps: 1\n"}}};
  const std::string text = mark_text(mark);
  EXPECT_EQ(parse_mark(text, "copy.json").ranks, 3);
  EXPECT_EQ(parse_mark(text, "copy.json").state.dump(), mark.state.dump());
  std::string other = text;
  other[other.find("35")] = '4';
  EXPECT_NE(error_of([&] { parse_mark(other, "copy.json"); }).find("its hash differs"), std::string::npos);
  EXPECT_NE(error_of([&] { parse_mark(mark_text({0, {}}), "copy.json"); }).find("0 ranks"), std::string::npos);
  EXPECT_NE(error_of([&] { parse_mark(manifest_text({}), "copy.json"); }).find("malformed"), std::string::npos);
}

}  // namespace
}  // namespace keel
