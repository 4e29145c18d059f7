#pragma once
// How kernels on processors cut their work, for every set of instructions that a build may be for.

#include <cstdint>

#include "keel/runtime/language.h"

namespace keel::cpu {

// Of the products that are compiled for a set of instructions. Its vectors are the registers in which a tile of C is
// summed up.
struct TileSizes {
  const char* instructions;
  int vector_bytes, rows, vectors;

  constexpr int columns(int bytes_of_a_sum) const { return vectors * (vector_bytes / bytes_of_a_sum); }
  // Of B, whole panels, in the second-level cache: a block of 384 KiB.
  constexpr std::int64_t block_columns(int bytes_of_a_sum) const {
    return 256 / columns(bytes_of_a_sum) * columns(bytes_of_a_sum);
  }
};
// 24 of 32 registers, and 12 of 16, hold sums: that leaves room for a row of B and one broadcast element of A.
inline constexpr TileSizes kAvx512Tile = {.instructions = "AVX-512", .vector_bytes = 64, .rows = 12, .vectors = 2};
inline constexpr TileSizes kAvx2Tile = {.instructions = "AVX2", .vector_bytes = 32, .rows = 4, .vectors = 3};
inline constexpr TileSizes kTiles[] = {kAvx512Tile, kAvx2Tile};
#if defined(__AVX512F__)
inline constexpr TileSizes kTile = kAvx512Tile;  // of this build
#else
inline constexpr TileSizes kTile = kAvx2Tile;
#endif

inline constexpr std::int64_t kBlockSteps = 384;       // of k: an A panel of 18 KiB
inline constexpr std::int64_t kTaskRows = 96;          // rows of C a task computes when B is shared
inline constexpr std::int64_t kSharedUnits = 2 << 20;  // of the shared operand at a time (8 MiB)

// Queries of attention whose scores are held at once: workspace is this many rows of keys, whatever the length.
inline constexpr std::int64_t kQueryBlock = 48;

}  // namespace keel::cpu
