// Small files of a folder of Hugging Face's form.

#include "keel/tasks/hub_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "keel/runtime/file.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/tokenizer_files.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

constexpr const char* kWordsTokenizer = R"({
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 2, "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true}],
  "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
  "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "<|endoftext|>": 2}, "unk_token": "a"}})";
constexpr const char* kTinyConfig = R"({"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 2,
  "n_positions": 16, "vocab_size": 61, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "eos_token_id": 7})";

std::map<std::string, std::string> files_by_name(const HubFiles& all) { return {all.files.begin(), all.files.end()}; }

TEST(HubFiles, OfATokenizerOfKeelsHaveItsSpecialTokensAndTheLongestText) {
  const ModelSpecPtr spec = read_hub_spec(kTinyConfig, "config.json");
  const auto files =
      files_by_name(hub_files(*spec, {.tokenizer = parse_tokenizer(kWordsTokenizer, "words"), .dtype = DType::bf16}));
  ASSERT_EQ(files.size(), 4u);
  const Json beside = Json::parse(files.at("tokenizer_config.json"));
  EXPECT_EQ(beside.at("model_max_length").integer(), 16);
  EXPECT_EQ(beside.at("eos_token").string(), "<|endoftext|>");
  EXPECT_EQ(beside.at("bos_token").string(), "<|endoftext|>");
  EXPECT_FALSE(beside.contains("mask_token"));
  EXPECT_EQ(parse_tokenizer(files.at("tokenizer.json"), "written")->encode("b a"), (std::vector<std::uint32_t>{1, 0}));
  const Json config = Json::parse(files.at("config.json"));
  EXPECT_EQ(config.at("torch_dtype").string(), "bfloat16");
  EXPECT_EQ(config.at("eos_token_id").integer(), 2);
  EXPECT_EQ(Json::parse(files.at("generation_config.json")).at("eos_token_id").integer(), 2);
  EXPECT_EQ(read_hub_spec(files.at("config.json"), "written")->hub_config().dump(), spec->hub_config().dump());
}

TEST(HubFiles, KeepTheNumbersOfTokensThatTheModelBeganWith) {
  const TemporaryFolder place;
  write_text_file(place / "config.json", kTinyConfig);
  const ModelSpecPtr spec = read_hub_spec(kTinyConfig, "config.json");
  const std::string kept = kept_config(*spec, place.path());
  EXPECT_EQ(Json::parse(kept).at("eos_token_id").integer(), 7);
  EXPECT_EQ(kept_config(*spec, place.path()), kept);
  EXPECT_FALSE(Json::parse(kept_config(*spec, "")).contains("eos_token_id"));
  const auto files =
      files_by_name(hub_files(*spec, {.kept = kept, .tokenizer = parse_tokenizer(kWordsTokenizer, "words")}));
  EXPECT_EQ(Json::parse(files.at("config.json")).at("eos_token_id").integer(), 7);
}

TEST(HubFiles, WithAPaddingTokenAreReadAgain) {
  std::string words = kWordsTokenizer;
  words.replace(words.find("\"b\": 1"), 6, "\"<pad>\": 1");
  Json llama = {{"model_type", "llama"},  {"hidden_size", 32},        {"intermediate_size", 48},
                {"num_hidden_layers", 1}, {"num_attention_heads", 4}, {"vocab_size", 11}};
  for (const std::string& config : {std::string(kTinyConfig), llama.dump()}) {
    const ModelSpecPtr spec = read_hub_spec(config, "config.json");
    const auto files = files_by_name(hub_files(*spec, {.tokenizer = parse_tokenizer(words, "words")}));
    EXPECT_EQ(Json::parse(files.at("config.json")).at("pad_token_id").integer(), 1);
    EXPECT_EQ(read_hub_spec(files.at("config.json"), "written")->hub_config().dump(), spec->hub_config().dump());
  }
}

TEST(HubFiles, OfAPublishedTokenizerAreItsOwnAsLongAsItIsTheSame) {
  const TemporaryFolder place;
  const ModelSpecPtr spec = read_hub_spec(kTinyConfig, "config.json");
  write_text_file(place / "tokenizer.json", kWordsTokenizer);
  write_text_file(place / "tokenizer_config.json", R"({"model_max_length": 77, "chat_template": "x"})");
  write_text_file(place / "other.txt", "no file of a tokenizer");
  const TokenizerPtr tokenizer = load_tokenizer(place.path());
  auto files = files_by_name(hub_files(*spec, {.tokenizer = tokenizer, .tokenizer_name = place.path()}));
  EXPECT_EQ(files.at("tokenizer.json"), kWordsTokenizer);
  EXPECT_EQ(files.at("tokenizer_config.json"), R"({"model_max_length": 77, "chat_template": "x"})");
  EXPECT_EQ(files.size(), 4u);
  std::string other = kWordsTokenizer;
  other.replace(other.find("\"b\": 1"), 6, "\"c\": 1");
  write_text_file(place / "tokenizer.json", other);
  files = files_by_name(hub_files(*spec, {.tokenizer = tokenizer, .tokenizer_name = place.path()}));
  EXPECT_EQ(files.at("tokenizer.json"), tokenizer->to_json());
  EXPECT_EQ(Json::parse(files.at("tokenizer_config.json")).at("model_max_length").integer(), 16);
}

TEST(HubFiles, OfChatsEndAnswersAndSayHowChatsAreWritten) {
  const TemporaryFolder place;
  const ModelSpecPtr spec = read_hub_spec(kTinyConfig, "config.json");
  write_text_file(place / "tokenizer.json", kWordsTokenizer);
  const TokenizerPtr tokenizer = load_tokenizer(place.path());
  const ChatFiles chat = {.end = "<|endoftext|>", .jinja = "how"};
  const auto written = [&](const std::string& run = {}, const std::string& folder = {}) {
    return files_by_name(hub_files(*spec, {.kept = kTinyConfig,
                                           .tokenizer = tokenizer,
                                           .tokenizer_name = folder.empty() ? place.path() : folder,
                                           .run = run,
                                           .chat = chat}));
  };
  auto files = written();
  EXPECT_EQ(Json::parse(files.at("generation_config.json")).at("eos_token_id").dump(), "[7,2]");
  EXPECT_EQ(Json::parse(files.at("tokenizer_config.json")).at("chat_template").string(), "how");
  write_text_file(place / "tokenizer_config.json", R"({"pad_token": "a"})");
  EXPECT_EQ(Json::parse(written().at("tokenizer_config.json")).dump(),
            R"({"pad_token":"a","chat_template":"how","eos_token":"<|endoftext|>"})");
  write_text_file(place / "chat_template.jinja", "ends by <|endoftext|>");
  files = written();
  EXPECT_EQ(files.at("chat_template.jinja"), "ends by <|endoftext|>");
  EXPECT_FALSE(Json::parse(files.at("tokenizer_config.json")).contains("chat_template"));
  write_text_file(place / "chat_template.jinja", "another");
  EXPECT_EQ(written().count("chat_template.jinja"), 0u);
}

TEST(HubFiles, OfChatsBeginByTheSystemsMessageThatWasLearnt) {
  const TemporaryFolder place;
  const ModelSpecPtr spec = read_hub_spec(kTinyConfig, "config.json");
  write_text_file(place / "tokenizer.json", kWordsTokenizer);
  const TokenizerPtr tokenizer = load_tokenizer(place.path());
  ChatFiles chat = {.end = "<|endoftext|>", .jinja = "as it was learnt", .system = {"Be \"brief\".<|endoftext|>"}};
  const auto kept = [&](const Json& published) {
    write_text_file(place / "tokenizer_config.json", Json({{"chat_template", published}}).dump());
    const HubFiles all =
        hub_files(*spec, {.kept = kTinyConfig, .tokenizer = tokenizer, .tokenizer_name = place.path(), .chat = chat});
    const std::string& how = Json::parse(files_by_name(all).at("tokenizer_config.json")).at("chat_template").dump();
    EXPECT_EQ(all.notes.empty(), how == published.dump());
    return std::pair(how, all.notes.empty() ? std::string() : all.notes.front());
  };
  const Json none = "user: x<|endoftext|>", other = "Be kind.<|endoftext|>", same = "Be \"brief\".<|endoftext|>";
  for (const Json& published : {none, other}) {
    EXPECT_EQ(kept(published).first, "\"as it was learnt\"") << published.dump();
    EXPECT_EQ(kept(published).second,
              "the chat template of the tokenizer's folder does not begin chats by data.system; the one that was "
              "learnt is written in its place");
  }
  EXPECT_EQ(kept(same).first, same.dump());
  const Json named = Json::array({{{"name", "tools"}, {"template", none}}, {{"name", "default"}, {"template", same}}});
  EXPECT_EQ(kept(named).first, named.dump());
  EXPECT_EQ(kept(Json(chat.jinja)).second, "") << "what keel has written is the same again";
  chat.system = {};
  EXPECT_EQ(kept(none).first, none.dump()) << "no message is asked for";
}

TEST(HubFiles, ThatAreNoJsonAreNamed) {
  const TemporaryFolder place;
  const ModelSpecPtr spec = read_hub_spec(kTinyConfig, "config.json");
  write_text_file(place / "tokenizer.json", kWordsTokenizer);
  const TokenizerPtr tokenizer = load_tokenizer(place.path());
  const auto said = [&](HubFilesOptions options) {
    options.tokenizer = tokenizer;
    return error_of([&] { hub_files(*spec, options); });
  };
  EXPECT_TRUE(said({.kept = "{", .run = "runs/a"}).starts_with("'runs/a/config.json' is no JSON: "));
  write_text_file(place / "generation_config.json", "{");
  EXPECT_TRUE(said({.run = place.path()}).starts_with(concat("'", place / "generation_config.json", "' is no JSON: ")));
  write_text_file(place / "tokenizer_config.json", "{");
  EXPECT_TRUE(said({.tokenizer_name = place.path(), .chat = {.end = "x", .jinja = "y"}})
                  .starts_with(concat("'", place / "tokenizer_config.json", "' is no JSON: ")));
  write_text_file(place / "config.json", "{");
  const std::string named = concat("'", place / "config.json", "' is no JSON: ");
  EXPECT_TRUE(error_of([&] { kept_config(*spec, place.path()); }).starts_with(named));
  std::filesystem::remove(place / "generation_config.json");
  EXPECT_TRUE(error_of([&] { end_tokens_of(place.path()); }).starts_with(named));
}

TEST(HubFiles, OfAFolderThatHasMovedAreThoseThatTheRunHasKept) {
  const TemporaryFolder place;
  const ModelSpecPtr spec = read_hub_spec(kTinyConfig, "config.json");
  const std::string base = place / "base", run = place / "run";
  std::filesystem::create_directories(base);
  std::filesystem::create_directories(run);
  write_text_file(base + "/tokenizer.json", kWordsTokenizer);
  write_text_file(base + "/tokenizer_config.json", R"({"pad_token": "a"})");
  write_text_file(base + "/generation_config.json", R"({"eos_token_id": [4, 5], "top_p": 0.5})");
  const TokenizerPtr tokenizer = load_tokenizer(base);
  for (const auto& [name, text] : kept_hub_files(base, base, tokenizer)) write_text_file(concat(run, '/', name), text);
  std::filesystem::rename(base, place / "moved");
  const auto written = [&](const std::string& kept) {
    return hub_files(*spec, {.kept = kTinyConfig, .tokenizer = tokenizer, .tokenizer_name = base, .run = kept});
  };
  const auto files = files_by_name(written(run));
  EXPECT_EQ(files.at("tokenizer_config.json"), R"({"pad_token": "a"})");
  EXPECT_EQ(Json::parse(files.at("generation_config.json")).dump(),
            R"({"eos_token_id":[4,5],"top_p":0.5,"bos_token_id":2})");
  EXPECT_NE(written("").notes.at(0).find("is not there any more"), std::string::npos);
}

TEST(HubFiles, SayThatATokenizerOfBytesHasNoSuchForm) {
  const ModelSpecPtr spec = read_hub_spec(kTinyConfig, "config.json");
  const HubFiles all = hub_files(*spec, {.tokenizer = find_tokenizer("byte", "")});
  EXPECT_EQ(files_by_name(all).count("tokenizer.json"), 0u);
  ASSERT_EQ(all.notes.size(), 1u);
  EXPECT_EQ(all.notes[0], "no tokenizer is written: keel's tokenizer 'byte' has no form that transformers reads");
  EXPECT_EQ(hub_files(*spec, {}).notes.at(0), "the run has no tokenizer, and none is written");
}

}  // namespace
}  // namespace keel
