#include "keel/tasks/fine_tuning_data.h"

#include <algorithm>
#include <array>
#include <functional>

#include "keel/data/map.h"
#include "keel/data/token_batch.h"
#include "keel/runtime/error.h"
#include "keel/runtime/json.h"
#include "keel/runtime/printable.h"
#include "keel/tasks/special_tokens.h"
#include "keel/tasks/text_records.h"

namespace keel {
namespace {

constexpr std::array<std::string_view, 3> kLong = {"refuse", "skip", "cut"};

// Whether the value of a field `prompt` or `response` stands for messages. A text that is another list, or none, is a
// content.
bool is_of_messages(const Value& value) {
  if (std::holds_alternative<Nested>(value)) return true;
  const Json list = list_in(value);
  return list.is_array() && !list.items().empty() &&
         std::ranges::all_of(list.items(), [](const Json& each) { return each.contains("role"); });
}

const std::string& text_member(const Json& message, std::string_view name, std::size_t number) {
  const Json* value = message.find(name);
  KEEL_CHECK(value != nullptr || !message.contains("from") || !message.contains("value"), "message ", number,
             " has 'from' and 'value', as ShareGPT's records have; rename them to 'role' (system, user or assistant) "
             "and 'content'");
  KEEL_CHECK(value != nullptr && value->is_string(), "message ", number, " has no text '", name,
             "'; messages are objects as {\"role\": \"user\", \"content\": \"...\"}");
  return value->string();
}

std::vector<ChatMessage> listed_messages(const Value& value, const std::string& field) {
  const Json list = list_in(value);
  KEEL_CHECK(list.is_array() && !list.items().empty(), "the field '", printable(field, 64),
             "' is no list of messages, such as [{\"role\": \"user\", \"content\": \"...\"}, ...]");
  std::vector<ChatMessage> messages;
  for (const Json& each : list.items()) {
    const std::size_t number = messages.size() + 1;
    KEEL_CHECK(each.is_object(), "message ", number, " is no object as {\"role\": \"user\", \"content\": \"...\"}");
    const std::string& role = text_member(each, "role", number);
    try {
      messages.push_back({parse_chat_role(role), text_member(each, "content", number)});
    } catch (const Error& error) { throw Error(concat("message ", number, ": "), error); }
  }
  return messages;
}

// What the field `prompt` or `response` of a record says: a text of that role, or a list of messages.
void add_messages(const Example& record, const std::string& field, ChatRole role, std::vector<ChatMessage>& messages) {
  const Value& value = record[field];
  if (!is_of_messages(value)) {
    messages.push_back({role, record.text(field)});
    return;
  }
  try {
    const std::vector<ChatMessage> listed = listed_messages(value, field);
    messages.insert(messages.end(), listed.begin(), listed.end());
  } catch (const Error& error) {
    const std::string what = error.what();
    throw Error(what.starts_with("message ") ? concat("the field '", printable(field, 64), "': ", what) : what,
                error.kind());
  }
}

// `name`: what the i-th of them is called.
void check_messages(const std::vector<ChatMessage>& messages, const std::function<std::string(std::size_t i)>& name) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    KEEL_CHECK(messages[i].content.find_first_not_of(" \t\r\n") != std::string::npos, name(i),
               " is empty; give it a content, or leave the record out");
    KEEL_CHECK(i == 0 || messages[i].role != ChatRole::system, name(i),
               " is the system's, which can be the first alone");
  }
}

// Fields input_ids and labels of a record; none: it is left out.
std::vector<Example> encoded_record(const Example& record, const ChatRecordOptions& options) {
  const WrittenChat chat = write_chat(options.form, messages_of(record, options.fields, /*answered=*/true), false);
  ChatTokens tokens = tokens_of_chat(*options.tokenizer, chat);
  if (const auto size = std::ssize(tokens.ids); size > options.length) {
    KEEL_CHECK(
        options.longer != LongRecords::refuse, "the record has ", size, " tokens, and a row has ", options.length,
        "; shorten it, enlarge model.block, or leave such records out (data.long=skip) or cut them (data.long=cut)");
    if (options.longer == LongRecords::skip) return {};
    tokens.ids.resize(static_cast<std::size_t>(options.length));
    tokens.labels.resize(static_cast<std::size_t>(options.length));
  }
  // The first token is nobody's target.
  const auto is_learnt = [](std::int64_t label) { return label != kIgnoreTarget; };
  if (tokens.ids.empty() || std::none_of(tokens.labels.begin() + 1, tokens.labels.end(), is_learnt)) return {};
  const Dims shape = {std::ssize(tokens.ids)};
  Example example;
  example.set(std::string(kInputIds), Integers{shape, std::move(tokens.ids)});
  example.set(std::string(kLabels), Integers{shape, std::move(tokens.labels)});
  return {std::move(example)};
}

const std::vector<std::int64_t>& numbers_of_row(const CollatedRow& row, std::string_view field) {
  return std::get<Integers>(row.example[field]).values;
}

std::string version_of(const ChatRecordOptions& options) {
  std::string text =
      concat("chats ", static_cast<int>(options.form), ' ', static_cast<int>(options.longer), ' ', options.length);
  for (const std::string& each : {options.fields.messages, options.fields.prompt, options.fields.response,
                                  options.fields.system, options.tokenizer->fingerprint()})
    text += concat(' ', each.size(), ' ', each);
  return text;
}

}  // namespace

LongRecords parse_long_records(std::string_view name) {
  const auto found = std::ranges::find(kLong, name);
  KEEL_CHECK(found != kLong.end(), "'", printable(name, 64),
             "' is nothing to do with long records: refuse, skip or cut");
  return static_cast<LongRecords>(found - kLong.begin());
}

std::vector<ChatMessage> messages_of(const Example& record, const RecordFields& fields, bool answered) {
  std::vector<ChatMessage> messages;
  if (const Value* list = record.find(fields.messages); list != nullptr) {
    messages = listed_messages(*list, fields.messages);
  } else {
    KEEL_CHECK(record.has(fields.prompt), "the record has neither '", printable(fields.messages, 64), "' nor '",
               printable(fields.prompt, 64), "'; data.messages and data.prompt name the fields of records");
    add_messages(record, fields.prompt, ChatRole::user, messages);
    KEEL_CHECK(!answered || record.has(fields.response), "the record has no answer: no field '",
               printable(fields.response, 64), "'; data.response names it");
    if (answered) add_messages(record, fields.response, ChatRole::assistant, messages);
  }
  // Of a prompt and a response that are texts, each is a message.
  const auto is_plain = [&](const std::string& field) {
    const Value* value = record.find(field);
    return value == nullptr || !is_of_messages(*value);
  };
  const bool has_fields = !record.has(fields.messages) && is_plain(fields.prompt) && is_plain(fields.response);
  check_messages(messages, [&](std::size_t i) {
    if (!has_fields) return concat("message ", i + 1);
    return concat("the field '", printable(i == 0 ? fields.prompt : fields.response, 64), "'");
  });
  if (!answered && messages.back().role == ChatRole::assistant) messages.pop_back();
  KEEL_CHECK(!answered || messages.back().role == ChatRole::assistant,
             "the record has no answer: its last message is not the assistant's");
  KEEL_CHECK(messages.size() >= (answered ? 2U : 1U), "the record has an answer, and no message that it answers");
  if (!fields.system.empty() && messages.front().role != ChatRole::system)
    messages.insert(messages.begin(), {ChatRole::system, fields.system});
  return messages;
}

ChatTokens tokens_of_chat(const Tokenizer& tokenizer, const WrittenChat& chat) {
  const Encoding encoded = tokenizer.encode({chat.text, std::nullopt}, uncut(/*specials=*/false));
  ChatTokens tokens{{encoded.ids.begin(), encoded.ids.end()}, {}};
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    const TextSpan& at = encoded.offsets[i];
    const bool learnt = std::ranges::any_of(
        chat.answers, [&](const TextRange& answer) { return at.begin < answer.end && at.end > answer.begin; });
    tokens.labels.push_back(learnt ? static_cast<std::int64_t>(encoded.ids[i]) : kIgnoreTarget);
  }
  return tokens;
}

DatasetPtr chat_records(const DatasetPtr& records, const std::string& path, const ChatRecordOptions& options) {
  const MapFunction encode = [records, path, options](const Example& record, std::int64_t i) {
    try {
      return encoded_record(record, options);
    } catch (const Error& error) { throw Error(concat("'", path, "', ", records->place(i), ": "), error); }
  };
  return map(records, encode, version_of(options));
}

Collator answers_to_learn(std::int64_t padding) {
  return [padding](std::span<const CollatedRow> rows, const CollateInfo& info, Batch& batch) {
    std::size_t time = 1;
    for (const CollatedRow& row : rows) time = std::max(time, numbers_of_row(row, kInputIds).size() - 1);
    std::vector<std::int32_t> inputs(rows.size() * time, static_cast<std::int32_t>(padding)),
        labels(rows.size() * time, kIgnoreTarget);
    double counted = 0;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const std::vector<std::int64_t>& ids = numbers_of_row(rows[row], kInputIds);
      const std::vector<std::int64_t>& targets = numbers_of_row(rows[row], kLabels);
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        inputs[row * time + i] = static_cast<std::int32_t>(ids[i]);
        labels[row * time + i] = static_cast<std::int32_t>(targets[i + 1]);
        counted += targets[i + 1] == kIgnoreTarget ? 0 : 1;
      }
    }
    const Dims shape = {std::ssize(rows), static_cast<std::int64_t>(time)};
    batch.set(std::string(kInputIds), from_values(info.context, inputs, shape));
    batch.set(std::string(kLabels), from_values(info.context, labels, shape));
    batch.set_weight(std::string(kTokenWeight), counted);
  };
}

}  // namespace keel
