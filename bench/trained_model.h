#pragma once
// What bench_train trains: a GPT-2 of a setting on random tokens, or any model of the catalog from a folder.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "keel/autograd/loss.h"
#include "keel/dist/comm/communicator.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/models/gpt.h"
#include "keel/nn/module.h"

namespace keel::bench {

struct TrainedModel {
  std::unique_ptr<Module> module;
  // Of this rank's rows of one batch, which is the same at each step.
  std::function<CrossEntropyLoss(Forward& pass)> loss;
  // What the engine must know of the loss, and what a step of all ranks reads.
  double weight = 0, tokens = 0;
  Tensor sample_ids = {};
  // Gives the engine's weights the numbers of a file; empty: they stay as they begin.
  std::function<void(Sharded& engine)> load = {};
};

TrainedModel random_gpt(const Context& context, const GptOptions& options, std::int64_t batch,
                        const Communicator& ranks);

// A folder that bench/peers/train_model.py --write makes: config.json and model.safetensors in Hugging Face's form, and
// batch.safetensors with `tokens` and `labels`, i64 (batch, time). A label of -100 does not count. A decoder's labels
// are the tokens that follow, an encoder's those that were masked.
TrainedModel model_of_folder(const Context& context, const std::string& folder, Communicator& ranks);

}  // namespace keel::bench
