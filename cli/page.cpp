#include "page.h"

#include "keel/runtime/error.h"

namespace keel::cli {
namespace {

void replace_once(std::string& text, std::string_view mark, std::string_view with) {
  const std::size_t at = text.find(mark);
  KEEL_CHECK(at != std::string::npos, "a page has no place for ", mark);
  text.replace(at, mark.size(), with);
}

// JSON that ends no <script>.
std::string safe_in_html(const Json& data) {
  std::string text;
  for (const char c : data.dump(-1, BadUtf8::replace)) {
    if (c == '<') text += "\\u003c";
    else text += c;
  }
  return text;
}

}  // namespace

std::string fill_page(std::string_view page, const Json& data) {
  std::string text(page);
  replace_once(text, "/*STYLE*/", kPageStyle);
  replace_once(text, "/*SCRIPT*/", kPageScript);
  replace_once(text, "/*DATA*/null", safe_in_html(data));
  return text;
}

}  // namespace keel::cli
