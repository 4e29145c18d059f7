#pragma once
// Whether this processor has the instructions that keel was compiled for. Without the question, one that is missing
// would end the program wherever it is met first.

#include <cstdint>

#include "keel/runtime/language.h"

namespace keel {

// The extensions that the compiler was allowed to use: a bit for each line of processor_table.h.
extern const std::uint32_t kBuiltFor;

struct MissingInstructions {
  char message[640];  // which ones, and what to do; empty: none is missing
  explicit operator bool() const { return message[0] != '\0'; }
};
// Compiled for any x86-64 processor, and calls nothing that is not: it may be asked before anything else.
MissingInstructions missing_instructions(std::uint32_t needed) noexcept;

// An Error where the processor lacks one of those. To be asked wherever a host may call keel first.
void check_processor();

// Whether this processor has instructions that multiply numbers in bf16: AVX-512BF16, or AMX-BF16 (Intel's manual,
// volume 2A, CPUID).
bool multiplies_bf16() noexcept;
// Whether it multiplies polynomials over GF(2): PCLMULQDQ.
bool multiplies_without_carry() noexcept;

}  // namespace keel
