#include "keel/tokenizers/tokenizer_files.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using keel::testing::TemporaryFolder;

constexpr std::string_view kModel = R"({"type":"WordLevel","vocab":{"a":0,"b":1,"[UNK]":2},"unk_token":"[UNK]"})";

// A file with one word model, and `members` in front of it.
std::string file_with(std::string_view members, std::string_view model = kModel) {
  return concat(R"({"version":"1.0",)", members, members.empty() ? "" : ",", R"("model":)", model, "}");
}

std::string refusal_of(const std::string& json) {
  try {
    read_tokenizer_json(json, "t.json");
  } catch (const Error& error) { return error.what(); }
  return "no error";
}

struct BadFile {
  std::string json;
  std::string_view message;  // a part of it
};

TEST(TokenizerJson, NamesFileAndKeyOfWhatItDoesNotTake) {
  const std::string token = R"("single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true})";
  const std::vector<BadFile> bad = {
      {"", "t.json: "},
      {"[1]", "t.json: [1] must be an object"},
      {"{\"version\":\"1.0\",", "t.json: "},
      {R"({"version":"1.0"})", "t.json: has no model"},
      {R"({"version":"1.0","model":[]})", "t.json: model: [] must be an object"},
      {concat(R"({"version":"2.0","model":)", kModel, "}"),
       "t.json: version: \"2.0\" is not supported; supported are 1.0"},
      {file_with(R"("extra":1)"), "t.json: extra: is not known here; known are version"},
      {file_with(R"("normalizer":{"type":"NFX"})"),
       "t.json: normalizer.type: 'NFX' is no normalizer that is supported"},
      {file_with(R"("normalizer":{"type":"NFC","form":1})"), "t.json: normalizer.form: is not known here"},
      {file_with(R"("normalizer":{"type":7})"), "t.json: normalizer.type: 7 must be a string"},
      {file_with(R"("normalizer":{"type":"Strip","strip_left":true})"), "t.json: normalizer: has no strip_right"},
      {file_with(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"A"})"),
       "t.json: normalizer.precompiled_charsmap: base64 has"},
      {file_with(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Whitespace"},{"type":"Wide"}]})"),
       "t.json: pre_tokenizer.pretokenizers[1].type: 'Wide' is no pre-tokenizer that is supported"},
      {file_with(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":{}})"),
       "t.json: pre_tokenizer.pretokenizers: {} must be an array"},
      {file_with(R"("pre_tokenizer":{"type":"Digits","individual_digits":"yes"})"),
       "t.json: pre_tokenizer.individual_digits: \"yes\" must be true or false"},
      {file_with(R"("pre_tokenizer":{"type":"Metaspace","replacement":"ab"})"),
       "t.json: pre_tokenizer.replacement: \"ab\" must be a string of one character"},
      {file_with(
           R"("pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"first","add_prefix_space":false})"),
       "t.json: pre_tokenizer.add_prefix_space: false contradicts prepend_scheme"},
      {file_with(R"("pre_tokenizer":{"type":"Split","pattern":{"Text":"a"},"behavior":"Isolated","invert":false})"),
       "t.json: pre_tokenizer.pattern.Text: is not known here"},
      {file_with(R"("pre_tokenizer":{"type":"Punctuation","behavior":"isolated"})"),
       "t.json: pre_tokenizer.behavior: \"isolated\" is not supported; supported are Removed"},
      {file_with(R"("pre_tokenizer":{"type":"FixedLength","length":0})"),
       "t.json: pre_tokenizer.length: 0 must be a whole"},
      {file_with(R"("decoder":{"type":"WordPeace"})"), "meant is perhaps WordPiece"},
      {file_with(R"("post_processor":{"type":"BertProcessing","sep":["b",9],"cls":["a",0]})"),
       "t.json: post_processor.sep[1]: 9 must be a whole number from 0 to 2"},
      {file_with(R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}}],)"
                 R"("pair":[],"special_tokens":{}})"),
       "t.json: post_processor.single[0].SpecialToken.id: 'x' is none of special_tokens"},
      {file_with(R"("post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}],)"
                 R"("pair":[],"special_tokens":{}})"),
       "t.json: post_processor: a template for one text has a second one"},
      {file_with(R"("truncation":{"max_length":-1,"strategy":"LongestFirst","stride":0})"),
       "t.json: truncation.max_length: -1 must be a whole number"},
      {file_with(R"("truncation":{"max_length":9,"strategy":"Longest","stride":0})"),
       "t.json: truncation.strategy: \"Longest\" is not supported"},
      {file_with(R"("padding":{"strategy":{"Fixed":4},"pad_id":5,"pad_type_id":0,"pad_token":"a"})"),
       "t.json: padding.pad_id: 5 must be a whole number from 0 to 2"},
      {file_with(R"("added_tokens":[{"id":4,"content":"c",)" + token + R"(,{"id":5,"content":"c",)" + token + "]"),
       "t.json: added_tokens: the added token 'c' is there twice, as numbers 4 and 5"},
      {file_with(R"("added_tokens":[{"id":4,"content":"c",)" + token + R"(,{"id":4,"content":"d",)" + token + "]"),
       "t.json: added_tokens: the added tokens 'c' and 'd' have one number, 4"},
      {file_with(R"("added_tokens":[{"id":4,"content":"b",)" + token + "]"),
       "t.json: added_tokens[0].id: is 4, but 'b' is token 1 of model.vocab"},
      {file_with(R"("added_tokens":[{"id":1,"content":"c",)" + token + "]"),
       "t.json: added_tokens[0].id: is 1, which is 'b' in model.vocab"},
      {file_with(R"("added_tokens":[{"id":4000000000,"content":"c",)" + token + "]"),
       "t.json: added_tokens[0].id: 4000000000 must be a whole number"},
      {file_with("", R"({"type":"CharBPE"})"), "t.json: model.type: 'CharBPE' is no model that is supported"},
      {file_with("", R"({"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1})"),
       "t.json: model.dropout: texts are encoded without dropout"},
      {file_with("", R"({"type":"BPE","vocab":{"a":0,"b":-1},"merges":[]})"),
       "t.json: model.vocab['b']: must be a whole number"},
      {file_with("", R"({"type":"BPE","vocab":{"a":2000000000},"merges":[]})"),
       "t.json: model.vocab['a']: must be a whole number from 0 to "},
      {file_with("", R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})"), "t.json: model: "},
      {file_with("", R"({"type":"BPE","vocab":{"a":0,"a":1},"merges":[]})"), "t.json: model: "},
      {file_with("", R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b","a"]})"),
       "t.json: model.merges[1]: must be two tokens"},
      {file_with("", R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b","c"]]})"),
       "t.json: model.merges[0]: must be two tokens"},
      {file_with("", R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a c"]})"), "t.json: model: "},
      {file_with("", R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2}})"), "t.json: model: has no merges"},
      {file_with("", R"({"type":"BPE","merges":[]})"), "t.json: model: has no vocab"},
      {file_with("", R"({"type":"Unigram","vocab":[["a",0.0],["b"]]})"),
       "t.json: model.vocab[1]: must be an array of a text"},
      {file_with("", R"({"type":"Unigram","vocab":[["a",0.0]],"unk_id":1})"),
       "t.json: model.unk_id: 1 must be a whole number"},
      {file_with("", R"({"type":"WordPiece","vocab":{"a":0},"unk_token":"a"})"),
       "t.json: model: has no continuing_subword_prefix"},
      {R"({"model":{"vocab":{}},"model":{}})", "t.json: model: is there twice"}};
  for (const BadFile& file : bad) {
    const std::string message = refusal_of(file.json);
    EXPECT_NE(message.find(file.message), std::string::npos) << message << "\n  of " << file.json;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(TokenizerJson, TakesOldAndNewFormsOfOneModel) {
  const auto ids = [](std::string_view members, std::string_view model) {
    return read_tokenizer_json(file_with(members, model), "t.json")->encode("abab");
  };
  const std::vector<std::uint32_t> merged = {2, 2};
  EXPECT_EQ(ids("", R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})"), merged);
  EXPECT_EQ(ids("", R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]})"), merged);
  EXPECT_EQ(ids("", R"({"vocab":{"a":0,"b":1,"ab":2},"merges":["#version: 0.2","a b"]})"), merged);
  const std::string_view model = R"({"vocab":{"_abab":0,"abab":1},"unk_token":"abab"})";
  EXPECT_EQ(
      ids(R"("pre_tokenizer":{"type":"Metaspace","replacement":"_","add_prefix_space":true,"str_rep":"_"})", model),
      std::vector<std::uint32_t>{0});
  EXPECT_EQ(ids(R"("pre_tokenizer":{"type":"Metaspace","replacement":"_","add_prefix_space":false})", model),
            std::vector<std::uint32_t>{1});
}

TEST(TokenizerJson, CutOrChangedAnywhereIsReadOrRefused) {
  const std::string whole = file_with(
      R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"}]},"added_tokens":[{"id":3,"content":"c",)"
      R"("single_word":false,"lstrip":true,"rstrip":false,"normalized":true,"special":true}],)"
      R"("post_processor":{"type":"BertProcessing","sep":["b",1],"cls":["a",0]},"decoder":{"type":"Fuse"})",
      R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})");
  EXPECT_EQ(refusal_of(whole), "no error");
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) EXPECT_NE(refusal_of(whole.substr(0, bytes)), "no error");
  std::mt19937 draw(3);
  for (int i = 0; i < 3000; ++i) {
    std::string changed = whole;
    for (std::uint32_t changes = 1 + draw() % 3; changes > 0; --changes)
      changed[draw() % changed.size()] = "{}[]\",:01ax\xff"[draw() % 13];
    try {
      const TokenizerPtr tokenizer = read_tokenizer_json(changed, "t.json");
      (void)tokenizer->decode(tokenizer->encode("ab c abb"));
    } catch (const Error& error) { EXPECT_NE(error.kind(), ErrorKind::internal) << error.what(); }
  }
}

TEST(TokenizerFiles, OfGpt2AndBertAreReadAsTheyWerePublished) {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  write_text_file(path + "/encoder.json", R"({"a":0,"b":1,"ab":2,"\u0120":3,"\u0120ab":4,"<|endoftext|>":5})");
  write_text_file(path + "/vocab.bpe", "#version: 0.2\na b\n\xc4\xa0 ab\n");
  const TokenizerPtr gpt2 = load_tokenizer(path);
  EXPECT_EQ(gpt2->encode("ab ab<|endoftext|>"), (std::vector<std::uint32_t>{2, 4, 5}));
  EXPECT_EQ(gpt2->decode(std::vector<std::uint32_t>{2, 4, 5}, true), "ab ab");
  EXPECT_EQ(gpt2->vocabulary_size(), 6);
  EXPECT_EQ(tokenizer_files(path), (std::vector<std::string>{"encoder.json", "vocab.bpe"}));

  const TemporaryFolder other;
  write_text_file(other.path() + "/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nab\n##c\n");
  const TokenizerPtr bert = load_tokenizer(other.path());
  EXPECT_EQ(bert->encode({"ABc d", "ab"}, {}).ids, (std::vector<std::uint32_t>{2, 4, 5, 1, 3, 4, 3}));
  EXPECT_EQ(bert->encode({"ABc d", "ab"}, {}).type_ids, (std::vector<std::uint32_t>{0, 0, 0, 0, 0, 1, 1}));
  write_text_file(other.path() + "/tokenizer_config.json", R"({"do_lower_case":false})");
  EXPECT_EQ(load_tokenizer(other.path())->encode("ABc"), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(load_tokenizer(other.path() + "/vocab.txt")->encode("abc"), (std::vector<std::uint32_t>{4, 5}));
}

TEST(TokenizerFiles, AFolderWithoutThemSaysWhatWasLookedFor) {
  const TemporaryFolder folder;
  const auto message = [](const std::string& path) -> std::string {
    try {
      load_tokenizer(path);
    } catch (const Error& error) { return error.what(); }
    return "no error";
  };
  EXPECT_NE(message(folder.path()).find("looked for were tokenizer.json"), std::string::npos);
  EXPECT_NE(message(folder.path() + "/none").find("there is no such file or folder"), std::string::npos);
  write_text_file(folder.path() + "/vocab.json", "[]");
  EXPECT_NE(message(folder.path() + "/vocab.json").find("merges.txt must stand beside it"), std::string::npos);
  write_text_file(folder.path() + "/merges.txt", "a b\n");
  EXPECT_NE(message(folder.path()).find("vocab.json: must be an object"), std::string::npos);
  write_text_file(folder.path() + "/vocab.json", R"({"a":0})");
  write_text_file(folder.path() + "/merges.txt", "#version: 0.2\na b c\n");
  EXPECT_NE(message(folder.path()).find("merges.txt:2: must be two tokens"), std::string::npos);
}

TEST(TokenizerFiles, WhatIsNoModelOfSentencePieceIsRefused) {
  for (const std::string& bytes :
       {std::string(), std::string("\x0a"), std::string("\x0a\x05junk!"), std::string(64, '\xff')})
    EXPECT_THROW(make_sentence_piece(bytes), Error);
}

}  // namespace
}  // namespace keel
