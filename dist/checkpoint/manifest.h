#pragma once
// What a checkpoint holds: which elements of which tensor lie where in which file, and the hash of each such extent.
//
// The manifest is a JSON file, `manifest.json`. Its last member is the hash of the text itself, so that no edit of it
// goes unnoticed. The other files are safetensors files whose numbers begin at a page. A tensor is cut into extents of
// kExtentBytes, and where one rank's part of it ends and another's begins.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/nn/tensor_parts.h"
#include "keel/runtime/json.h"
#include "keel/runtime/xxh3.h"

namespace keel {

inline constexpr std::int64_t kExtentBytes = std::int64_t{16} << 20, kPageBytes = 4096;

// A tensor of a section: "weights", "optimizer", "compression.3", which are the residuals of rank 3, "strategy", or
// "group.3", the weights and optimizer state of group 3 where groups of ranks have their own.
struct StoredTensor {
  std::string section, name;
  DType dtype = DType::f32;
  Dims shape;
  bool operator==(const StoredTensor&) const = default;
};

struct StoredFile {
  std::string name;  // in the checkpoint's folder
  std::uint64_t bytes = 0;
  // What the file begins with, and its hash: the bytes before the numbers; all, where extents have no hashes; or none.
  std::uint64_t head = 0;
  Hash128 hash = {};
  bool operator==(const StoredFile&) const = default;
};

// Elements [begin, end) of a tensor, read as one row.
struct Extent {
  std::uint32_t tensor = 0, file = 0;  // in Manifest::tensors and Manifest::files
  std::int64_t begin = 0, end = 0;
  std::uint64_t offset = 0;  // of the first byte in the file
  Hash128 hash = {};         // XXH3 of the bytes, where Manifest::has_hashes
  bool operator==(const Extent&) const = default;
};

// Whether an extent has the elements of the one before it, written by another rank.
bool is_repeated(const Extent& before, const Extent& extent);

struct Manifest {
  static constexpr std::string_view kFile = "manifest.json";
  static constexpr int kFormat = 4;

  Json state = Json::object();  // of whoever saves: the step, the configuration
  std::vector<StoredFile> files;
  std::vector<StoredTensor> tensors;
  // By tensor, then by first element. An extent that several ranks have written is there several times.
  std::vector<Extent> extents;
  bool has_hashes = true;  // of extents

  std::uint64_t bytes() const;  // of all files
  std::uint64_t bytes_of(const Extent& extent) const;
  std::span<const Extent> extents_of(std::uint32_t tensor) const;
  // Names and shapes of a section's tensors, without numbers.
  TensorParts tensors_of(std::string_view section) const;
  // Names of the sections that begin so, each once, in the order of the tensors.
  std::vector<std::string> sections(std::string_view beginning = {}) const;
};

// Makes one manifest of what several ranks have written.
class ManifestJoin {
 public:
  void add(const Manifest& part);
  // A part of one rank, of which nothing is expected.
  Manifest part() && { return std::move(joined_); }
  // All of it. Extents that overlap in part or leave gaps are an Error that names the tensor.
  Manifest finish() &&;

 private:
  Manifest joined_;
  std::map<std::pair<std::string, std::string>, std::uint32_t> places_;  // of tensors, by section and name
};

// Names the first tensor that several ranks have written with different numbers, of which readers take the first; else
// empty.
std::string disagreement(const Manifest& manifest);

// What one rank has written, as the text of a file for the rank that joins all; and back, with the Errors of
// parse_manifest().
std::string part_text(const Manifest& part);
Manifest parse_part(std::string_view text, const std::string& path);

// The text of manifest.json, and back. A text that has changed, is of an unknown format or malformed is an Error that
// names `path`. What is read holds every element of every tensor, inside a file of the folder.
std::string manifest_text(const Manifest& manifest);
Manifest parse_manifest(std::string_view text, const std::string& path);

// Whether a folder says that it is a checkpoint, of any format.
bool is_checkpoint(const std::string& folder);

// The manifest of a checkpoint's folder. Those of formats 2 (keel 0.1.0) and 3 get one from their state.json and the
// headers of their files. Reads no numbers. A file that is missing or has another size is an Error.
Manifest read_manifest(const std::string& folder);

// An Error for what is no name of a file in the checkpoint's own folder.
void check_file_name(const std::string& name);

// That of safetensors files of any origin, as one section, without hashes; names such as "weight (7, 5) 12:24" are
// parts of a tensor.
Manifest describe_files(const std::string& folder, std::string_view section, std::span<const std::string> names);

}  // namespace keel
