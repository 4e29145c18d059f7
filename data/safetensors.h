#pragma once
// Tensors in files: the safetensors format, read through a memory mapping and written atomically.
//
// Format: 8 bytes N (little-endian), N bytes of JSON that give each tensor's dtype, shape and place,
// then the numbers, little-endian, row-major and without gaps
// (https://github.com/huggingface/safetensors#format).

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "keel/runtime/file.h"
#include "keel/runtime/tensor.h"

namespace keel {

using NamedTensor = std::pair<std::string, Tensor>;
using Metadata = std::map<std::string, std::string>;

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;  // BOOL is read as u8
  Dims shape;
  std::size_t offset = 0;  // of the first byte, counted from the start of the file
  std::size_t bytes = 0;
};

// What a file begins with, and where its tensors lie.
struct SafetensorsLayout {
  std::string head;                       // the length, the JSON and blanks
  std::vector<SafetensorsEntry> entries;  // in the order in which the numbers lie
  std::uint64_t bytes = 0;                // of the whole file
};

// `sorted`: wide dtypes before narrow ones, so that everything is aligned, then by name.
enum class SafetensorsOrder : unsigned char { sorted, given };

// The layout of a file with tensors of these names, dtypes and shapes. Names must differ. The numbers begin at a
// multiple of `alignment` bytes, which is a multiple of 8.
SafetensorsLayout lay_out_safetensors(std::vector<SafetensorsEntry> tensors, const Metadata& metadata,
                                      SafetensorsOrder order, std::size_t alignment = 8);

// An opened file. Opening checks the whole header: whatever is malformed is an Error that names path and
// reason. The numbers are read when they are asked for. Copies share the mapping.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return mapping_->path(); }
  std::size_t bytes() const { return mapping_->size(); }
  // In the order in which the numbers lie in the file.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const Metadata& metadata() const { return metadata_; }
  bool contains(std::string_view name) const { return index_.contains(std::string(name)); }
  // An Error that names the nearest entry when there is none of this name.
  const SafetensorsEntry& entry(std::string_view name) const;

  // A copy in memory of the context.
  Tensor tensor(std::string_view name, const Context& context, Purpose purpose = Purpose::parameter) const;
  // The file's own bytes without a copy, alive as long as the tensor. What is written to it never reaches the file.
  // (Copied all the same where the file has placed the numbers out of alignment.)
  Tensor view(std::string_view name, const Context& context) const;
  // Every tensor as view() gives it, in the order of entries().
  std::vector<NamedTensor> views(const Context& context) const;

 private:
  std::shared_ptr<const MappedFile> mapping_;
  std::vector<SafetensorsEntry> entries_;
  std::unordered_map<std::string, std::size_t> index_;  // name -> place in entries_
  Metadata metadata_;
};

// Replaces `path` in one step (keel/runtime/file.h). Any strides; names must differ. The file's bytes depend only on
// names, numbers and metadata. Needs little memory besides the tensors.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors, const Metadata& metadata = {},
                       SafetensorsOrder order = SafetensorsOrder::sorted);

}  // namespace keel
