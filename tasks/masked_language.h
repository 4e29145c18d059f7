#pragma once
// The task `masked_language`: encoders learn which tokens stood where some of a text's are masked (Devlin et al. 2019,
// "BERT: Pre-training of deep bidirectional transformers for language understanding").

#include "keel/tasks/catalog.h"

namespace keel {

TaskEntry masked_language_task();

}  // namespace keel
