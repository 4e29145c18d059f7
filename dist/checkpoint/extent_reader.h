#pragma once
// Reads elements of tensors out of a checkpoint's files, or out of safetensors files of any origin: only what holds
// them, several pieces at a time. An extent that has a hash is read whole, and compared with it before any number of it
// is used; of others no more than the bytes that are asked for, and short gaps between them.

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/dist/checkpoint/manifest.h"

namespace keel {

class Communicator;
enum class PieceOrder : unsigned char;

// Indices [begin[d], begin[d] + extent d of the values) of every dimension d of a tensor: rows, columns, or both.
struct TensorBlock {
  std::string name;
  Dims shape;  // of the whole
  Dims begin;
  Tensor values = {};  // dense
};

struct ReadCount {
  std::uint64_t bytes = 0, pieces = 0;
};

class ExtentReader {
 public:
  // Threads that read, each with one extent in memory.
  static constexpr int kThreads = 3;
  // A gap that is read rather than jumped over.
  static constexpr std::uint64_t kGapBytes = 64 << 10;
  // Is told of bytes that have been read, in the calling thread.
  using Progress = std::function<void(std::uint64_t bytes)>;

  // The manifest must outlive the reader.
  ExtentReader(std::string folder, const Manifest& manifest);

  // An Error that begins with `complaint` where the section's tensors are not those of `parts` by name and shape.
  void check(std::string_view section, const TensorParts& parts, std::string_view complaint) const;
  // Fills each part from the tensor of its name, converted to the part's dtype and on its device. Names and shapes must
  // be those of the section; see check(). Damage is an Error that names tensor and file; then the parts are filled in
  // part. Memory beside the parts: kThreads extents.
  ReadCount fill(std::string_view section, const TensorParts& parts) const;
  // The same of blocks. One of another shape than its tensor's, or that leaves it, is an Error.
  ReadCount fill(std::string_view section, std::span<const TensorBlock> blocks) const;
  // As fill(), of every rank of a group, each with its own parts. An extent that several ranks want is read by one of
  // them, which gives it to the others, so that each byte is read once. Every rank calls it. What fails on one of them
  // is an AgreedError. Memory beside the parts: kThreads extents.
  ReadCount fill_among(std::string_view section, const TensorParts& parts, Communicator& ranks) const;
  // Whole tensors of a section, on the processor.
  TensorParts read(std::string_view section, const Context& host) const;
  // Compares all that has a hash: of the list in the order of files, part `index` of `count`, so that ranks share the
  // work.
  void verify(int index = 0, int count = 1, const Progress& progress = {}) const;
  // Bytes that verify() reads.
  std::uint64_t bytes_with_hash() const;
  // The same of what fill() never reads: the files' heads, and extents that are there again.
  void verify_rest(int index, int count) const;

 private:
  using Name = std::pair<std::string_view, std::string_view>;  // of a section and a tensor of it
  struct Wish;
  struct Piece;

  std::string path_of(const Extent& extent) const;
  std::uint32_t place_of(std::string_view section, std::string_view name) const;
  void add_pieces(const Wish& wish, std::vector<Piece>& pieces) const;
  ReadCount fill(const std::vector<Wish>& wishes) const;
  void verify_heads(int index, int count, const Progress& progress) const;
  void verify_extents(std::vector<const Extent*> extents, int index, int count, const Progress& progress) const;
  // Elements of one dtype as they come, with a way into tensors of other dtypes and devices.
  static void copy_numbers(const std::byte* source, DType dtype, const Tensor& target);
  // Calls `use` with what each piece has read, in any order. Pieces are put into the order of the files.
  void read(std::vector<Piece> pieces, const std::function<void(const Piece&, std::span<const std::byte>)>& use) const;
  void read_sorted(std::span<const Piece> pieces, int threads, PieceOrder order,
                   const std::function<void(const Piece&, std::span<const std::byte>)>& use) const;
  // Calls `use` with whole extents, one after the other.
  void read_extents(std::span<const Extent* const> extents,
                    const std::function<void(std::span<const std::byte>)>& use) const;

  std::string folder_;
  const Manifest& manifest_;
  std::map<Name, std::uint32_t> places_;  // of tensors
};

}  // namespace keel
