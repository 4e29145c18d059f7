// Chats as tokens, of which answers are learnt.

#include <gtest/gtest.h>

#include <algorithm>

#include "keel/data/columns.h"
#include "keel/data/data_file.h"
#include "keel/data/jsonl.h"
#include "keel/data/token_batch.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/tasks/chat_template.h"
#include "keel/tasks/fine_tuning_data.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/tokenizer_files.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

const Json& golden_chats() {
  static const Json file = Json::parse(read_text_file(KEEL_SOURCE_DIR "/tests/golden/chats.json"));
  return file;
}

TokenizerPtr chat_tokenizer() {
  static const TokenizerPtr tokenizer = parse_tokenizer(golden_chats().at("tokenizer").dump(), "chats.json");
  return tokenizer;
}

TEST(ChatTemplates, WriteAndEncodeWhatTransformersDoes) {
  std::size_t learnt = 0;
  for (const Json& each : golden_chats().at("cases").items()) {
    std::vector<ChatMessage> messages;
    for (const Json& message : each.at("messages").items())
      messages.push_back({parse_chat_role(message.at("role").string()), message.at("content").string()});
    const WrittenChat chat =
        write_chat(parse_chat_template(each.at("template").string()), messages, each.at("asks").boolean());
    const std::string& text = each.at("text").string();
    EXPECT_EQ(chat.text, text);
    const ChatTokens tokens = tokens_of_chat(*chat_tokenizer(), chat);
    std::vector<std::int64_t> ids, labels;
    for (const Json& id : each.at("ids").items()) ids.push_back(id.integer());
    for (std::size_t i = 0; i < ids.size(); ++i)
      labels.push_back(each.at("answers").items()[i].integer() == 1 ? ids[i] : kIgnoreTarget);
    EXPECT_EQ(tokens.ids, ids) << text;
    EXPECT_EQ(tokens.labels, labels) << text;
    learnt += static_cast<std::size_t>(std::ssize(labels) - std::ranges::count(labels, kIgnoreTarget));
  }
  EXPECT_GT(learnt, 100U);
}

TEST(ChatTemplates, OfPlainTextEndAnswersByAnEmptyLine) {
  const std::vector<ChatMessage> messages = {{ChatRole::user, "2 + 3?"}, {ChatRole::assistant, "5"}};
  const WrittenChat chat = write_chat(ChatTemplate::plain, messages, false);
  EXPECT_EQ(chat.text, "user: 2 + 3?\n\nassistant: 5\n\n");
  const TokenizerPtr bytes = find_tokenizer("byte", "");
  const ChatTokens tokens = tokens_of_chat(*bytes, chat);
  std::vector<std::uint32_t> learnt;
  for (const std::int64_t label : tokens.labels)
    if (label != kIgnoreTarget) learnt.push_back(static_cast<std::uint32_t>(label));
  EXPECT_EQ(bytes->decode(learnt), " 5\n\n");
  EXPECT_EQ(write_chat(ChatTemplate::plain, {messages[0]}, true).text, "user: 2 + 3?\n\nassistant:");
  EXPECT_NE(error_of([&] {
              write_chat(ChatTemplate::plain, {{ChatRole::user, "a\n\nb"}}, true);
            }).find("has an empty line"),
            std::string::npos);
}

TEST(ChatTemplates, NeedTheirSpecialTokens) {
  EXPECT_EQ(error_of([] { check_chat_tokens(ChatTemplate::llama3, *chat_tokenizer()); }), "");
  EXPECT_EQ(error_of([] { check_chat_tokens(ChatTemplate::plain, *find_tokenizer("byte", "")); }), "");
  const std::string message = error_of([] { check_chat_tokens(ChatTemplate::chatml, *find_tokenizer("byte", "")); });
  EXPECT_NE(message.find("data.template=chatml: the tokenizer has no <|im_start|>, <|im_end|>; take"),
            std::string::npos)
      << message;
}

ChatRecordOptions bytes_of_records(LongRecords longer = LongRecords::refuse, std::int64_t length = 60) {
  return {.tokenizer = find_tokenizer("byte", ""), .form = ChatTemplate::plain, .longer = longer, .length = length};
}

// What is said of a record on line 3.
std::string said_of_record(const std::string& record, const ChatRecordOptions& options = bytes_of_records()) {
  const TemporaryFolder place;
  write_text_file(place / "r.jsonl", "{\"prompt\": \"a\", \"response\": \"b\"}\n\n" + record + "\n");
  const std::string message = error_of([&] { chat_records(open_jsonl(place / "r.jsonl"), "r.jsonl", options); });
  if (message.empty()) return "";
  EXPECT_EQ(message.find("'r.jsonl', line 3: "), 0U) << message;
  return message.substr(message.find(": ") + 2);
}

TEST(FineTuningRecords, RefuseWhatNobodyCanLearnWithFileAndLine) {
  EXPECT_EQ(
      said_of_record(R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]})"), "");
  const auto expect = [](const char* record, std::string_view what) {
    const std::string message = said_of_record(record);
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  expect(R"({"text": "x"})", "the record has neither 'messages' nor 'prompt'; data.messages and data.prompt name");
  expect(R"({"prompt": "x"})", "the record has no answer: no field 'response'");
  expect(R"({"prompt": 3, "response": "x"})", "'prompt'");
  expect(R"({"prompt": "x", "response": " \n"})", "the field 'response' is empty");
  expect(R"({"messages": [{"from": "human", "value": "x"}]})", "rename them to 'role' (system, user or assistant)");
  expect(R"({"prompt": ["x"], "response": "y"})", "the field 'prompt': message 1 is no object");
  expect(R"({"prompt": {"a": 1}, "response": "y"})", "the field 'prompt' is no list of messages");
  EXPECT_EQ(
      said_of_record(
          R"({"prompt": [{"role": "user", "content": "x"}], "response": [{"role": "assistant", "content": "y"}]})"),
      "");
  expect(R"({"messages": "x"})", "the field 'messages' is no list of messages");
  expect(R"({"messages": []})", "the field 'messages' is no list");
  expect(R"({"messages": [{"role": "user", "content": "x"}]})", "its last message is not the assistant's");
  expect(R"({"messages": [{"role": "assistant", "content": "x"}]})", "no message that it answers");
  expect(R"({"messages": [{"role": "bot", "content": "x"}]})",
         "message 1: 'bot' is no role: system, user or assistant");
  expect(R"({"messages": [{"role": "user", "content": null}]})", "message 1 has no text 'content'");
  expect(R"({"messages": [{"content": "x"}]})", "message 1 has no text 'role'");
  expect(R"({"messages": ["x", {"role": "user"}]})", "message 1 is no object");
  const std::string system = said_of_record(
      R"({"messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}, {"role": "assistant", "content": "z"}]})");
  EXPECT_NE(system.find("message 2 is the system's, which can be the first alone"), std::string::npos) << system;
}

TEST(FineTuningRecords, LongerThanARowAreRefusedSkippedOrCut) {
  const TemporaryFolder place;
  const std::string many(50, 'x');
  write_text_file(place / "r.jsonl",
                  concat("{\"prompt\": \"a\", \"response\": \"b\"}\n{\"prompt\": \"a\", \"response\": \"", many,
                         "\"}\n{\"prompt\": \"", many, "\", \"response\": \"b\"}\n"));
  const DatasetPtr records = open_jsonl(place / "r.jsonl");
  const std::string message = error_of([&] { chat_records(records, "r.jsonl", bytes_of_records()); });
  EXPECT_NE(message.find("the record has 72 tokens, and a row has 60; shorten it, enlarge model.block"),
            std::string::npos)
      << message;
  EXPECT_EQ(chat_records(records, "r.jsonl", bytes_of_records(LongRecords::skip))->size(), 1);
  const DatasetPtr cut = chat_records(records, "r.jsonl", bytes_of_records(LongRecords::cut));
  ASSERT_EQ(cut->size(), 2) << "the third one has no answer left";
  const Example last = cut->example(1);
  EXPECT_EQ(std::get<Integers>(last["labels"]).values.size(), 60U);
}

TEST(FineTuningRecords, HaveAFingerprintThatAMessageMayShow) {
  const TemporaryFolder place;
  write_text_file(place / "r.jsonl", "{\"prompt\": \"a\", \"response\": \"b\"}\n");
  const DatasetPtr records = open_jsonl(place / "r.jsonl");
  ChatRecordOptions options = bytes_of_records();
  const auto said = [&] { return chat_records(records, "r.jsonl", options)->fingerprint(); };
  const std::string bytes = said();
  EXPECT_LT(bytes.size(), 400U) << bytes;
  options.tokenizer = chat_tokenizer();
  EXPECT_LT(said().size(), 400U) << said();
  EXPECT_NE(said(), bytes);
  options.tokenizer = parse_tokenizer(golden_chats().at("tokenizer").dump(), "again.json");
  const std::string chats = said();
  options.tokenizer = chat_tokenizer();
  EXPECT_EQ(said(), chats);
}

TEST(FineTuningRecords, HaveTheSystemsMessageThatTheyLack) {
  const RecordFields fields = {.messages = "turns", .prompt = "q", .response = "a", .system = "Be brief."};
  const std::vector<ChatMessage> said =
      messages_of(Example().set("q", std::string("x")).set("a", std::string("y")), fields, true);
  ASSERT_EQ(said.size(), 3U);
  EXPECT_EQ(said[0].content, "Be brief.");
  const std::string own =
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}])";
  EXPECT_EQ(messages_of(Example().set("turns", own), fields, true).front().content, "s");
  EXPECT_EQ(messages_of(Example().set("turns", own), fields, false).size(), 2U) << "the answer is left out";
}

TEST(FineTuningRecords, AreRowsOfNextTokensWithTheAnswersAsLabels) {
  const auto row = [](std::vector<std::int64_t> ids, std::vector<std::int64_t> labels, std::int64_t index) {
    const Dims shape = {std::ssize(ids)};
    return CollatedRow{
        Example().set("input_ids", Integers{shape, std::move(ids)}).set("labels", Integers{shape, std::move(labels)}),
        index, index, 0};
  };
  const std::vector<CollatedRow> rows = {row({5, 6, 7, 8}, {-100, -100, 7, 8}, 0), row({5, 9}, {-100, 9}, 1)};
  const Context host = Context::create();
  Batch batch(host, 0, 2);
  answers_to_learn(1)(rows, {host, 0}, batch);
  EXPECT_EQ(batch[kInputIds].to_vector<std::int32_t>(), (std::vector<std::int32_t>{5, 6, 7, 5, 1, 1}));
  EXPECT_EQ(batch[kLabels].to_vector<std::int32_t>(), (std::vector<std::int32_t>{-100, 7, 8, 9, -100, -100}));
  EXPECT_EQ(batch.weight(kTokenWeight), 3);
}

TEST(ChatTemplates, AreKnownByTheSystemsMessageThatTheyWrite) {
  const auto begins = [](ChatTemplate form, const std::string& jinja, std::string_view system) {
    const std::vector<std::string> texts = system_in_jinja(form, system);
    return std::ranges::any_of(texts, [&](const std::string& text) { return jinja.find(text) != std::string::npos; });
  };
  // As Qwen's files have it: a line feed of Jinja, or of the file.
  for (const char* feed : {"\\n", "\n"}) {
    const std::string jinja = concat("{{ '<|im_start|>system", feed, "You are a helpful assistant.<|im_end|>\\n' }}");
    EXPECT_TRUE(begins(ChatTemplate::chatml, jinja, "You are a helpful assistant."));
    for (const char* other : {"You are a helpful assistant", "a helpful assistant.", "u", "Be brief."})
      EXPECT_FALSE(begins(ChatTemplate::chatml, jinja, other)) << other;
  }
  EXPECT_TRUE(begins(ChatTemplate::chatml, "{{ '<|im_start|>system\\nIt\\'s me.<|im_end|>' }}", "It's me."));
  EXPECT_TRUE(
      begins(ChatTemplate::llama3, "'<|start_header_id|>system<|end_header_id|>\\n\\nHi.<|eot_id|>'", " Hi.\n"));
  EXPECT_TRUE(system_in_jinja(ChatTemplate::chatml, "").empty());
}

TEST(FineTuningRecords, OfTablesAndColumnarFilesHaveListsOfMessagesAsTexts) {
  const TemporaryFolder place;
  const std::string asked = R"([{"role": "system", "content": "s"}, {"role": "user", "content": "x"}])",
                    answered = R"([{"role": "assistant", "content": "y"}])";
  const auto roles = [&](const DatasetPtr& records) {
    std::string all;
    for (const ChatMessage& each : messages_of(records->example(0), {}, true))
      all += concat(static_cast<int>(each.role), each.content, ' ');
    return all;
  };
  const auto quoted = [](const std::string& text) {
    std::string cell = "\"";
    for (const char byte : text) cell += byte == '"' ? std::string("\"\"") : std::string(1, byte);
    return cell + '"';
  };
  write_text_file(place / "r.jsonl", concat("{\"prompt\": ", asked, ", \"response\": ", answered, "}\n"));
  const DatasetPtr records = open_jsonl(place / "r.jsonl");
  const std::string wanted = "0s 1x 2y ";
  EXPECT_EQ(roles(records), wanted);
  write_text_file(place / "r.csv", concat("prompt,response\n", quoted(asked), ',', quoted(answered), '\n'));
  EXPECT_EQ(roles(open_data(place / "r.csv")), wanted);
  const Example record = records->example(0);
  ColumnsWriter writer(place / "r.col", columns_for(*records));
  writer.append(record);
  writer.commit();
  EXPECT_EQ(roles(open_data(place / "r.col")), wanted);
  // What only looks like a list is a content.
  for (const char* text : {"[1, 2]", "[]", "[{\\\"a\\\": 1}]", "[x", "[{\\\"role\\\": \\\"user\\\"}, 1]"}) {
    write_text_file(place / "r.jsonl", concat("{\"prompt\": \"", text, "\", \"response\": \"y\"}\n"));
    EXPECT_EQ(messages_of(open_data(place / "r.jsonl")->example(0), {}, true).size(), 2U) << text;
  }
}

}  // namespace
}  // namespace keel
