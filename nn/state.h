#pragma once
// State dicts: a model's numbers by name, to save, load, copy and count.

#include <string>
#include <string_view>
#include <vector>

#include "keel/nn/flat_buffer.h"
#include "keel/nn/tensor_parts.h"

namespace keel {

// Every parameter once, and then every buffer, each in visiting order, as views of the model's memory.
NamedTensors state_dict(Module& model);
// The fp32 master where there is one, else the value.
NamedTensors master_state_dict(const std::vector<FlatBuffer>& buffers);

// Copies each tensor of `from` into that of the same name in `to`. Every name and shape must agree: an Error that
// begins with `complaint` lists what is missing, what is extra, and what has another shape, and nothing is changed.
void copy_state(const NamedTensors& from, const NamedTensors& to, std::string_view complaint);
// Copies `state`, which is a state dict of such a model, into values, masters and buffers, checked likewise. `flat` is
// what materialize() gave for the model.
void load_state(Module& model, std::vector<FlatBuffer>& flat, const NamedTensors& state);

}  // namespace keel
