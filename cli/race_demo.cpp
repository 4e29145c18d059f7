// `keel race-demo`: a kernel without its barrier, and what the emulator says of it.

#include "race_demo.h"

#include <fmt/core.h>

#include <iostream>

#include "commands.h"
#include "keel/runtime/error.h"

namespace keel::cli {
namespace {

#ifdef KEEL_EMULATED

constexpr const char* kIntroduction =
    R"(Half of a block's threads add the other half's numbers to their own, then half of that half, and so on: six
rounds for 64 threads, in shared memory. The kernel stands in cli/race_demo.cu.
)";
constexpr const char* kExplanation = R"(
A GPU says nothing of the kind. Which threads come first is its own affair, so without the barrier the sum may be right
in every test and wrong on another day, or on the next GPU. The emulator runs the threads one by one and notes for each
shared element who touched it, and behind which barrier: two threads, one of them writing, and no barrier between them
is an error, whatever the numbers were. docs/emulation.md tells what else it sees, and what it cannot see.
)";

void run() {
  std::cout << kIntroduction
            << fmt::format("A warp has {0} threads, so these are {1} warps.\n\n", threads_of_a_warp(),
                           64 / threads_of_a_warp())
            << "Without the barrier between the rounds:\n";
  try {
    sum_of_block(false, ThreadOrder::first_to_last, true);
    throw Error("the emulator did not see the missing barrier", ErrorKind::numeric);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::internal) throw;
    std::cout << "  " << error.what() << '\n';
  }
  std::cout << fmt::format(
      "  Not looked at so closely, the sum is {} when threads run from the first to the last, and {} from "
      "the last to the first.\n",
      sum_of_block(false, ThreadOrder::first_to_last, false), sum_of_block(false, ThreadOrder::last_to_first, false));
  std::cout << fmt::format("\nWith it:\n  No complaint; the sum is {} and {}, and 1 + 2 + ... + 64 = {}.\n",
                           sum_of_block(true, ThreadOrder::first_to_last, true),
                           sum_of_block(true, ThreadOrder::last_to_first, true), 64 * 65 / 2);
  std::cout << kExplanation << std::flush;
}

#else

void run() {
  throw Error(
      "race-demo runs a kernel in the emulator, which is no part of this build; this makes one that has it:\n"
      "cmake --preset release -DKEEL_CUDA=EMULATED && cmake --build build --target keel",
      ErrorKind::unsupported);
}

#endif

}  // namespace

Command race_demo_command() {
  return {.name = "race-demo",
          .help = "See the emulator find a missing barrier in a CUDA kernel.",
          .footer = "\nExample:\n  keel race-demo",
          .run = [](const Call&) {
            run();
            return 0;
          }};
}

}  // namespace keel::cli
