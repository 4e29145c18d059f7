#pragma once
// Whole tensors of a checkpoint on their way into safetensors files.

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/dist/checkpoint/manifest.h"

namespace keel {

// One section of a checkpoint, in `dtype`. Memory: a few extents.
class WeightsWriter {
 public:
  WeightsWriter(const std::string& folder, const Manifest& manifest, std::string_view section, DType dtype,
                std::function<void(std::uint64_t bytes)> progress);

  // All of the section, in the order of safetensors files.
  const std::vector<SafetensorsEntry>& tensors() const { return tensors_; }
  // Where extents have no hashes, files as wholes may: that no bit has changed. An UnreadableCheckpoint where one has.
  void verify() const;
  // Some of them as a file. Errors of export_weights().
  void write(const std::string& target, std::vector<SafetensorsEntry> tensors) const;

 private:
  std::string section_;
  DType dtype_;
  bool has_hashes_;
  std::function<void(std::uint64_t bytes)> progress_;
  ExtentReader reader_;
  std::vector<SafetensorsEntry> tensors_;
  std::map<std::string, DType, std::less<>> stored_;  // by name
};

}  // namespace keel
