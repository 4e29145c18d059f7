#pragma once
// Parts of named tensors: what one rank keeps of a model's weights or of an optimizer's state.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/tensor.h"

namespace keel {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Elements [begin, begin + numel) of a tensor, read as one row.
struct TensorPart {
  std::string name;
  Dims shape;  // of the whole
  std::int64_t begin = 0;
  Tensor values = {};  // (numel), dense; undefined where nothing of the tensor is here

  std::int64_t numel() const { return values.defined() ? values.numel() : 0; }
  std::int64_t end() const { return begin + numel(); }
  bool is_whole() const { return begin == 0 && values.defined() && numel() == product(shape); }
};
using TensorParts = std::vector<TensorPart>;

TensorParts parts_of(const NamedTensors& tensors);
// The tensors themselves. An Error where a part is not whole.
NamedTensors whole_tensors(const TensorParts& parts);

// Whether every part of `to` can be filled from those of `from`, which may be cut in other ways: every name and shape
// must agree and every element be there. An Error that begins with `complaint` lists the differences.
void check_parts(const TensorParts& from, const TensorParts& to, std::string_view complaint);
// The same of names and shapes alone: the parts may be without numbers.
void check_tensors(const TensorParts& from, const TensorParts& to, std::string_view complaint);
// Fills them. Where check_parts() throws, nothing is changed.
void copy_parts(const TensorParts& from, const TensorParts& to, std::string_view complaint);

// A number that depends on every element and its place, but not on how the tensors are cut: the fingerprints of
// disjoint parts add up, modulo 2^64, to that of the whole. It is the sum of the elements' bits, each times a random
// odd number of its own.
std::uint64_t fingerprint(const TensorParts& parts);

// As tensors of a file: whole ones under their names; others as "weight (7, 5) 12:24", shape and elements.
NamedTensors named_parts(const TensorParts& parts);
// What such a name says: elements [begin, end) of a tensor. `shape` is that of the numbers, which must fit.
struct PartName {
  std::string name;
  Dims shape;  // of the whole
  std::int64_t begin = 0, end = 0;
};
PartName parse_part_name(const std::string& name, const Dims& shape);
// Reads such names. An Error for a name whose range does not fit shape and numbers.
TensorParts parse_parts(const NamedTensors& tensors);

}  // namespace keel
