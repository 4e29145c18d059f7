#pragma once
// Pages that show something: one file each, which needs nothing else.

#include <string>
#include <string_view>

#include "keel/runtime/json.h"

namespace keel::cli {

// cli/pages/, as the build has read them.
extern const char* const kPageStyle;
extern const char* const kPageScript;
extern const char* const kStepPage;
extern const char* const kSchedulePage;

// The page with its style, what pages share of scripts, and `data` where it asks for them.
std::string fill_page(std::string_view page, const Json& data);

}  // namespace keel::cli
