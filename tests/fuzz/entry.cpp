// What libFuzzer calls: the target that KEEL_FUZZ_TARGET names.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  keel::fuzz::KEEL_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
