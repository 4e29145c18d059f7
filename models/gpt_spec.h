#pragma once
// GPT-2's entry of the catalog.

#include "keel/models/catalog.h"

namespace keel {

ModelEntry gpt_entry();

}  // namespace keel
