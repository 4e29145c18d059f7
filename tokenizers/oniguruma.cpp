#include "keel/tokenizers/oniguruma.h"

#ifdef KEEL_HAVE_ONIGURUMA

#include <oniguruma.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "keel/runtime/error.h"

namespace keel {
namespace {

// What one search may take. Oniguruma's own limits allow minutes.
constexpr unsigned kMostStackEntries = 1u << 20;
constexpr unsigned long kMostRetries = 10'000'000;

const OnigUChar* onig_bytes(std::string_view text) { return reinterpret_cast<const OnigUChar*>(text.data()); }

std::string reason_of(int code, OnigErrorInfo* info) {
  OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int size =
      info == nullptr ? onig_error_code_to_str(message, code) : onig_error_code_to_str(message, code, info);
  return {reinterpret_cast<const char*>(message), static_cast<std::size_t>(size)};
}

struct FreeExpression {
  void operator()(regex_t* expression) const { onig_free(expression); }
};
struct FreeRegion {
  void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
};
struct FreeLimits {
  void operator()(OnigMatchParam* limits) const { onig_free_match_param(limits); }
};

std::unique_ptr<regex_t, FreeExpression> compile_expression(std::string_view text) {
  static std::mutex mutex;  // Oniguruma compiles one at a time
  const std::lock_guard lock(mutex);
  static const int initialized = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    return onig_initialize(encodings, 1);
  }();
  regex_t* made = nullptr;
  OnigErrorInfo info{};
  int code = initialized;
  if (code == ONIG_NORMAL) {
    code = onig_new(&made, onig_bytes(text), onig_bytes(text) + text.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                    ONIG_SYNTAX_RUBY, &info);
  }
  if (code != ONIG_NORMAL) {
    throw Error(concat("the expression '", text, "' is none that Oniguruma reads: ", reason_of(code, &info)));
  }
  return std::unique_ptr<regex_t, FreeExpression>(made);
}

class OnigurumaPattern final : public Pattern {
 public:
  explicit OnigurumaPattern(std::string_view text)
      : text_(text), expression_(compile_expression(text)), limits_(onig_new_match_param()) {
    onig_initialize_match_param(limits_.get());
    onig_set_match_stack_limit_size_of_match_param(limits_.get(), kMostStackEntries);
    onig_set_retry_limit_in_match_of_match_param(limits_.get(), kMostRetries);
    onig_set_retry_limit_in_search_of_match_param(limits_.get(), kMostRetries);
  }

  std::optional<TextSpan> find(std::string_view text, std::uint32_t from) const override {
    const std::unique_ptr<OnigRegion, FreeRegion> region(onig_region_new());
    const OnigUChar *begin = onig_bytes(text), *end = begin + text.size();
    const auto at = onig_search_with_param(expression_.get(), begin, end, begin + from, end, region.get(),
                                           ONIG_OPTION_NONE, limits_.get());
    if (at == ONIG_MISMATCH) return std::nullopt;
    if (at < 0) {
      throw Error(concat("the expression '", text_, "' was given up in a text of ", text.size(), " bytes, at byte ",
                         from, ": ", reason_of(static_cast<int>(at), nullptr),
                         ". One that can match a text in fewer ways needs less"));
    }
    return TextSpan{static_cast<std::uint32_t>(region->beg[0]), static_cast<std::uint32_t>(region->end[0])};
  }

 private:
  std::string text_;
  std::unique_ptr<regex_t, FreeExpression> expression_;
  std::unique_ptr<OnigMatchParam, FreeLimits> limits_;
};

}  // namespace

PatternPtr oniguruma_pattern(std::string_view expression) { return std::make_shared<OnigurumaPattern>(expression); }

}  // namespace keel

#else

namespace keel {

PatternPtr oniguruma_pattern(std::string_view) { return nullptr; }

}  // namespace keel

#endif
