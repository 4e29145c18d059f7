#include "keel/data/map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <numeric>
#include <random>

#include "keel/data/example_bytes.h"
#include "keel/runtime/file.h"
#include "tests/data/list_dataset.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::numbered;
using testing::TemporaryFolder;

// Example i becomes i % 4 examples.
std::vector<Example> some_of(const Example& example, std::int64_t i) {
  std::vector<Example> made;
  for (std::int64_t part = 0; part < i % 4; ++part)
    made.push_back(Example()
                       .set("x", example.integer("x"))
                       .set("part", part)
                       .set("text", std::string(static_cast<std::size_t>(i % 30), 'a')));
  return made;
}

std::vector<Example> all_of_them(const Dataset& data) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(data.size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  return data.examples(numbers);
}

void expect_mapped(const Dataset& data, std::int64_t n) {
  std::vector<Example> wanted;
  const DatasetPtr below = numbered(n);
  for (std::int64_t i = 0; i < n; ++i)
    for (const Example& example : some_of(below->example(i), i)) wanted.push_back(example);
  EXPECT_EQ(all_of_them(data), wanted);
  std::mt19937_64 engine(1);
  for (int i = 0; i < 50 && !wanted.empty(); ++i) {
    const std::size_t at = engine() % wanted.size();
    EXPECT_EQ(data.example(static_cast<std::int64_t>(at)), wanted[at]);
  }
  EXPECT_NE(error_of([&] { data.example(data.size()); }), "");
}

TEST(Map, HasAllThatTheFunctionMakesInOrder) {
  for (const std::int64_t n : {0, 1, 2, 63, 64, 65, 1000, 9000}) {
    const TemporaryFolder folder;
    expect_mapped(*map(numbered(n), some_of, "1"), n);
    expect_mapped(*map(numbered(n), some_of, "1", folder / "new/caches"), n);
    expect_mapped(*map(numbered(n), some_of, "1", folder / "new/caches"), n);
  }
}

TEST(Map, CallsTheFunctionOnceForPartsThatFollowEachOther) {
  std::atomic<int> calls = 0;
  const DatasetPtr data = map(
      numbered(100),
      [&](const Example& example, std::int64_t i) {
        ++calls;
        return some_of(example, i);
      },
      "1");
  EXPECT_EQ(calls, 100);
  all_of_them(*data);
  EXPECT_EQ(calls, 175);  // 25 of them become nothing
}

TEST(Map, CallsTheFunctionNoMoreWhereACacheIsOfTheSameSourceAndVersion) {
  const TemporaryFolder folder;
  std::atomic<int> calls = 0;
  const MapFunction f = [&](const Example& example, std::int64_t i) {
    ++calls;
    return some_of(example, i);
  };
  const DatasetPtr made = map(numbered(500), f, "1", folder.path());
  EXPECT_EQ(calls, 500);
  const DatasetPtr again = map(numbered(500), f, "1", folder.path());
  EXPECT_EQ(calls, 500);
  EXPECT_EQ(made->fingerprint(), again->fingerprint());
  EXPECT_EQ(made->fingerprint(), map(numbered(500), f, "1")->fingerprint());
  calls = 0;
  EXPECT_NE(map(numbered(500), f, "2", folder.path())->fingerprint(), made->fingerprint());
  EXPECT_EQ(calls, 500);
  map(map_each(
          numbered(500), [](const Example& e) { return e; }, "other"),
      f, "1", folder.path());
  EXPECT_EQ(calls, 1000);
  for (std::int64_t i = 0; i < made->size(); ++i) EXPECT_EQ(made->length(i), longest_field(made->example(i)));
}

TEST(Map, ACacheThatIsNotWholeIsMadeAgainAndADamagedExampleIsNamed) {
  const TemporaryFolder folder;
  const auto open = [&] { return map(numbered(100), some_of, "1", folder.path()); };
  open();
  const std::string path = std::filesystem::directory_iterator(folder.path())->path().string(),
                    good = read_text_file(path);
  for (const std::string& bad : {std::string(), good.substr(0, 63), good.substr(0, good.size() - 1), good + "x",
                                 std::string(good).replace(3, 1, "x"), std::string(good).replace(30, 1, "x"),
                                 std::string(good).replace(9, 1, "x")}) {
    write_text_file(path, bad);
    expect_mapped(*open(), 100);
    EXPECT_EQ(read_text_file(path), good);
  }
  int named = 0;
  for (std::size_t at = 64; at < good.size(); at += 97) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 64);
    write_text_file(path, damaged);
    const std::string message = error_of([&] { all_of_them(*open()); });
    if (message.empty()) continue;
    ++named;
    EXPECT_NE(message.find("of the cache '" + path + "' is damaged"), std::string::npos) << message;
  }
  EXPECT_GT(named, 100);
}

TEST(Map, RefusesAFunctionThatMakesAnotherNumberOfExamples) {
  std::atomic<bool> later = false;
  const DatasetPtr data = map(
      numbered(10), [&](const Example& example, std::int64_t) { return std::vector<Example>(later ? 2 : 1, example); },
      "1");
  later = true;
  EXPECT_NE(error_of([&] { data->example(3); }).find("pure function"), std::string::npos);
  EXPECT_NE(error_of([] { map(nullptr, some_of, "1"); }), "");
  EXPECT_NE(error_of([] { map_each(numbered(1), nullptr, "1"); }), "");
}

TEST(Map, TellsWhatTheFunctionThrows) {
  const MapFunction f = [](const Example&, std::int64_t i) -> std::vector<Example> {
    KEEL_CHECK(i != 70, "example 70 is bad");
    return {};
  };
  const TemporaryFolder folder;
  EXPECT_EQ(error_of([&] { map(numbered(100), f, "1", folder.path()); }), "example 70 is bad");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(MapEach, MapsEachExampleToOne) {
  const DatasetPtr data = map_each(
      numbered(20),
      [](const Example& e) { return Example().set("y", 2 * e.integer("x")).set("t", e.text("text") + "!!!!"); }, "1");
  EXPECT_EQ(data->size(), 20);
  EXPECT_EQ(data->example(7), Example().set("y", 14).set("t", "7!!!!"));
  EXPECT_EQ(all_of_them(*data)[19].integer("y"), 38);
  EXPECT_EQ(data->length(12), 6);
  EXPECT_NE(data->fingerprint(), numbered(20)->fingerprint());
}

TEST(ExampleBytes, RoundTripIsTheIdentityAndLessOfThemIsAnError) {
  const Example example = Example()
                              .set("d", -0.5)
                              .set("i", -7)
                              .set("s", std::string("a\0b", 3))
                              .set("", "")
                              .set("n", Numbers{{2, 0}, {}})
                              .set("m", Numbers{{1, 2}, {1, 2}})
                              .set("l", Integers{{3}, {1, 2, 3}});
  std::string bytes;
  append_bytes(bytes, example);
  EXPECT_EQ(example_from(bytes), example);
  EXPECT_EQ(example_from(""), Example());
  int refused = 0;
  for (std::size_t size = 1; size < bytes.size(); ++size)
    if (!error_of([&] { example_from(std::string_view(bytes).substr(0, size)); }).empty()) ++refused;
  EXPECT_EQ(refused, static_cast<int>(bytes.size()) - 1 - 6);  // six ends of fields are ends of examples
  EXPECT_EQ(longest_field(example), 3);
}

}  // namespace
}  // namespace keel
