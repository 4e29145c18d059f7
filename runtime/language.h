#pragma once
// One line for compilers that are not told to read C++20, before they say of every other line that they cannot. Each
// header of keel includes it, directly or by its first include of keel's.

#if defined(_MSVC_LANG) ? _MSVC_LANG < 202002L : __cplusplus < 202002L
#error "keel's headers are C++20: compile with -std=c++20 (CMake: target_compile_features(TARGET PRIVATE cxx_std_20))"
#endif
