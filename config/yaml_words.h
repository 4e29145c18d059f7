#pragma once
// What is wrong with a text that is no YAML, in keel's words.

#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

// `theirs`: the message of an exception of yaml-cpp's parser, without its place. One that has no words here, as of a
// version of the library that says more, is quoted.
std::string in_our_words(std::string_view theirs);

}  // namespace keel
