#include "keel/data/examples.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "keel/data/draws.h"
#include "keel/data/token_batch.h"
#include "keel/runtime/error.h"

namespace keel {

Batch collate(const Context& context, std::span<const TokenExample> examples, std::int64_t block, std::int32_t padding,
              std::int64_t first_sample) {
  const auto rows = static_cast<std::int64_t>(examples.size());
  const Tensor input_ids = empty(context, {rows, block}, DType::i32),
               labels = empty(context, {rows, block}, DType::i32), ids = empty(context, {rows}, DType::i64);
  std::int32_t* inputs = input_ids.data<std::int32_t>();
  std::int32_t* targets = labels.data<std::int32_t>();
  std::int64_t tokens_that_count = 0;
  std::fill_n(inputs, input_ids.numel(), padding);
  std::fill_n(targets, labels.numel(), kIgnoreTarget);
  for (std::int64_t row = 0; row < rows; ++row, inputs += block, targets += block) {
    const auto& [tokens, learnt] = examples[static_cast<std::size_t>(row)];
    const auto size = static_cast<std::int64_t>(tokens.size());
    KEEL_CHECK(learnt.size() == tokens.size(), "an example of ", size, " tokens has marks for ", learnt.size());
    KEEL_CHECK(size <= block + 1, "an example of ", size, " tokens does not fit into a block of ", block,
               " inputs; enlarge the block or shorten the example");
    std::copy_n(tokens.begin(), std::min(size, block), inputs);
    for (std::size_t i = 1; i < tokens.size(); ++i) {
      if (!learnt[i]) continue;
      targets[i - 1] = tokens[i];
      ++tokens_that_count;
    }
    ids.data<std::int64_t>()[row] = first_sample + row;
  }
  return token_batch(input_ids, labels, ids, tokens_that_count);
}

ExampleLoader::ExampleLoader(Context context, Source source, const ExampleOptions& options)
    : context_(std::move(context)), source_(std::move(source)), options_(options) {
  KEEL_CHECK(options.rows >= 1 && options.block >= 1 && options.count >= 1, "batches of ", options.rows,
             " rows with blocks of ", options.block, " tokens from ", options.count,
             " examples: each must be at least 1");
}

std::int64_t ExampleLoader::steps() const {
  return options_.count == kEndless ? kEndless : (options_.count - 1) / options_.rows + 1;
}

std::int64_t ExampleLoader::rows(std::int64_t step) const {
  if (options_.count == kEndless) return options_.rows;
  return std::min(options_.rows, options_.count - step * options_.rows);
}

Batch ExampleLoader::load(std::int64_t step, Rows range) const {
  check_rows(step, range);
  std::vector<TokenExample> examples;
  for (std::int64_t row = range.begin; row < range.end; ++row) examples.push_back(source_(step, row));
  return collate(context_, examples, options_.block, options_.padding, step * options_.rows + range.begin);
}

ExampleLoader shuffled_examples(Context context, std::vector<TokenExample> examples, ExampleOptions options,
                                std::uint64_t seed) {
  KEEL_CHECK(!examples.empty(), "there are no examples to load");
  options.count = BatchSource::kEndless;
  auto source = [list = std::make_shared<const std::vector<TokenExample>>(std::move(examples)), rows = options.rows,
                 seed](std::int64_t step, std::int64_t row) {
    const auto count = static_cast<std::int64_t>(list->size());
    return (*list)[static_cast<std::size_t>(epoch_element(step * rows + row, count, seed))];
  };
  return ExampleLoader(std::move(context), std::move(source), options);
}

}  // namespace keel
