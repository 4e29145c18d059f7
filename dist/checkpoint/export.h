#pragma once
// The weights of a checkpoint as one safetensors file, for programs that know nothing of ranks.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "keel/dist/checkpoint/manifest.h"
#include "keel/runtime/error.h"

namespace keel {

// Numbers of the checkpoint cannot be read, or have changed: another checkpoint may be whole. What a target refuses is
// another Error.
class UnreadableCheckpoint : public Error {
 public:
  using Error::Error;
};

// Writes whole tensors in `dtype`, rounded to the nearest, in the order of safetensors files. One rank calls it.
// Memory: a few extents. `folder`: of the manifest. Numbers that a narrower dtype cannot hold are an Error that names
// the tensor. `progress` is told of bytes that have been written. Without success the target stays as it was.
// `section`: what is written; it has tensors.
void export_weights(const std::string& folder, const Manifest& manifest, const std::string& target,
                    DType dtype = DType::f32, const std::function<void(std::uint64_t bytes)>& progress = {},
                    std::string_view section = "weights");

// Makes `target` a second name of the weights where they lie in one file that other programs can read as well, in one
// step; else as export_weights(), with the bytes that one rank would have written: each tensor in its own dtype.
void publish_weights(const std::string& folder, const std::string& target, std::string_view section = "weights");

// The models whose weights a checkpoint has, by name ("": the only one), and the sections of them.
std::map<std::string, std::string> weights_in(const Manifest& manifest);

}  // namespace keel
