#pragma once
// Whole tensors of a checkpoint on their way into safetensors files.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/dist/checkpoint/manifest.h"
#include "keel/nn/hub_tensor.h"

namespace keel {

// How the files call their tensors, and which parts of the section's these are. Products of low rank are added in fp32
// before numbers are rounded.
struct WrittenTensors {
  std::vector<HubTensor> tensors = {};
  Metadata metadata = {};
};

// One section of a checkpoint, in `dtype`, or without one in those that it has there. Memory: a few extents. The
// manifest must outlive it.
class WeightsWriter {
 public:
  // Every tensor of the section by its own name.
  WeightsWriter(const std::string& folder, const Manifest& manifest, std::string_view section,
                std::optional<DType> dtype, std::function<void(std::uint64_t bytes)> progress);
  // A tensor that has no numbers in the section, or of another shape, is an Error.
  WeightsWriter(const std::string& folder, const Manifest& manifest, std::string_view section,
                std::optional<DType> dtype, std::function<void(std::uint64_t bytes)> progress, WrittenTensors written);

  // All of them, in the order of safetensors files.
  const std::vector<SafetensorsEntry>& tensors() const { return tensors_; }
  // Where extents have no hashes, files as wholes may: that no bit has changed. An UnreadableCheckpoint where one has.
  void verify() const;
  // Some of them as a file. Errors of export_weights().
  void write(const std::string& target, std::vector<SafetensorsEntry> tensors) const;

 private:
  struct Source {
    HubTensor tensor;
    const StoredTensor* stored;
    Dims a = {}, b = {};  // shapes of the product's factors
  };
  struct Factors {
    Tensor a, b;  // f32, undefined where nothing is added
  };
  // Where a tensor of the file may be cut, in elements.
  static std::int64_t step_of(const Source& source);
  // Elements [begin, begin + numel) of a tensor of the file.
  void read(const Source& source, std::int64_t begin, const Tensor& values) const;
  Factors read_factors(const Source& source, const Context& host) const;
  // Likewise of the product, added to what `values`, f32, holds.
  static void add_product(const Source& source, const Factors& factors, std::int64_t begin, const Tensor& values);

  std::string section_;
  bool has_hashes_;
  std::function<void(std::uint64_t bytes)> progress_;
  ExtentReader reader_;
  std::vector<SafetensorsEntry> tensors_;
  std::map<std::string, Source, std::less<>> sources_;  // by name in the file
  Metadata metadata_;
};

}  // namespace keel
