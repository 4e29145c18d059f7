// Says what is missing before anything else of the program runs, and before the processor meets an instruction that it
// does not know. Compiled for any x86-64 processor.

#include <unistd.h>

#include <cstddef>

#include "keel/runtime/processor.h"

namespace {

void write_line(const char* text) {
  const char* end = text;
  while (*end != '\0') ++end;
  if (::write(STDERR_FILENO, text, static_cast<std::size_t>(end - text)) < 0) ::_exit(2);
}

[[gnu::constructor(101)]] void check_processor() {
  const keel::MissingInstructions missing = keel::missing_instructions(keel::kBuiltFor);
  if (!missing) return;
  write_line("keel: error: ");
  write_line(missing.message);
  write_line("\n");
  ::_exit(2);
}

}  // namespace
