#pragma once
// Weights in several safetensors files with an index, as other programs share large models: model-00001-of-00003.
// safetensors and so on, and model.safetensors.index.json, which says in which file each tensor is.
//
// Format: {"metadata": {"total_size": bytes of all numbers}, "weight_map": {"name of a tensor": "name of a file", ...}}
// (https://huggingface.co/docs/transformers/big_models#sharded-checkpoints).

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/manifest.h"
#include "keel/runtime/file.h"

namespace keel {

inline constexpr const char* kShardIndex = "model.safetensors.index.json";

// "model-00002-of-00012.safetensors".
std::string shard_name(std::size_t shard, std::size_t shards);
// Whether a file's name is one of those, or the index's.
bool is_of_shards(std::string_view name);

// Tensors in the order of one file, cut where the numbers of a file would be more than `most` bytes. A tensor of more
// has a file of its own.
std::vector<std::vector<SafetensorsEntry>> divide_into_shards(const std::vector<SafetensorsEntry>& tensors,
                                                              std::uint64_t most);
// An Error for more than names have room for.
void check_number_of_shards(std::size_t shards);
// The text of the index.
std::string shard_index_text(const std::vector<std::vector<SafetensorsEntry>>& shards);

// What export_weights() writes, as the folder `target` of such files, which appears in one step; their number. Without
// success `target` stays as it was. One that is replaced goes with all that is in it.
std::size_t export_shards(const std::string& folder, const Manifest& manifest, const std::string& target,
                          std::uint64_t most, IfExists if_exists = IfExists::refuse, DType dtype = DType::f32,
                          const std::function<void(std::uint64_t bytes)>& progress = {},
                          std::string_view section = "weights");

// The files that an index names, each once, in the order of their names. An index that is malformed, or names no file
// of its own folder, is an Error.
std::vector<std::string> files_of_index(const std::string& index);
// The tensors of an index as one section of its folder's files. A file that is not there, a tensor that is not in the
// file that the index says, and one of a file that the index does not have there are an Error.
Manifest describe_shards(const std::string& index, std::string_view section);

}  // namespace keel
