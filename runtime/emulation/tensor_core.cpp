#include "keel/runtime/emulation/tensor_core.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "keel/runtime/emulation/grid.h"
#include "keel/runtime/emulation/shared.h"
#include "keel/runtime/half.h"

namespace keel::emulation {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

// What a lane brings to a product, and to a load of matrices.
struct Product {
  float* sum;
  const unsigned* a;
  unsigned b[2];
};
struct Load {
  unsigned* out;
  const std::byte* row;
  int count;
  bool transposed;
  const std::source_location* where;
};

template <class T>
float half_of(unsigned pair, int half) {
  return static_cast<float>(T::from_bits(static_cast<std::uint16_t>(pair >> 16 * half)));
}

// Gathers a and b from the lanes' registers, multiplies, and gives each lane its part of the sum.
template <class T>
void act_multiply_add(void* const records[32]) {
  float a[16][16], b[16][8], sum[16][8];
  for (int l = 0; l < 32; ++l) {
    const auto& lane = *static_cast<const Product*>(records[l]);
    const int g = l / 4, t = l % 4;
    for (int r = 0; r < 4; ++r)
      for (int half = 0; half < 2; ++half) a[g + 8 * (r % 2)][2 * t + 8 * (r / 2) + half] = half_of<T>(lane.a[r], half);
    for (int r = 0; r < 2; ++r)
      for (int half = 0; half < 2; ++half) b[2 * t + 8 * r + half][g] = half_of<T>(lane.b[r], half);
    for (int i = 0; i < 4; ++i) sum[g + 8 * (i / 2)][2 * t + i % 2] = lane.sum[i];
  }
  for (int i = 0; i < 16; ++i)
    for (int p = 0; p < 16; ++p)
      for (int j = 0; j < 8; ++j) sum[i][j] = std::fma(a[i][p], b[p][j], sum[i][j]);
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i)
      static_cast<const Product*>(records[l])->sum[i] = sum[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2];
}

void act_load_matrices(void* const records[32]) {
  const auto lane = [&](int l) -> const Load& { return *static_cast<const Load*>(records[l]); };
  const int count = lane(0).count;
  for (int m = 0; m < count; ++m) {
    std::uint16_t matrix[8][8];
    for (int r = 0; r < 8; ++r) {
      const Load& from = lane(8 * m + r);
      touch_shared(from.row, sizeof matrix[r], false, *from.where);
      std::memcpy(matrix[r], from.row, sizeof matrix[r]);
    }
    for (int l = 0; l < 32; ++l) {
      const int g = l / 4, t = l % 4;
      const bool turned = lane(l).transposed;
      const unsigned low = turned ? matrix[2 * t][g] : matrix[g][2 * t];
      const unsigned high = turned ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1];
      lane(l).out[m] = low | high << 16;
    }
  }
}

}  // namespace

// Registers, not memory, pass from lane to lane: neither orders accesses to memory.
template <class T>
void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                  const std::source_location& where) {
  Product product{sum, a, {b0, b1}};
  warp_collective(kAllLanes, &product, act_multiply_add<T>, where, false);
}
template void multiply_add<bf16>(float (&)[4], const unsigned (&)[4], unsigned, unsigned, const std::source_location&);
template void multiply_add<f16>(float (&)[4], const unsigned (&)[4], unsigned, unsigned, const std::source_location&);

void load_matrices(unsigned* out, int count, bool transposed, const std::byte* row, const std::source_location& where) {
  if (lane() < 8u * static_cast<unsigned>(count)) check_shared(row, 16, 16, where);
  Load load{out, row, count, transposed, &where};
  warp_collective(kAllLanes, &load, act_load_matrices, where, false);
}

}  // namespace keel::emulation
