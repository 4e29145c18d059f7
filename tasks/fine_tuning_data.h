#pragma once
// Records with roles as tokens of which the answers alone are learnt.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "keel/data/collator.h"
#include "keel/data/dataset.h"
#include "keel/tasks/chat_template.h"
#include "keel/tokenizers/tokenizer.h"

namespace keel {

// What becomes of a record of more tokens than a row has.
enum class LongRecords : unsigned char { refuse, skip, cut };
LongRecords parse_long_records(std::string_view name);  // an Error lists them

struct RecordFields {
  std::string messages = "messages";                     // [{"role": ..., "content": ...}, ...]
  std::string prompt = "prompt", response = "response";  // of records without it: texts, or lists of messages
  std::string system = {};                               // of records without a system's message; empty: none
};
// The messages of a record. `answered`: the last one is the assistant's and of one before, else an Error; otherwise an
// answer at the end is left out, and one message before is needed. A role that is unknown, a content that is no text or
// is empty, a system's message behind the first, and neither field: an Error.
std::vector<ChatMessage> messages_of(const Example& record, const RecordFields& fields, bool answered);

struct ChatTokens {
  std::vector<std::int64_t> ids, labels;  // labels: the token itself where it has a byte of an answer, else -100
};
ChatTokens tokens_of_chat(const Tokenizer& tokenizer, const WrittenChat& chat);

struct ChatRecordOptions {
  TokenizerPtr tokenizer;
  ChatTemplate form = ChatTemplate::chatml;
  RecordFields fields = {};
  LongRecords longer = LongRecords::refuse;
  std::int64_t length = 1;  // tokens of a record at most
};
// Fields input_ids and labels of each record, of one length. Every record is read once at the start. An Error names
// file and line. A record that is cut before its answer is left out, too.
DatasetPtr chat_records(const DatasetPtr& records, const std::string& path, const ChatRecordOptions& options);

// Rows of those fields: a label is that of the token behind it. Fields input_ids and labels, i32 (rows, time), filled
// up to the longest, and the weight `tokens` of labels that count.
Collator answers_to_learn(std::int64_t padding);

}  // namespace keel
