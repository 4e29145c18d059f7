#include "bench/trained_model.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/hub_weights.h"
#include "keel/kernels/elementwise.h"
#include "keel/models/catalog.h"
#include "keel/models/hub_tensors.h"
#include "keel/runtime/file.h"
#include "keel/runtime/random.h"

namespace keel::bench {
namespace {

Tensor random_tokens(const Context& context, const Dims& shape, std::int64_t vocabulary, std::string_view name) {
  const Tensor tokens = empty(context, shape, DType::i32);
  for (std::int64_t i = 0; i < tokens.numel(); ++i)
    tokens.data<std::int32_t>()[i] = static_cast<std::int32_t>(
        stream_word(key_of(1, name), static_cast<std::uint64_t>(i)) % static_cast<std::uint32_t>(vocabulary));
  return tokens;
}

Tensor own_rows(const Tensor& all, const Communicator& ranks) {
  const Span mine = part({0, all.dim(0)}, ranks.size(), ranks.rank());
  return all.slice(0, mine.begin, mine.end);
}

std::int64_t labels_that_count(const Tensor& labels) {
  const std::vector<std::int64_t> values = labels.to_vector<std::int64_t>();
  return std::ssize(values) - std::ranges::count(values, -100);
}

// What a loss closes over, whichever kind of model it is of.
struct Batch {
  Tensor tokens, labels;
};

}  // namespace

TrainedModel random_gpt(const Context& context, const GptOptions& options, std::int64_t batch,
                        const Communicator& ranks) {
  const Dims shape = {batch, options.block};
  const Tensor inputs = own_rows(random_tokens(context, shape, options.vocabulary, "inputs"), ranks);
  const Tensor targets = own_rows(random_tokens(context, shape, options.vocabulary, "targets"), ranks);
  auto model = std::make_unique<Gpt>(options);
  TrainedModel trained;
  trained.loss = [inputs, targets, gpt = model.get()](Forward& pass) { return gpt->loss(inputs, targets, pass); };
  trained.weight = static_cast<double>(targets.numel());
  trained.tokens = static_cast<double>(batch * options.block);
  trained.module = std::move(model);
  return trained;
}

TrainedModel model_of_folder(const Context& context, const std::string& folder, Communicator& ranks) {
  const std::string place = concat(folder, '/', kHubConfig);
  const ModelSpecPtr spec = read_hub_spec(read_text_file(place), place);
  const SafetensorsFile file(concat(folder, "/batch.safetensors"));
  const Tensor whole = file.tensor("tokens", context, Purpose::activation);
  const Batch batch = {own_rows(whole, ranks), own_rows(file.tensor("labels", context, Purpose::activation), ranks)};
  const Span rows = part({0, whole.dim(0)}, ranks.size(), ranks.rank());

  TrainedModel trained;
  trained.weight = static_cast<double>(labels_that_count(batch.labels));
  trained.tokens = static_cast<double>(whole.numel());
  trained.sample_ids = kernels::arange(context, rows.begin, rows.count());
  if (spec->entry().kind == ModelKind::decoder) {
    auto model = spec->make_decoder();
    trained.loss = [batch, decoder = model.get()](Forward& pass) {
      return decoder->loss(batch.tokens, batch.labels, pass);
    };
    trained.module = std::move(model);
  } else {
    auto model = spec->make_encoder({.head = EncoderHead::masked_language});
    trained.loss = [batch, encoder = model.get()](Forward& pass) {
      return encoder->masked_loss({.tokens = batch.tokens}, batch.labels, pass);
    };
    trained.module = std::move(model);
  }
  trained.load = [folder, names = hub_names(*trained.module, spec->entry().naming), &ranks](Sharded& engine) {
    load_hub_weights(folder, describe_hub_weights(folder), names, engine, ranks);
  };
  return trained;
}

}  // namespace keel::bench
