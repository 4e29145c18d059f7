#pragma once
// What holds of every manifest that a reader took, whoever wrote it.

#include <algorithm>
#include <utility>

#include "keel/dist/checkpoint/manifest.h"
#include "tests/fuzz/target.h"

namespace keel::fuzz {

inline void require_sound(const Manifest& manifest) {
  for (const StoredFile& file : manifest.files) {
    require(file.name.find('/') == std::string::npos, "a file lies in the checkpoint's own folder");
    require(file.head <= file.bytes, "a head lies inside its file");
  }
  for (const Extent& extent : manifest.extents) {
    require(extent.tensor < manifest.tensors.size() && extent.file < manifest.files.size(),
            "an extent is of a tensor and in a file");
    const Dims& shape = manifest.tensors[extent.tensor].shape;
    require(0 <= extent.begin && extent.begin < extent.end && extent.end <= product(shape),
            "an extent lies inside its tensor");
    const std::uint64_t bytes = manifest.files[extent.file].bytes, size = manifest.bytes_of(extent);
    require(extent.offset <= bytes && size <= bytes - extent.offset, "an extent lies inside its file");
  }
  for (std::uint32_t t = 0; t < manifest.tensors.size(); ++t) {
    std::int64_t next = 0;
    for (const Extent& extent : manifest.extents_of(t)) {
      require(extent.begin <= next, "no element of a tensor is missing");
      next = std::max(next, extent.end);
    }
    require(next == product(manifest.tensors[t].shape), "a tensor has all of its elements");
  }
}

}  // namespace keel::fuzz
