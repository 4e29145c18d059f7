#pragma once
// KEEL_HD marks a function that CUDA compiles for host and device alike.

#include "keel/runtime/language.h"

#ifdef __CUDACC__
#define KEEL_HD __host__ __device__
#else
#define KEEL_HD
#endif
