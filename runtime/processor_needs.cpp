#include "keel/runtime/processor.h"
#include "keel/runtime/processor_table.h"

namespace keel {
namespace {

// A macro that is defined is 1, so its text is "1" and not its name.
#define KEEL_TEXT(macro) #macro
#define KEEL_NEED(macro, ...) mask |= (KEEL_TEXT(macro)[0] == '1' ? 1u : 0u) << bit++;

constexpr std::uint32_t built_for() {
  std::uint32_t mask = 0;
  unsigned bit = 0;
  KEEL_EXTENSIONS(KEEL_NEED)
  return mask;
}

}  // namespace

constinit const std::uint32_t kBuiltFor = built_for();

}  // namespace keel
