#pragma once
// Models that Hugging Face's programs have fetched, as they lie in the local cache. Nothing is fetched here.

#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

// The folder of the cache, by the first of these that is set: $HF_HUB_CACHE, $HF_HOME/hub,
// $XDG_CACHE_HOME/huggingface/hub, $HOME/.cache/huggingface/hub. Empty: none is.
std::string hub_cache();

// The folder of a model's files ("gpt2", "org/name"): the snapshot that its refs/main names. Empty where the cache has
// none.
std::string hub_folder(std::string_view model);

}  // namespace keel
