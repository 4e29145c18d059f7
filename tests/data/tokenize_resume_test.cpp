// Work on tokens that was ended goes on from what it left, and from nothing that is damaged.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "keel/data/tokenize_files.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/tokenizers/plain_tokenizers.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

struct Killed {};

constexpr const char* kFields[] = {"file", "place", "bytes", "shards", "shard_tokens", "tokens", "documents"};

// Texts, and what is made of them in a folder that is emptied for each run.
class TokenizeJobs {
 public:
  explicit TokenizeJobs(const std::vector<std::string>& texts) {
    std::filesystem::create_directory(folder_ / "in");
    for (const std::string& text : texts) {
      options.files.push_back(folder_ / concat("in/", options.files.size()));
      write_text_file(options.files.back(), text);
    }
    options.out = folder_ / "out/t.bin";
    options.end_of_document = 10;
    begin();
  }

  void begin() const {
    std::filesystem::remove_all(folder_ / "out");
    std::filesystem::create_directory(folder_ / "out");
  }
  TokenizedFiles run() const { return tokenize_files(Context::create({.threads = 1}), ByteTokenizer(), options); }

  // A run that is ended after so many rounds, or not; what was told to be done of all bytes then.
  std::uint64_t run_for(int rounds) const {
    begin();
    std::uint64_t told = 0;
    TokenizeOptions some = options;
    some.progress = [&](std::uint64_t done, std::uint64_t) {
      told = done;
      if (--rounds == 0) throw Killed();
    };
    try {
      tokenize_files(Context::create({.threads = 1}), ByteTokenizer(), some);
    } catch (const Killed&) {}
    return told;
  }
  bool has_ended() const { return !std::filesystem::exists(state_path()); }

  // The files that a run leaves, by their names.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> all;
    for (const auto& file : std::filesystem::directory_iterator(folder_ / "out"))
      all[file.path().filename().string()] = read_text_file(file.path().string());
    return all;
  }
  void write(const std::map<std::string, std::string>& files) const {
    begin();
    for (const auto& [name, bytes] : files) std::ofstream(path(name), std::ios::binary) << bytes;
  }

  std::string path(const std::string& name) const { return folder_ / ("out/" + name); }
  std::string state_path() const { return path("t.bin.partial.json"); }
  Json state() const { return Json::parse(read_text_file(state_path())); }
  void set_state(const Json& state) const { write_text_file(state_path(), state.dump()); }

  TokenizeOptions options;

 private:
  TemporaryFolder folder_;
};

std::string numbered_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += concat("l", i, "\n");
  return text;
}

std::vector<std::string> names_of(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const std::string& path : paths) names.push_back(std::filesystem::path(path).filename().string());
  return names;
}

void expect_same(const TokenizedFiles& found, const TokenizedFiles& wanted) {
  EXPECT_EQ(found.tokens, wanted.tokens);
  EXPECT_EQ(found.documents, wanted.documents);
  EXPECT_EQ(found.bytes, wanted.bytes);
  EXPECT_EQ(names_of(found.paths), names_of(wanted.paths));
}

// Jobs of whole files and of lines, in one file and in shards. Each saves how far it is at every round's end.
void for_each_job(const std::function<void(const TokenizeJobs&)>& f) {
  TokenizeJobs whole({std::string(100, 'a'), std::string(150, 'b'), std::string(100, 'c')});
  whole.options.save_every = 50;
  f(whole);
  whole.begin();
  whole.options.shard_tokens = 70;
  f(whole);
  TokenizeJobs lines({numbered_lines(600), "one\ntwo\n", numbered_lines(300)});
  lines.options.documents = Documents::line;
  lines.options.save_every = 1;
  f(lines);
  lines.begin();
  lines.options.shard_tokens = 1500;
  f(lines);
}

TEST(TokenizeResume, GivesTheBytesOfAnUninterruptedRunAfterEachStop) {
  for_each_job([](const TokenizeJobs& job) {
    const TokenizedFiles whole = job.run();
    const auto wanted = job.files();
    for (int rounds = 1;; ++rounds) {
      const std::uint64_t told = job.run_for(rounds);
      if (job.has_ended()) {
        EXPECT_GT(rounds, 5);
        break;
      }
      const TokenizedFiles done = job.run();
      EXPECT_TRUE(job.files() == wanted) << rounds;
      expect_same(done, whole);
      EXPECT_EQ(done.went_on_at, told) << rounds;
      EXPECT_EQ(done.note, "");
    }
  });
}

// A process may die when it has told that a shard is whole, before the shard has its name, and right after.
TEST(TokenizeResume, EndsAShardThatLacksOnlyItsName) {
  for_each_job([](const TokenizeJobs& job) {
    const TokenizedFiles whole = job.run();
    const auto wanted = job.files();
    ASSERT_EQ(wanted.size(), whole.paths.size());
    const std::string last = names_of(whole.paths).back();
    job.run_for(1);
    Json state = job.state();
    state["file"] = std::ssize(job.options.files);
    state["place"] = 0;
    state["bytes"] = static_cast<std::int64_t>(whole.bytes);
    state["shards"] = std::ssize(whole.paths);
    state["shard_tokens"] = 0;
    state["tokens"] = whole.tokens;
    state["documents"] = whole.documents;
    for (const bool is_named : {false, true}) {
      auto left = wanted;
      if (!is_named) {
        left[last + ".partial"] = left[last];
        left.erase(last);
      }
      job.write(left);
      job.set_state(state);
      const TokenizedFiles done = job.run();
      EXPECT_TRUE(job.files() == wanted) << is_named;
      expect_same(done, whole);
      EXPECT_EQ(done.went_on_at, whole.bytes);
      EXPECT_EQ(done.note, "");
    }
  });
}

TEST(TokenizeResume, EndsEachShardInTheMidst) {
  TokenizeJobs job({numbered_lines(120)});
  job.options.documents = Documents::line;
  job.options.shard_tokens = 100;
  const TokenizedFiles whole = job.run();
  const auto wanted = job.files();
  const std::vector<std::string> names = names_of(whole.paths);
  ASSERT_GT(names.size(), 3u);
  job.run_for(1);  // all is in one round, and saved last when a shard was full
  Json state = job.state();
  EXPECT_EQ(state["shards"].integer(), std::ssize(names) - 1);
  std::int64_t tokens = 0, lines = 0;
  for (std::size_t shard = 0; shard + 1 < names.size(); ++shard) {
    // 2 bytes a token behind the header of 64; a line ends with token 10.
    const std::string& bytes = wanted.at(names[shard]);
    for (std::size_t at = 64; at < bytes.size(); at += 2, ++tokens) lines += bytes[at] == 10 ? 1 : 0;
    state["place"] = lines;
    state["shards"] = static_cast<std::int64_t>(shard) + 1;
    state["shard_tokens"] = 0;
    state["tokens"] = tokens;
    state["documents"] = lines;
    std::map<std::string, std::string> left;
    for (std::size_t i = 0; i < shard; ++i) left[names[i]] = wanted.at(names[i]);
    left[names[shard] + ".partial"] = bytes;
    job.write(left);
    job.set_state(state);
    const TokenizedFiles done = job.run();
    EXPECT_TRUE(job.files() == wanted) << shard;
    expect_same(done, whole);
    EXPECT_EQ(done.note, "");
  }
}

TEST(TokenizeResume, BeginsAnewWhereAnyFieldIsDamaged) {
  TokenizeJobs job({std::string(100, 'a'), std::string(150, 'b')});
  job.options.save_every = 50;
  const TokenizedFiles whole = job.run();
  const auto wanted = job.files();
  job.run_for(3);
  auto left = job.files();
  const Json state = job.state();
  const auto expect_anew = [&](const Json& damaged, const std::string& what) {
    job.write(left);
    job.set_state(damaged);
    const TokenizedFiles done = job.run();
    EXPECT_NE(done.note.find("was another job"), std::string::npos) << what;
    EXPECT_EQ(done.went_on_at, 0u) << what;
    EXPECT_TRUE(job.files() == wanted) << what;
    expect_same(done, whole);
  };
  std::vector<std::string> fields(std::begin(kFields), std::end(kFields));
  fields.emplace_back("job");
  for (const std::string& field : fields) {
    for (const Json& value : {Json(-1), Json(1.5), Json("1"), Json()}) {
      Json damaged = state;
      damaged[field] = value;
      expect_anew(damaged, field + " " + value.dump());
    }
    Json damaged = Json::object();
    for (const auto& [name, value] : state.members())
      if (name != field) damaged[name] = value;
    expect_anew(damaged, "no " + field);
  }
  const auto with = [&](const std::vector<std::pair<std::string, std::int64_t>>& changes) {
    Json damaged = state;
    for (const auto& [name, value] : changes) damaged[name] = value;
    return damaged;
  };
  expect_anew(with({{"file", 2}}), "tokens of a shard behind the last file");
  expect_anew(with({{"shard_tokens", state.at("shard_tokens").integer() + 1}}), "more tokens than the file has");
  left.erase("t.bin.partial");
  expect_anew(with({{"shards", 1}, {"shard_tokens", 0}}), "a shard that is not there");
}

// A part of a token that was written behind what was told is cut off.
TEST(TokenizeResume, CutsWhatIsBehindAndRefusesWhatIsShorter) {
  TokenizeJobs job({std::string(150, 'a')});
  job.options.save_every = 50;
  job.run();
  const auto wanted = job.files();
  job.run_for(2);
  const auto left = job.files();
  const std::string partial = "t.bin.partial";
  ASSERT_EQ(left.at(partial).size(), 64 + 2 * 100u);
  for (const int more : {-1, 0, 1, 7}) {
    auto changed = left;
    changed[partial].resize(left.at(partial).size() + static_cast<std::size_t>(more), 'x');
    job.write(changed);
    const TokenizedFiles done = job.run();
    EXPECT_EQ(done.note.empty(), more >= 0) << more;
    EXPECT_EQ(done.went_on_at, more >= 0 ? 100u : 0u);
    EXPECT_TRUE(job.files() == wanted) << more;
  }
}

TEST(TokenizeResume, RefusesShardsThatAreThereAlready) {
  TokenizeJobs job({std::string(250, 'a')});
  job.options.save_every = 50;
  job.options.shard_tokens = 100;
  write_text_file(job.path("t-00000.bin"), "x");
  EXPECT_EQ(error_of([&] { job.run(); }),
            concat("'", job.path("t-00000.bin"), "' is there already; remove the shards, or choose another name"));
  EXPECT_EQ(read_text_file(job.path("t-00000.bin")), "x");
}

TEST(TokenizeResume, RefusesOptionsThatAreNone) {
  TokenizeJobs job({"text"});
  job.options.shard_tokens = -1;
  EXPECT_NE(error_of([&] { job.run(); }).find("a positive number of tokens, not -1"), std::string::npos);
  job.options.shard_tokens = 1;
  job.options.save_every = 0;
  EXPECT_NE(error_of([&] { job.run(); }).find("at least 1"), std::string::npos);
  job.options.save_every = 1;
  EXPECT_EQ(job.run().paths.size(), 4u);
}

}  // namespace
}  // namespace keel
