// Stands for a build that uses every extension there is. XOP and AVX-512 are in no processor together.

#include <cstdio>

#include "keel/runtime/processor.h"

namespace keel {
constinit const std::uint32_t kBuiltFor = ~0u;
}  // namespace keel

namespace {
const int kSaid = std::puts("an initialiser has run");
}  // namespace

int main() { return kSaid < 0; }
