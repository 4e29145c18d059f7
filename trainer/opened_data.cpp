#include "keel/trainer/opened_data.h"

#include "keel/data/addition.h"
#include "keel/data/loader.h"
#include "keel/data/text_dataset.h"
#include "keel/trainer/data_fingerprint.h"

namespace keel {
namespace {

// Rows of a validation batch: memory like that of a micro-batch with gradients, and few small products.
std::int64_t validation_rows(const Config& config) { return 2 * config.batch.micro; }

OpenedData addition_task(const Config& config, const Context& context) {
  const AdditionTask addition(static_cast<int>(config.data.digits));
  KEEL_CHECK(config.model.block >= addition.block(), "model.block is ", config.model.block, ", but sums of ",
             config.data.digits, " digits have ", addition.block(), " tokens; set model.block=", addition.block());
  OpenedData task;
  task.training =
      std::make_shared<ExampleLoader>(addition.training_loader(context, config.batch.global, config.data.seed));
  task.validation = std::make_shared<ExampleLoader>(
      addition.held_out_loader(context, std::min<std::int64_t>(config.eval.samples, 256), config.eval.samples));
  task.validation_batches = task.validation->steps();
  task.answers = true;
  task.tokenizer = addition.tokenizer();
  task.vocabulary = task.tokenizer->vocabulary_size();
  return task;
}

TextDataset open_dataset(const Config& config) {
  const SplitOptions split{.validation = config.data.validation, .block = config.model.block};
  if (config.data.type == DataConfig::Type::text)
    return open_text(config.data.path, config.data.tokenizer == DataConfig::Tokenizer::byte ? "byte" : "character",
                     split);
  return open_tokens(config.data.path, split);
}

OpenedData text_task(const Config& config, const Context& context) {
  TextDataset dataset = open_dataset(config);
  OpenedData task;
  task.vocabulary = dataset.train.vocabulary_size();
  task.tokenizer = dataset.tokenizer;
  task.note = dataset.note;
  task.fingerprint = fingerprint_of(dataset.whole);
  task.training = std::make_shared<RandomWindowLoader>(
      context, dataset.train,
      WindowOptions{.rows = config.batch.global, .block = config.model.block, .seed = config.data.seed});
  if (config.data.validation == 0) return task;
  const auto validation = std::make_shared<SequentialLoader>(
      context, dataset.validation, WindowOptions{.rows = validation_rows(config), .block = config.model.block});
  task.validation_batches =
      config.eval.batches == 0 ? validation->steps() : std::min(config.eval.batches, validation->steps());
  task.validation = validation;
  return task;
}

}  // namespace

OpenedData open_data(const Config& config, const Context& context) {
  return config.data.type == DataConfig::Type::addition ? addition_task(config, context) : text_task(config, context);
}

GptOptions gpt_options(const Config& config, std::int64_t vocabulary) {
  const ModelConfig& model = config.model;
  KEEL_CHECK(model.vocabulary == 0 || model.vocabulary >= vocabulary, "model.vocabulary is ", model.vocabulary,
             ", but the data has ", vocabulary, " different tokens; leave it out, or make it at least as many");
  GptOptions options;
  options.vocabulary = model.vocabulary == 0 ? vocabulary : model.vocabulary;
  options.block = model.block;
  options.layers = static_cast<int>(model.layers);
  options.heads = static_cast<int>(model.heads);
  options.width = model.width;
  options.dropout = model.dropout;
  options.bias = model.bias;
  return options;
}

std::string unused_rows_note(const Config& config, std::int64_t vocabulary) {
  const std::int64_t rows = config.model.vocabulary;
  // Models are widened a little for speed on GPUs; that is no mistake.
  if (rows < 4 * vocabulary || rows - vocabulary < 1024) return "";
  return concat("model.vocabulary is ", rows, ", but the data has ", vocabulary,
                " different tokens: ", rows - vocabulary,
                " rows of the embedding belong to none; model.vocabulary=", vocabulary, " leaves them out");
}

}  // namespace keel
