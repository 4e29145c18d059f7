#pragma once
// Chats as one text: the messages of a system, users and an assistant, written as published chat models read them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizers/tokenizer.h"

namespace keel {

enum class ChatRole : unsigned char { system, user, assistant };
struct ChatMessage {
  ChatRole role;
  std::string content;
};
ChatRole parse_chat_role(std::string_view name);  // an Error lists them

enum class ChatTemplate : unsigned char {
  // Each message as <|start_header_id|>ROLE<|end_header_id|>, an empty line, the content without spaces at its ends,
  // and <|eot_id|>; <|begin_of_text|> before all. That of Meta's Llama 3 Instruct.
  llama3,
  // Each message as <|im_start|>ROLE, a line feed, the content, <|im_end|> and a line feed. OpenAI's ChatML, as Qwen
  // has it where the system message is given.
  chatml,
  // "ROLE: CONTENT" and an empty line, for tokenizers without special tokens of their own.
  plain,
};
ChatTemplate parse_chat_template(std::string_view name);  // an Error lists them

// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0, end = 0;
};
struct WrittenChat {
  std::string text;
  std::vector<TextRange> answers;  // what each assistant's message says, with the mark of its end
};
// `asks`: the beginning of an answer stands behind the last message. Of `plain`, a content with an empty line is an
// Error.
WrittenChat write_chat(ChatTemplate form, const std::vector<ChatMessage>& messages, bool asks);

// A template of Jinja for transformers' apply_chat_template, which writes what write_chat() does, byte by byte, with
// add_generation_prompt for `asks`. `system`: the content of the system's message that chats without one begin by;
// empty: they begin by none. It does not refuse what write_chat() does of `plain`.
std::string jinja_of(ChatTemplate form, std::string_view system);
// A template of others that begins chats by this system's message has one of these texts; none where `system` is empty.
std::vector<std::string> system_in_jinja(ChatTemplate form, std::string_view system);

// What ends an answer: "<|eot_id|>", "<|im_end|>", or "\n\n" of `plain`.
std::string_view end_of_answer(ChatTemplate form);
// An Error that names the special tokens of the template that the tokenizer has not.
void check_chat_tokens(ChatTemplate form, const Tokenizer& tokenizer);

}  // namespace keel
