#include "keel/runtime/processor.h"

#include <cstddef>

#include "keel/runtime/processor_table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace keel {
namespace {

// std::string's functions might be those that another file has compiled for a newer processor.
void add(MissingInstructions& to, const char* text) {
  std::size_t end = 0;
  while (to.message[end] != '\0') ++end;
  for (; *text != '\0' && end + 1 < sizeof to.message; ++text) to.message[end++] = *text;
  to.message[end] = '\0';
}

#if defined(__x86_64__)
// Which registers the operating system keeps.
std::uint32_t kept_registers() {
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx >> 27 & 1) == 0) return 0;
  asm volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return eax;
}

enum { eax, ebx, ecx, edx };

// Whether CPUID tells of it, and the registers that it needs are among those that the operating system keeps.
bool has(std::uint32_t leaf, std::uint32_t subleaf, int which, int bit, std::uint32_t registers, std::uint32_t kept) {
  std::uint32_t found[4] = {};
  return __get_cpuid_count(leaf, subleaf, &found[0], &found[1], &found[2], &found[3]) != 0 &&
         (found[which] >> bit & 1) != 0 && (kept & registers) == registers;
}
#endif

}  // namespace

MissingInstructions missing_instructions(std::uint32_t needed) noexcept {
  MissingInstructions missing = {};
#if defined(__x86_64__)
  const std::uint32_t kept = kept_registers();
  const auto look = [&](const char* name, std::uint32_t leaf, std::uint32_t subleaf, int which, int bit,
                        std::uint32_t registers) {
    const bool is_needed = (needed & 1) != 0;
    needed >>= 1;
    if (!is_needed || has(leaf, subleaf, which, bit, registers, kept)) return;
    add(missing,
        missing ? ", " : "this build of keel uses instructions that this processor, or what stands in for it, lacks: ");
    add(missing, name);
  };
#define KEEL_LOOK(macro, name, leaf, subleaf, which, bit, registers) look(name, leaf, subleaf, which, bit, registers);
  KEEL_EXTENSIONS(KEEL_LOOK)
  if (missing)
    add(missing, "; build it with -D KEEL_NATIVE=OFF, for every x86-64 processor with AVX2, or on this machine");
#endif
  return missing;
}

bool multiplies_bf16() noexcept {
#if defined(__x86_64__)
  constexpr std::uint32_t kVectors = 0xe6, kTiles = 0x60000;
  const std::uint32_t kept = kept_registers();
  return has(7, 1, eax, 5, kVectors, kept) || has(7, 0, edx, 22, kTiles, kept);
#else
  return false;
#endif
}

bool multiplies_without_carry() noexcept {
#if defined(__x86_64__)
  return has(1, 0, ecx, 1, 0, 0);
#else
  return false;
#endif
}

}  // namespace keel
