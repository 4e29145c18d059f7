#include "keel/data/tokenize_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "keel/data/data_file.h"
#include "keel/data/file_list.h"
#include "keel/data/token_documents.h"
#include "keel/data/token_file.h"
#include "keel/runtime/file.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/plain_tokenizers.h"
#include "tests/by_commit.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

std::vector<std::uint32_t> tokens_in(const std::vector<std::string>& paths) {
  const Tokens tokens = open_token_files(paths).tokens;
  std::vector<std::int32_t> values(static_cast<std::size_t>(tokens.size()));
  tokens.copy(0, values);
  return {values.begin(), values.end()};
}

std::string random_text(std::mt19937& engine, int characters) {
  const std::string_view kinds[] = {"a", "b", " ", "\n", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x9a\xa2"};
  std::string text;
  for (int i = 0; i < characters; ++i) text += kinds[engine() % std::size(kinds)];
  return text;
}

Context of_threads(int threads) { return Context::create({.threads = threads}); }

TEST(TokenizeFiles, WritesTheTokensOfEachFileBehindEachOther) {
  const TemporaryFolder folder;
  std::mt19937 engine = testing::by_commit();
  const std::string first = random_text(engine, 5000), second = random_text(engine, 300);
  write_text_file(folder / "a.txt", first);
  write_text_file(folder / "b.txt", second);
  const auto tokenizer = CharacterTokenizer::of_text(first + second);
  std::vector<std::uint32_t> expected = tokenizer.encode(first);
  expected.push_back(2);
  const auto rest = tokenizer.encode(second);
  expected.insert(expected.end(), rest.begin(), rest.end());
  expected.push_back(2);
  for (const int threads : {1, 2, 3}) {
    TokenizeOptions options{.files = {folder / "a.txt", folder / "b.txt"}, .out = folder / "out.bin"};
    options.end_of_document = 2;
    options.save_every = 1000;
    const TokenizedFiles done = tokenize_files(of_threads(threads), tokenizer, options);
    EXPECT_EQ(tokens_in(done.paths), expected) << threads;
    EXPECT_EQ(done.tokens, std::ssize(expected));
    EXPECT_EQ(done.documents, 2);
    EXPECT_EQ(done.bytes, first.size() + second.size());
  }
  EXPECT_EQ(files_at(folder.path()).size(), 3u);  // both texts and the tokens: nothing else stays
}

TEST(TokenizeFiles, TakesRowsAndLinesAsDocuments) {
  const TemporaryFolder folder;
  write_text_file(folder / "a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"c\\nd\"}\n");
  write_text_file(folder / "a.txt", "ab\n\ncd\n");
  TokenizeOptions options{.files = {folder / "a.jsonl"}, .out = folder / "out.bin"};
  options.end_of_document = 0;
  EXPECT_EQ(ByteTokenizer().decode(tokens_in(tokenize_files(of_threads(2), ByteTokenizer(), options).paths)),
            std::string("ab\0c\nd\0", 7));
  options.files = {folder / "a.txt"};
  options.documents = Documents::line;
  EXPECT_EQ(ByteTokenizer().decode(tokens_in(tokenize_files(of_threads(2), ByteTokenizer(), options).paths)),
            std::string("ab\0cd\0", 6));
}

struct Ended {};

// A process that is killed leaves the files as an exception that nobody of keel's knows does: nothing is cleaned up.
TEST(TokenizeFiles, GoOnWhereARunWasEndedAnywhere) {
  std::mt19937 engine = testing::by_commit();
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    std::vector<std::string> files;
    std::string all;
    for (int i = 0; i < 3; ++i) {
      const std::string text = random_text(engine, 1 + static_cast<int>(engine() % 4000));
      files.push_back(folder / ("text" + std::to_string(i)));
      write_text_file(files.back(), text);
      all += text;
    }
    const auto tokenizer = CharacterTokenizer::of_text("ab \n\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\xa2");
    TokenizeOptions options{.files = files, .out = folder / "out.bin"};
    options.save_every = 100 + engine() % 1000;
    if (round % 2 == 1) options.shard_tokens = 300 + engine() % 1000;
    std::uint64_t went_on_at = 0;
    for (int runs = 0;; ++runs) {
      ASSERT_LT(runs, 1000);
      int left = 1 + static_cast<int>(engine() % 4);
      options.progress = [&](std::uint64_t, std::uint64_t) {
        if (--left == 0) throw Ended();
      };
      try {
        const TokenizedFiles done = tokenize_files(of_threads(1 + runs % 3), tokenizer, options);
        EXPECT_EQ(tokens_in(done.paths), tokenizer.encode(all));
        EXPECT_EQ(done.tokens, std::ssize(tokenizer.encode(all)));
        EXPECT_EQ(done.note, "");
        went_on_at = done.went_on_at;
        break;
      } catch (const Ended&) {}
    }
    EXPECT_EQ(std::filesystem::exists(folder / "out.bin.partial.json"), false);
    EXPECT_TRUE(all.size() <= 10'000 || went_on_at > 0);
  }
}

// Documents of shards in a folder, by the token that the files say.
TEST(TokenizeFiles, SayWhichTokenEndsADocument) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "shards");
  write_text_file(folder / "a.jsonl", "{\"text\": \"aba\"}\n{\"text\": \"bb\"}\n{\"text\": \"a\"}\n");
  const auto tokenizer = CharacterTokenizer::of_text("ab|");
  TokenizeOptions options{.files = {folder / "a.jsonl"}, .out = folder / "shards/x.bin"};
  options.end_of_document = 2;
  options.shard_tokens = 4;
  const TokenizedFiles done = tokenize_files(of_threads(2), tokenizer, options);
  EXPECT_GT(done.paths.size(), 1u);
  save_tokenizer(folder / "shards/tokenizer.json", tokenizer);
  EXPECT_EQ(kind_of_file(folder / "shards"), DataKind::tokens);
  EXPECT_EQ(kind_of_file(folder / "shards/x-*.bin"), DataKind::tokens);
  EXPECT_EQ(token_files_at(folder / "shards"), done.paths);
  const TokenFile file = open_token_files(token_files_at(folder / "shards"));
  EXPECT_EQ(file.end_of_document, 2u);
  EXPECT_EQ(file.tokenizer, "character");
  const DatasetPtr documents = token_documents(file.tokens, 2);
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < documents->size(); ++i) {
    const Example document = documents->example(i);
    const Integers& ids = std::get<Integers>(document["input_ids"]);
    texts.push_back(tokenizer.decode(std::vector<std::uint32_t>(ids.values.begin(), ids.values.end())));
    EXPECT_EQ(documents->length(i), std::ssize(ids.values));
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"aba|", "bb|", "a|"}));
  EXPECT_EQ(token_documents(file.tokens, 0)->size(), 4) << "what comes behind the last one is a document";
  EXPECT_NE(token_documents(file.tokens, 0)->fingerprint(), documents->fingerprint());
  options.out = folder / "none/x.bin";
  EXPECT_EQ(error_of([&] { tokenize_files(of_threads(1), tokenizer, options); }),
            concat("'", options.out, "' cannot be written: there is no folder '", folder / "none", "'"));
}

TEST(TokenizeFiles, BeginAnewWhereTheTextsAreOthers) {
  const TemporaryFolder folder;
  write_text_file(folder / "a", std::string(1000, 'a'));
  TokenizeOptions options{.files = {folder / "a"}, .out = folder / "out.bin"};
  options.save_every = 100;
  options.progress = [](std::uint64_t done, std::uint64_t) {
    if (done > 300) throw Ended();
  };
  EXPECT_THROW(tokenize_files(of_threads(1), ByteTokenizer(), options), Ended);
  write_text_file(folder / "a", std::string(2000, 'b'));
  options.progress = {};
  const TokenizedFiles done = tokenize_files(of_threads(1), ByteTokenizer(), options);
  EXPECT_NE(done.note.find("begins anew"), std::string::npos) << done.note;
  EXPECT_EQ(ByteTokenizer().decode(tokens_in(done.paths)), std::string(2000, 'b'));
}

TEST(TokenizeFiles, LeaveNothingBehindWhereTheyCannot) {
  const TemporaryFolder folder;
  write_text_file(folder / "empty", "");
  write_text_file(folder / "bad.jsonl", "{\"text\": 1}\n");
  write_text_file(folder / "good", "text");
  const auto tokenizer = CharacterTokenizer::of_text("tex");
  TokenizeOptions options{.files = {}, .out = folder / "out.bin"};
  const auto refusal = [&](const std::vector<std::string>& files) {
    options.files = files;
    return error_of([&] { tokenize_files(of_threads(1), tokenizer, options); });
  };
  EXPECT_NE(refusal({}).find("name one"), std::string::npos);
  EXPECT_NE(refusal({folder / "absent"}).find("absent"), std::string::npos);
  EXPECT_NE(refusal({folder / "good", folder / "empty"}).find("is empty"), std::string::npos);
  EXPECT_NE(refusal({folder / "bad.jsonl"}).find("bad.jsonl"), std::string::npos);
  write_text_file(folder / "good", "text?");
  const std::string unknown = refusal({folder / "good"});
  EXPECT_NE(unknown.find("good"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("\"?\""), std::string::npos) << unknown;
  EXPECT_EQ(files_at(folder.path()).size(), 3u);
}

TEST(TokenizeFiles, AFolderOfShardsLeavesOutWhatHasNotEndedAndNothingElse) {
  const TemporaryFolder folder;
  write_text_file(folder / "text", "abc");
  std::filesystem::create_directory(folder / "shards");
  std::vector<std::string> shards;
  for (const char* name : {"a.bin", "b.partial2.bin", "c.partial.bin", "d.partial.json.bin"}) {
    shards.push_back(folder / concat("shards/", name));
    tokenize_files(of_threads(1), ByteTokenizer(), {.files = {folder / "text"}, .out = shards.back()});
  }
  for (const char* name : {"e.bin.partial", "e.bin.partial.json", "e.bin.partial.lock", "tokenizer.json"})
    write_text_file(folder / concat("shards/", name), "unended");
  EXPECT_EQ(token_files_at(folder / "shards"), shards);
  EXPECT_EQ(open_token_files(token_files_at(folder / "shards")).tokens.size(), 12);
}

TEST(TokenizeFiles, ShardsWhoseDocumentsEndOtherwiseSayWhichTwo) {
  const TemporaryFolder folder;
  write_text_file(folder / "text", "abc");
  const auto shard = [&](const char* name, std::optional<std::uint32_t> end) {
    TokenizeOptions options{.files = {folder / "text"}, .out = folder / name};
    options.end_of_document = end;
    tokenize_files(of_threads(1), ByteTokenizer(), options);
    return folder / name;
  };
  const std::string a = shard("a", 1), b = shard("b", 1), c = shard("c", 2), d = shard("d", std::nullopt);
  EXPECT_EQ(open_token_files({a, b}).end_of_document, 1u);
  EXPECT_EQ(open_token_files({a, b}).why_no_end, "");
  EXPECT_EQ(open_token_files({a, b, c, a}).end_of_document, std::nullopt);
  EXPECT_EQ(open_token_files({a, b, c, d}).why_no_end,
            concat("'", a, "' says that token 1 ends a document, and '", c, "' that token 2 does"));
  EXPECT_EQ(open_token_files({a, d, a}).why_no_end,
            concat("'", a, "' says that token 1 ends a document, and '", d, "' that no token does"));
  EXPECT_EQ(open_token_files({d, d}).why_no_end, "");
  EXPECT_EQ(open_token_files({d, a}).end_of_document, std::nullopt);
}

}  // namespace
}  // namespace keel
