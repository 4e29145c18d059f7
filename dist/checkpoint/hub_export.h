#pragma once
// A checkpoint's weights in the form that Hugging Face's programs read, in a folder with what belongs to them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/dist/checkpoint/manifest.h"
#include "keel/nn/hub_tensor.h"
#include "keel/runtime/file.h"

namespace keel {

struct HubExport {
  std::vector<HubTensor> tensors = {};
  std::vector<std::pair<std::string, std::string>> files = {};  // beside the weights, by name and text: config.json
  std::string weights = "model.safetensors";                    // the file of numbers, where there is one
  DType dtype = DType::f32;
  std::uint64_t most = UINT64_MAX;  // bytes of numbers of one file; more files have an index
  IfExists if_exists = IfExists::refuse;
  std::string_view section = "weights";
  std::function<void(std::uint64_t bytes)> progress = {};
};

// Whether a file of this name belongs to such folders: one that is replaced has no others.
bool is_hub_file(std::string_view name);

// Writes the folder `target`, which appears in one step, and returns how many files of numbers it has: one of the name
// model.safetensors, or several with an index. Numbers are rounded to the nearest. Errors, memory and what happens to a
// target that is replaced: as export_shards() (keel/dist/checkpoint/weight_shards.h).
std::size_t export_hub(const std::string& folder, const Manifest& manifest, const std::string& target,
                       const HubExport& what);

}  // namespace keel
