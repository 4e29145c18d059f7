#include "keel/tokenizers/oniguruma.h"

#ifdef KEEL_HAVE_ONIGURUMA

#include <dlfcn.h>
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

// The functions of Oniguruma that keel calls. The library is loaded when an expression needs it, and is not linked: it
// has a regcomp() and a regexec() of its own, which would take the place of the C library's in the whole program.
struct OnigurumaLibrary {
  decltype(&::onig_initialize) initialize;
  decltype(&::onig_new) compile;
  decltype(&::onig_free) free;
  decltype(&::onig_search_with_param) search;
  decltype(&::onig_region_new) new_region;
  decltype(&::onig_region_free) free_region;
  decltype(&::onig_new_match_param) new_limits;
  decltype(&::onig_free_match_param) free_limits;
  decltype(&::onig_initialize_match_param) initialize_limits;
  decltype(&::onig_set_match_stack_limit_size_of_match_param) limit_stack;
  decltype(&::onig_set_retry_limit_in_match_of_match_param) limit_match;
  decltype(&::onig_set_retry_limit_in_search_of_match_param) limit_search;
  decltype(&::onig_error_code_to_str) error_text;
  OnigEncoding utf8;
  OnigSyntaxType* ruby;
  int initialized;  // by its own code

  // Null where this machine does not have it.
  static const OnigurumaLibrary* get();
};

template <class Symbol>
bool look_up_symbol(void* library, const char* name, Symbol& symbol) {
  symbol = reinterpret_cast<Symbol>(::dlsym(library, name));
  return symbol != nullptr;
}

const OnigurumaLibrary* OnigurumaLibrary::get() {
  static OnigurumaLibrary found = {};
  static const bool is_there = [] {
    void* const library = ::dlopen("libonig.so.5", RTLD_NOW | RTLD_LOCAL);
    const bool has_all = library != nullptr && look_up_symbol(library, "onig_initialize", found.initialize) &&
                         look_up_symbol(library, "onig_new", found.compile) &&
                         look_up_symbol(library, "onig_free", found.free) &&
                         look_up_symbol(library, "onig_search_with_param", found.search) &&
                         look_up_symbol(library, "onig_region_new", found.new_region) &&
                         look_up_symbol(library, "onig_region_free", found.free_region) &&
                         look_up_symbol(library, "onig_new_match_param", found.new_limits) &&
                         look_up_symbol(library, "onig_free_match_param", found.free_limits) &&
                         look_up_symbol(library, "onig_initialize_match_param", found.initialize_limits) &&
                         look_up_symbol(library, "onig_set_match_stack_limit_size_of_match_param", found.limit_stack) &&
                         look_up_symbol(library, "onig_set_retry_limit_in_match_of_match_param", found.limit_match) &&
                         look_up_symbol(library, "onig_set_retry_limit_in_search_of_match_param", found.limit_search) &&
                         look_up_symbol(library, "onig_error_code_to_str", found.error_text) &&
                         look_up_symbol(library, "OnigEncodingUTF8", found.utf8) &&
                         look_up_symbol(library, "OnigSyntaxRuby", found.ruby);
    if (!has_all) return false;
    OnigEncoding encodings[] = {found.utf8};
    found.initialized = found.initialize(encodings, 1);
    return true;
  }();
  return is_there ? &found : nullptr;
}

const OnigUChar* onig_bytes(std::string_view text) { return reinterpret_cast<const OnigUChar*>(text.data()); }

std::string reason_of(const OnigurumaLibrary& library, int code, OnigErrorInfo* info) {
  OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int size = info == nullptr ? library.error_text(message, code) : library.error_text(message, code, info);
  return {reinterpret_cast<const char*>(message), static_cast<std::size_t>(size)};
}

struct FreeExpression {
  const OnigurumaLibrary* library;
  void operator()(regex_t* expression) const { library->free(expression); }
};
struct FreeRegion {
  const OnigurumaLibrary* library;
  void operator()(OnigRegion* region) const { library->free_region(region, 1); }
};
struct FreeLimits {
  const OnigurumaLibrary* library;
  void operator()(OnigMatchParam* limits) const { library->free_limits(limits); }
};
using Expression = std::unique_ptr<regex_t, FreeExpression>;

Expression compile_expression(const OnigurumaLibrary& library, std::string_view text) {
  static std::mutex mutex;  // Oniguruma compiles one at a time
  const std::lock_guard lock(mutex);
  regex_t* made = nullptr;
  OnigErrorInfo info{};
  int code = library.initialized;
  if (code == ONIG_NORMAL)
    code = library.compile(&made, onig_bytes(text), onig_bytes(text) + text.size(), ONIG_OPTION_NONE, library.utf8,
                           library.ruby, &info);
  if (code != ONIG_NORMAL)
    throw Error(concat("the expression '", text, "' is none that Oniguruma reads: ", reason_of(library, code, &info)));
  return {made, FreeExpression{&library}};
}

class OnigurumaPattern final : public Pattern {
 public:
  OnigurumaPattern(const OnigurumaLibrary& library, std::string_view text)
      : library_(library),
        text_(text),
        expression_(compile_expression(library, text)),
        limits_(library.new_limits(), FreeLimits{&library}) {
    library.initialize_limits(limits_.get());
    library.limit_stack(limits_.get(), kMostStackEntries);
    library.limit_match(limits_.get(), kMostRetries);
    library.limit_search(limits_.get(), kMostRetries);
  }

  std::optional<TextSpan> find(std::string_view text, std::uint32_t from) const override {
    const std::unique_ptr<OnigRegion, FreeRegion> region(library_.new_region(), FreeRegion{&library_});
    const OnigUChar *begin = onig_bytes(text), *end = begin + text.size();
    const auto at = library_.search(expression_.get(), begin, end, begin + from, end, region.get(), ONIG_OPTION_NONE,
                                    limits_.get());
    if (at == ONIG_MISMATCH) return std::nullopt;
    if (at < 0) {
      throw Error(concat("the expression '", text_, "' was given up in a text of ", text.size(), " bytes, at byte ",
                         from, ": ", reason_of(library_, static_cast<int>(at), nullptr),
                         ". One that can match a text in fewer ways needs less"));
    }
    return TextSpan{static_cast<std::uint32_t>(region->beg[0]), static_cast<std::uint32_t>(region->end[0])};
  }

 private:
  const OnigurumaLibrary& library_;
  std::string text_;
  Expression expression_;
  std::unique_ptr<OnigMatchParam, FreeLimits> limits_;
};

}  // namespace

PatternPtr oniguruma_pattern(std::string_view expression) {
  const OnigurumaLibrary* const library = OnigurumaLibrary::get();
  return library == nullptr ? nullptr : std::make_shared<OnigurumaPattern>(*library, expression);
}

}  // namespace keel

#else

namespace keel {

PatternPtr oniguruma_pattern(std::string_view) { return nullptr; }

}  // namespace keel

#endif
