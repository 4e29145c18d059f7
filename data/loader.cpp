#include "keel/data/loader.h"

#include <algorithm>
#include <span>
#include <utility>

#include "keel/data/draws.h"
#include "keel/data/token_batch.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

void check_options(const WindowOptions& options, const Tokens& tokens, std::int64_t needed) {
  KEEL_CHECK(options.rows >= 1 && options.block >= 1, "batches of ", options.rows, " windows of ", options.block,
             " tokens: both must be at least 1");
  KEEL_CHECK(tokens.size() >= needed, "windows of ", options.block, " tokens need a sequence of at least ", needed,
             ", but there are ", tokens.size());
}

// A batch of windows; position_of(row) is the place of a row's first input.
template <class F>
Batch load_windows(const Context& context, const Tokens& tokens, const WindowOptions& options, std::int64_t step,
                   Rows range, F&& position_of) {
  const std::int64_t rows = range.end - range.begin, block = options.block;
  const Tensor inputs = empty(context, {rows, block}, DType::i32), labels = empty(context, {rows, block}, DType::i32),
               ids = empty(context, {rows}, DType::i64);
  const auto row_of = [&](const Tensor& tensor, std::int64_t row) {
    return std::span(tensor.data<std::int32_t>() + row * block, static_cast<std::size_t>(block));
  };
  std::int64_t tokens_that_count = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t position = position_of(range.begin + row);
    const auto present = static_cast<std::size_t>(std::min(block, tokens.size() - 1 - position));
    const auto input = row_of(inputs, row), label = row_of(labels, row);
    tokens.copy(position, input.first(present));
    tokens.copy(position + 1, label.first(present));
    std::ranges::fill(input.subspan(present), 0);
    std::ranges::fill(label.subspan(present), kIgnoreTarget);
    tokens_that_count += static_cast<std::int64_t>(present);
    ids.data<std::int64_t>()[row] = step * options.rows + range.begin + row;
  }
  return token_batch(inputs, labels, ids, tokens_that_count);
}

}  // namespace

RandomWindowLoader::RandomWindowLoader(Context context, Tokens tokens, const WindowOptions& options)
    : context_(std::move(context)), tokens_(std::move(tokens)), options_(options) {
  check_options(options, tokens_, options.block + 1);
}

Batch RandomWindowLoader::load(std::int64_t step, Rows range) const {
  check_rows(step, range);
  const std::int64_t places = tokens_.size() - options_.block;
  const PhiloxKey key = key_of(options_.seed, "window");
  return load_windows(context_, tokens_, options_, step, range,
                      [&](std::int64_t row) { return draw_below(places, key, step, row); });
}

SequentialLoader::SequentialLoader(Context context, Tokens tokens, const WindowOptions& options)
    : context_(std::move(context)), tokens_(std::move(tokens)), options_(options) {
  check_options(options, tokens_, 2);
}

std::int64_t SequentialLoader::steps() const { return (windows() - 1) / options_.rows + 1; }

std::int64_t SequentialLoader::rows(std::int64_t step) const {
  return std::min(options_.rows, windows() - step * options_.rows);
}

Batch SequentialLoader::load(std::int64_t step, Rows range) const {
  check_rows(step, range);
  return load_windows(context_, tokens_, options_, step, range,
                      [&](std::int64_t row) { return (step * options_.rows + row) * options_.block; });
}

EpochLoader::EpochLoader(Context context, Tokens tokens, const WindowOptions& options)
    : context_(std::move(context)), tokens_(std::move(tokens)), options_(options) {
  check_options(options, tokens_, options.block + 1);
}

Batch EpochLoader::load(std::int64_t step, Rows range) const {
  check_rows(step, range);
  return load_windows(context_, tokens_, options_, step, range, [&](std::int64_t row) {
    return epoch_element(step * options_.rows + row, windows(), options_.seed) * options_.block;
  });
}

}  // namespace keel
