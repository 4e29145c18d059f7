#include "keel/tasks/chat_template.h"

#include <algorithm>
#include <array>
#include <span>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};

struct ChatForm {
  std::string_view name, begin, before_role, behind_role, end, behind;
  bool trims = false;
  std::array<std::string_view, 4> tokens = {};  // that it needs
};
constexpr std::array<ChatForm, 3> kForms = {
    {{.name = "llama3",
      .begin = "<|begin_of_text|>",
      .before_role = "<|start_header_id|>",
      .behind_role = "<|end_header_id|>\n\n",
      .end = "<|eot_id|>",
      .behind = "",
      .trims = true,
      .tokens = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
     {.name = "chatml",
      .begin = "",
      .before_role = "<|im_start|>",
      .behind_role = "\n",
      .end = "<|im_end|>",
      .behind = "\n",
      .tokens = {"<|im_start|>", "<|im_end|>"}},
     {.name = "plain", .begin = "", .before_role = "", .behind_role = ": ", .end = "\n\n", .behind = ""}}};

const ChatForm& form_of(ChatTemplate form) { return kForms[static_cast<std::size_t>(form)]; }

// Without white space at both ends, as Python's str.strip() has it for ASCII.
std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\r\v\f\x1c\x1d\x1e\x1f";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// A text of Jinja.
std::string jinja_text(std::string_view text) {
  std::string quoted = "'";
  for (const char byte : text) {
    if (byte == '\n') quoted += "\\n";
    else if (byte == '\r') quoted += "\\r";
    else if (byte == '\'' || byte == '\\') quoted += concat('\\', byte);
    else quoted += byte;
  }
  return quoted + '\'';
}

}  // namespace

ChatRole parse_chat_role(std::string_view name) {
  const auto found = std::ranges::find(kRoles, name);
  KEEL_CHECK(found != kRoles.end(), "'", printable(name, 64), "' is no role: system, user or assistant");
  return static_cast<ChatRole>(found - kRoles.begin());
}

ChatTemplate parse_chat_template(std::string_view name) {
  const auto found = std::ranges::find(kForms, name, &ChatForm::name);
  KEEL_CHECK(found != kForms.end(), "'", printable(name, 64), "' is no template: llama3, chatml or plain");
  return static_cast<ChatTemplate>(found - kForms.begin());
}

WrittenChat write_chat(ChatTemplate form, const std::vector<ChatMessage>& messages, bool asks) {
  const ChatForm& parts = form_of(form);
  WrittenChat chat{std::string(parts.begin), {}};
  for (const ChatMessage& message : messages) {
    const std::string_view content = parts.trims ? trimmed(message.content) : std::string_view(message.content);
    KEEL_CHECK(
        form != ChatTemplate::plain || concat(content, '\n').find("\n\n") == std::string::npos, "the content '",
        printable(content, 64),
        "' has an empty line, or a line feed at its end, which ends a message of the template plain; take another "
        "template");
    chat.text += concat(parts.before_role, kRoles[static_cast<std::size_t>(message.role)], parts.behind_role);
    // Tokens of words begin with their space, so that of `plain` belongs to the answer.
    const std::size_t begin = chat.text.size() - (form == ChatTemplate::plain ? 1 : 0);
    chat.text += concat(content, parts.end);
    if (message.role == ChatRole::assistant) chat.answers.push_back({begin, chat.text.size()});
    chat.text += parts.behind;
  }
  if (asks) {
    chat.text += concat(parts.before_role, "assistant", parts.behind_role);
    if (form == ChatTemplate::plain) chat.text.pop_back();
  }
  return chat;
}

std::string jinja_of(ChatTemplate form, std::string_view system) {
  const ChatForm& parts = form_of(form);
  const auto message = [&](std::string_view role, std::string_view content) {
    return concat("{{ ", jinja_text(parts.before_role), " + ", role, " + ", jinja_text(parts.behind_role), " + ",
                  content, parts.trims ? " | trim" : "", " + ", jinja_text(concat(parts.end, parts.behind)), " }}");
  };
  std::string text = parts.begin.empty() ? "" : concat("{{ ", jinja_text(parts.begin), " }}");
  if (!system.empty())
    text += concat("{% if messages[0]['role'] != 'system' %}", message("'system'", jinja_text(system)), "{% endif %}");
  text += concat("{% for message in messages %}", message("message['role']", "message['content']"), "{% endfor %}");
  const WrittenChat asked = write_chat(form, {}, /*asks=*/true);
  const std::string_view asks = std::string_view(asked.text).substr(parts.begin.size());
  return text + concat("{% if add_generation_prompt %}{{ ", jinja_text(asks), " }}{% endif %}");
}

std::vector<std::string> system_in_jinja(ChatTemplate form, std::string_view system) {
  if (system.empty()) return {};
  const ChatForm& parts = form_of(form);
  const std::string written = concat("system", parts.behind_role, parts.trims ? trimmed(system) : system, parts.end);
  const std::string quoted = jinja_text(written);
  return {written, quoted.substr(1, quoted.size() - 2)};
}

std::string_view end_of_answer(ChatTemplate form) { return form_of(form).end; }

void check_chat_tokens(ChatTemplate form, const Tokenizer& tokenizer) {
  std::string missing;
  for (const std::string_view token : form_of(form).tokens)
    if (!token.empty() && !tokenizer.token_of(token)) missing += concat(missing.empty() ? "" : ", ", token);
  KEEL_CHECK(
      missing.empty(), "data.template=", form_of(form).name, ": the tokenizer has no ", missing,
      "; take the tokenizer of a model with this template, train one with them (`keel tokenizer train --special`), "
      "or data.template=plain");
}

}  // namespace keel
