#pragma once
// Products on tensor cores, loads of 8 x 8 matrices from shared memory, and copies that arrive later.
//
// These are mma.sync.m16n8k16, ldmatrix and cp.async of NVIDIA's PTX ISA, which compute capability 8.0 brought. In the
// emulator they have twins: the same numbers in the same registers of the same lanes. All 32 lanes of a warp make each
// of these calls together, but for those on copies.
//
// A 32-bit register holds two neighbouring bf16 or f16, the first in its lower half. With g = lane / 4 and
// t = lane % 4, the matrices of a product lie in a warp's registers like this:
//
//   a (16, 16)    a[0] row g,     columns 2t, 2t + 1        a[2] row g,     columns 2t + 8, 2t + 9
//                 a[1] row g + 8, columns 2t, 2t + 1        a[3] row g + 8, columns 2t + 8, 2t + 9
//   b (16, 8)     b0   rows 2t, 2t + 1, column g            b1   rows 2t + 8, 2t + 9, column g
//   sum (16, 8)   sum[0], sum[1] row g, columns 2t, 2t + 1  sum[2], sum[3] row g + 8, likewise

#include <cstdint>
#include <type_traits>

#include "keel/runtime/cuda/launch.h"
#include "keel/runtime/half.h"
#ifdef KEEL_EMULATED
#include "keel/runtime/emulation/tensor_core.h"
#endif

namespace keel::cuda {

// A place in shared memory, to which bytes can be added.
#ifdef KEEL_EMULATED
struct SharedAddress {
  std::byte* place;
};
inline SharedAddress operator+(SharedAddress address, int bytes) { return {address.place + bytes}; }
inline SharedAddress shared_address(const void* element) {
  return {const_cast<std::byte*>(static_cast<const std::byte*>(element))};
}
#else
struct SharedAddress {
  unsigned place;
};
__device__ inline SharedAddress operator+(SharedAddress address, int bytes) {
  return {address.place + static_cast<unsigned>(bytes)};
}
__device__ inline SharedAddress shared_address(const void* element) {
  return {static_cast<unsigned>(__cvta_generic_to_shared(element))};
}
#endif

// Two numbers as the halves of a register, rounded to nearest even.
template <class T>
__device__ unsigned pack_pair(float low, float high) {
#ifdef KEEL_EMULATED
  return T(low).bits | static_cast<unsigned>(T(high).bits) << 16;
#else
  unsigned pair;
  if constexpr (std::is_same_v<T, bf16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#endif
}

#ifdef KEEL_EMULATED
#define KEEL_PLACE , KEEL_HERE
#else
#define KEEL_PLACE
#endif

// sum += a b for T = bf16 or f16. Products are exact and their sum is fp32, but in which order a GPU adds and how it
// rounds in between is its own affair: two kinds of GPU may differ in the last bits. The emulator adds in the order of
// the columns of a, and rounds each time.
template <class T>
__device__ void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1 KEEL_PLACE) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>);
#ifdef KEEL_EMULATED
  emulation::multiply_add<T>(sum, a, b0, b1, where);
#else
  if constexpr (std::is_same_v<T, bf16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// Loads N = 1, 2 or 4 matrices of 8 x 8 elements of 16 bits. Lane 8 i + r says where row r of matrix i begins (what
// lanes from 8 N on say is not looked at); a row is 16 bytes, at a multiple of 16. out[i] becomes elements
// (g, 2t), (g, 2t + 1) of matrix i, in the words of the picture above.
template <int N>
__device__ void load_matrices(unsigned (&out)[N], SharedAddress row KEEL_PLACE) {
  static_assert(N == 1 || N == 2 || N == 4);
#ifdef KEEL_EMULATED
  emulation::load_matrices(out, N, false, row.place, where);
#else
  if constexpr (N == 1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(out[0]) : "r"(row.place) : "memory");
  else if constexpr (N == 2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(out[0]), "=r"(out[1])
                 : "r"(row.place)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row.place)
                 : "memory");
#endif
}

// The same of the transposed matrices: out[i] becomes elements (2t, g), (2t + 1, g) of what is in memory.
template <int N>
__device__ void load_matrices_transposed(unsigned (&out)[N], SharedAddress row KEEL_PLACE) {
  static_assert(N == 1 || N == 2 || N == 4);
#ifdef KEEL_EMULATED
  emulation::load_matrices(out, N, true, row.place, where);
#else
  if constexpr (N == 1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(out[0])
                 : "r"(row.place)
                 : "memory");
  else if constexpr (N == 2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(out[0]), "=r"(out[1])
                 : "r"(row.place)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row.place)
                 : "memory");
#endif
}

// Starts a copy of 16 bytes from global to shared memory, both at multiples of 16; only the first `bytes` are read, the
// rest becomes zero. A thread closes its copies into groups, and waits until all but its N newest groups have arrived.
// Until then nobody may touch the place; other threads may after a barrier that follows the wait. In the emulator the
// place holds NaN until the wait, and a thread must not end before its copies have arrived.
__device__ inline void copy_async(SharedAddress to, const void* from, int bytes = 16 KEEL_PLACE) {
#ifdef KEEL_EMULATED
  emulation::start_copy(to.place, static_cast<const std::byte*>(from), bytes, where);
#else
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"(to.place), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
#endif
}

__device__ inline void commit_copies() {
#ifdef KEEL_EMULATED
  emulation::commit_copies();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int N>
__device__ void wait_copies() {
#ifdef KEEL_EMULATED
  emulation::finish_copies(N);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

#undef KEEL_PLACE

}  // namespace keel::cuda
