#pragma once
// Extensions of x86-64 that a compiler may use by itself: the macro that says so, the name, where CPUID tells of it
// (leaf, subleaf, register, bit), and the registers that the operating system must keep for it (a mask of XCR0).
// Intel's manual, volume 2A, CPUID; AMD's, volume 3, appendix E.
//
// AMD's XOP and AVX-512 exclude each other.

#include "keel/runtime/language.h"

#define KEEL_EXTENSIONS(X)                                        \
  X(__SSE4_2__, "SSE4.2", 1, 0, ecx, 20, 0)                       \
  X(__POPCNT__, "POPCNT", 1, 0, ecx, 23, 0)                       \
  X(__MOVBE__, "MOVBE", 1, 0, ecx, 22, 0)                         \
  X(__LZCNT__, "LZCNT", 0x80000001, 0, ecx, 5, 0)                 \
  X(__SSE4A__, "SSE4a", 0x80000001, 0, ecx, 6, 0)                 \
  X(__BMI__, "BMI1", 7, 0, ebx, 3, 0)                             \
  X(__BMI2__, "BMI2", 7, 0, ebx, 8, 0)                            \
  X(__TBM__, "TBM", 0x80000001, 0, ecx, 21, 0)                    \
  X(__AVX__, "AVX", 1, 0, ecx, 28, 0x6)                           \
  X(__F16C__, "F16C", 1, 0, ecx, 29, 0x6)                         \
  X(__FMA__, "FMA", 1, 0, ecx, 12, 0x6)                           \
  X(__FMA4__, "FMA4", 0x80000001, 0, ecx, 16, 0x6)                \
  X(__XOP__, "XOP", 0x80000001, 0, ecx, 11, 0x6)                  \
  X(__AVX2__, "AVX2", 7, 0, ebx, 5, 0x6)                          \
  X(__AVXVNNI__, "AVX-VNNI", 7, 1, eax, 4, 0x6)                   \
  X(__AVX512F__, "AVX-512F", 7, 0, ebx, 16, 0xe6)                 \
  X(__AVX512CD__, "AVX-512CD", 7, 0, ebx, 28, 0xe6)               \
  X(__AVX512DQ__, "AVX-512DQ", 7, 0, ebx, 17, 0xe6)               \
  X(__AVX512BW__, "AVX-512BW", 7, 0, ebx, 30, 0xe6)               \
  X(__AVX512VL__, "AVX-512VL", 7, 0, ebx, 31, 0xe6)               \
  X(__AVX512IFMA__, "AVX-512IFMA", 7, 0, ebx, 21, 0xe6)           \
  X(__AVX512VBMI__, "AVX-512VBMI", 7, 0, ecx, 1, 0xe6)            \
  X(__AVX512VBMI2__, "AVX-512VBMI2", 7, 0, ecx, 6, 0xe6)          \
  X(__AVX512VNNI__, "AVX-512VNNI", 7, 0, ecx, 11, 0xe6)           \
  X(__AVX512BITALG__, "AVX-512BITALG", 7, 0, ecx, 12, 0xe6)       \
  X(__AVX512VPOPCNTDQ__, "AVX-512VPOPCNTDQ", 7, 0, ecx, 14, 0xe6) \
  X(__AVX512BF16__, "AVX-512BF16", 7, 1, eax, 5, 0xe6)            \
  X(__AVX512FP16__, "AVX-512FP16", 7, 0, edx, 23, 0xe6)
