#pragma once
// `keel predict` of the task `language`: how likely each text is, or what a sum is.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "keel/data/addition.h"
#include "keel/data/batch.h"
#include "keel/data/dataset.h"
#include "keel/models/causal_model.h"
#include "keel/tasks/predictions.h"
#include "keel/tasks/task.h"
#include "keel/tokenizers/tokenizer.h"

namespace keel {

// The records of a file to answer, by its kind (keel/data/data_file.h): objects, rows and examples, or the lines of a
// text as the field `text`. An Error where there is none, where the file is of tokens, and of an empty line that others
// stand behind.
DatasetPtr open_texts_to_predict(const std::string& path);

// The field `text` of each record of open_texts_to_predict(), in order, in batches of site.validation_rows. Fields
// input_ids and labels, i32 (rows, time), filled up to the longest text of the batch by token 0 and label -100: each
// token but the first is a label once. The weight `tokens` counts the labels. `before`: tokens that stand before those
// of each text. A record without such a text is an Error with file and line when its batch is loaded.
std::shared_ptr<const BatchSource> texts_to_score(const TaskSite& site, const std::string& path,
                                                  std::shared_ptr<const Tokenizer> tokenizer,
                                                  std::vector<std::uint32_t> before = {});
// {"tokens":12,"loss":2.5,"perplexity":12.2} of each text: labels, the mean negative log-likelihood of one in nats, and
// exp of that; null for a text of fewer than two tokens. A text longer than the model's block is read in pieces of it,
// each of which begins without what came before, as in an evaluation.
void score_texts(const CausalModel& model, const Batch& batch, Forward& pass, Predictions& out);

// Sums such as "347+586=", likewise, as field input_ids, i32 (rows, the digits' length). A text that is no sum of so
// many digits is an Error with file and line.
std::shared_ptr<const BatchSource> sums_to_answer(const TaskSite& site, const std::string& path, AdditionTask task);
// {"sum":933} of each, the likeliest answer; null where that is no number.
void answer_sums(const CausalModel& model, const AdditionTask& task, const Batch& batch, Forward& pass,
                 Predictions& out);

}  // namespace keel
