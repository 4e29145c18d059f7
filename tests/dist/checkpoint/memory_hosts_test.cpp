// Who keeps whose second copy, and the folders in which copies lie.

#include "keel/dist/checkpoint/memory_hosts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>

#include "keel/dist/checkpoint/memory_folder.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace testing;
namespace fs = std::filesystem;
using Ranks = std::vector<int>;

// `places` has a letter for each rank.
MemoryHosts paired(const std::vector<int>& node, const std::string& places) {
  std::vector<std::string> place;
  for (const char letter : places) place.emplace_back(1, letter);
  return pair_hosts(node, place, place);
}

TEST(MemoryHosts, PartnersAreThoseOfTheNextHostInTurn) {
  EXPECT_EQ(paired({0, 0, 1, 1}, "aaaa").partner, (Ranks{2, 3, 0, 1}));
  EXPECT_EQ(paired({0, 0, 1}, "aaa").partner, (Ranks{2, 2, 0}));
  EXPECT_EQ(paired({0, 1, 1, 1}, "aaaa").partner, (Ranks{1, 0, 0, 0}));
  EXPECT_EQ(paired({0, 1, 2}, "aaa").partner, (Ranks{1, 2, 0}));
  EXPECT_EQ(paired({0, 1, 0, 1}, "aaaa").partner, (Ranks{1, 0, 3, 2}));
  EXPECT_EQ(paired({0, 0, 0}, "aaa").partner, (Ranks{-1, -1, -1}));
}

TEST(MemoryHosts, OfOneNodeAreApartWhereTheySeeOtherMemoryAndAnotherNodeIsTakenFirst) {
  EXPECT_EQ(paired({0, 0, 0}, "aab").partner, (Ranks{2, 2, 0}));
  EXPECT_EQ(paired({0, 0, 1}, "aba").of, (Ranks{0, 1, 2}));
  EXPECT_EQ(paired({0, 0, 1}, "aba").partner, (Ranks{2, 2, 0}));
}

TEST(MemoryHosts, KeepEachPartOnceAtHomeAndOnceElsewhere) {
  std::mt19937 random(1);
  for (int turn = 0; turn < 300; ++turn) {
    const int n = 1 + static_cast<int>(random() % 9);
    std::vector<int> node;
    std::string places;
    for (int r = 0; r < n; ++r) {
      node.push_back(static_cast<int>(random() % 4));
      places += static_cast<char>('a' + random() % 2);
    }
    const MemoryHosts hosts = paired(node, places);
    int first = 0;
    const bool has_nodes = std::set<int>(node.begin(), node.end()).size() > 1;
    for (int r = 0; r < n; ++r) {
      first += hosts.is_first(r) ? 1 : 0;
      const int partner = hosts.partner[static_cast<std::size_t>(r)];
      EXPECT_EQ(partner >= 0, hosts.count() > 1);
      if (partner < 0) continue;
      const auto at = [&](const std::vector<int>& of, int rank) { return of[static_cast<std::size_t>(rank)]; };
      EXPECT_NE(at(hosts.of, partner), at(hosts.of, r));
      EXPECT_EQ(at(node, partner) != at(node, r), has_nodes);
    }
    EXPECT_EQ(first, hosts.count());
  }
}

TEST(MemoryHosts, AreToldApartByNodeAndFolder) {
  const TemporaryFolder place;
  for (const char* name : {"one", "other"}) fs::create_directory(place / name);
  fs::create_directory_symlink(place / "one", place / "link");
  const char* const roots[] = {"one", "other", "link"};
  run_ranks(3, [&](Communicator& ranks) {
    EXPECT_EQ(meet_in_memory(ranks, place / roots[ranks.rank()]).of, (Ranks{0, 1, 0}));
    EXPECT_EQ(meet_in_memory(ranks, place / "absent").count(), 1);
  });
  run_ranks(3,
            [&](Communicator& ranks) {
              EXPECT_EQ(meet_in_memory(ranks, place / "one").of, (Ranks{0, 1, 1}));
            },
            {.nodes = {0, 1, 1}});
}

constexpr const char *kSession = "0123456789abcdef", *kOther = "fedcba9876543210";

TEST(MemoryFolder, IsOpenToItsUserAlone) {
  const TemporaryFolder place;
  const MemoryFolder folder(place.path(), "/runs/mine", kSession);
  EXPECT_TRUE(folder.steps().empty());
  folder.make(35);
  folder.make(35);
  folder.make(7);
  EXPECT_EQ(folder.steps(), (std::vector<std::int64_t>{7, 35}));
  for (const std::string& path : {folder.path(), folder.of_step(35)}) {
    struct ::stat found = {};
    ASSERT_EQ(::stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0700u) << path;
  }
  folder.move(7, 42);
  folder.remove(35);
  EXPECT_EQ(folder.steps(), std::vector<std::int64_t>{42});
  EXPECT_NE(error_of([&] { folder.move(7, 8); }).find("step-8': No such file"), std::string::npos);
  folder.remove();
  EXPECT_FALSE(fs::exists(folder.path()));
}

// Whoever guesses the name could read what is written, or have other files changed.
TEST(MemoryFolder, ThatSomebodyElseMayHavePutThereIsNeitherUsedNorFollowedNorRemoved) {
  const TemporaryFolder place;
  const MemoryFolder folder(place / "shm", "/runs/mine", kSession), later(place / "shm", "/runs/mine", kOther);
  EXPECT_NE(error_of([&] { folder.make(1); }).find("No such file"), std::string::npos);
  fs::create_directories(place / "shm");
  fs::create_directories(place / "target/step-1");
  const auto is_refused = [&] {
    EXPECT_NE(error_of([&] { folder.make(1); }).find("no folder that this user alone may enter"), std::string::npos);
    EXPECT_NE(error_of([&] { folder.steps(); }), "");
  };
  fs::create_directory_symlink(place / "target", folder.path());
  is_refused();
  folder.remove();
  later.remove_other_sessions();
  EXPECT_TRUE(fs::is_symlink(folder.path()));
  EXPECT_TRUE(fs::exists(place / "target/step-1"));
  fs::remove(folder.path());
  write_text_file(folder.path(), "");
  is_refused();
  fs::remove(folder.path());
  fs::create_directory(folder.path());
  fs::permissions(folder.path(), fs::perms::owner_all | fs::perms::group_read);
  is_refused();
  fs::remove(folder.path());
  fs::permissions(place / "shm", fs::perms::all);
  EXPECT_NE(error_of([&] { folder.make(1); }).find("sticky"), std::string::npos);
  fs::permissions(place / "shm", fs::perms::all | fs::perms::sticky_bit);
  folder.make(1);
  // What is inside is the user's own by then, and links are removed as links.
  fs::create_directory_symlink(place / "target", folder.of_step(2));
  folder.remove();
  EXPECT_FALSE(fs::exists(folder.path()));
  EXPECT_TRUE(fs::exists(place / "target/step-1"));
}

TEST(MemoryFolder, OfOneRunIsNotThatOfAnotherAndOfOneSessionNotThatOfTheNext) {
  const TemporaryFolder place;
  const MemoryFolder mine(place.path(), "/runs/mine", kSession), next(place.path(), "/runs/mine", kOther),
      others(place.path(), "/runs/other", kSession);
  for (const MemoryFolder* folder : {&mine, &next, &others}) folder->make(1);
  next.remove_other_sessions();
  EXPECT_FALSE(fs::exists(mine.path()));
  EXPECT_TRUE(fs::exists(next.of_step(1)) && fs::exists(others.of_step(1)));
  EXPECT_TRUE(MemoryFolder::is_session(MemoryFolder::new_session()));
  EXPECT_NE(MemoryFolder::new_session(), MemoryFolder::new_session());
  for (const char* text : {"", "0123456789abcde", "../3456789abcdef", "0123456789ABCDEF"}) {
    EXPECT_FALSE(MemoryFolder::is_session(text));
    EXPECT_THROW(MemoryFolder(place.path(), "/runs/mine", text), Error);
  }
}

}  // namespace
}  // namespace keel
