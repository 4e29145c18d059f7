#pragma once
// Weights that others have made: a safetensors file, several with an index, a checkpoint, the newest checkpoint of a
// run, or a folder of Hugging Face's form.

#include <functional>
#include <string>

#include "keel/dist/checkpoint/manifest.h"
#include "keel/dist/comm/communicator.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/nn/tensor_parts.h"
#include "keel/trainer/stack_models.h"

namespace keel {

struct WeightsSource {
  std::string folder;  // of the manifest's files
  Manifest manifest;   // whose section "weights" it is
  // Of names, shapes, numbers and the parts in which they were written: another one means other weights, or a
  // checkpoint of the same ones by another number of ranks, or a file in place of a checkpoint.
  std::string identity;
  bool is_checkpoint = false;  // for the first rank
  bool is_hub = false;         // tensors have the names of a folder with config.json
};

// What the path means, as the first rank finds it; what it says is read by all. A path that is none of these, or
// cannot be opened, is an AgreedError. Several files are the folder of the index, or the index itself. The identity of
// a checkpoint is made of the hashes that its manifest has; that of files is the hash of their bytes, which the first
// rank reads; without `identify` there is none. Every rank calls it.
WeightsSource find_weights(const std::string& path, Communicator& ranks, bool identify = true);

// An Error where the files of a folder of Hugging Face's form have other tensors than the trained model that begins
// with them (match_hub_tensors()): before memory of the model's size is asked for.
void check_shapes_of_weights(const StackModels& models);

// Gives the engine of a task's model the weights that the model names (StackModel::weights), and those of its adapters
// (AdapterForm::weights); returns the identity of the former, if it is asked for. `ranks`: those of the engine, by a
// communicator of the processor. `tell` hears on the first rank what begins at random, and what is left aside. Every
// rank calls it. An AgreedError: of find_weights(), of weights of another model, of a folder of Hugging Face's form
// where the model has none, and of numbers that are not finite.
std::string load_named_weights(const StackModel& model, Sharded& engine, Communicator& ranks, bool identify,
                               const std::function<void(const std::string& note)>& tell = {});

// The first part that has a number which is not finite; empty: none has.
std::string first_not_finite(const TensorParts& parts);

}  // namespace keel
