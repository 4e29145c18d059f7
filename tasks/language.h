#pragma once
// Language models: next tokens of windows (keel/data/token_batch.h), of texts, token files or sums that are made up.

#include "keel/config/settings.h"
#include "keel/data/batch.h"
#include "keel/models/causal_model.h"
#include "keel/tasks/catalog.h"
#include "keel/tasks/loss.h"
#include "keel/tasks/metric.h"

namespace keel {

// The task `language`, and its keys model.* and data.*.
TaskEntry language_task();

// The mean cross-entropy of the labels that count.
Loss language_loss(const CausalModel& model, const Batch& batch, Forward& pass);

// Documents that rows are packed of; none where the rows of the batch are one text each.
PackedDocuments packed_documents(const Batch& batch);

// Feeds "loss" and, where it is there, "exact_match".
void validate_language(const CausalModel& model, const Batch& batch, Forward& pass, Metrics& metrics);

}  // namespace keel
