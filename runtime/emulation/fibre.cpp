#include "keel/runtime/emulation/fibre.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "keel/runtime/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#define KEEL_UNNOTED __attribute__((no_sanitize("thread")))

#if !defined(__x86_64__)
#error "fibres are written for x86-64; configure with -DKEEL_CUDA=OFF"
#endif

// keel_switch_stack(save, load): pushes the registers that a call must keep (System V ABI: rbx, rbp, r12 to r15, and
// the control words of SSE and x87), stores the stack pointer in *save, and goes on with the stack `load`.
extern "C" void keel_switch_stack(void** save, void* load);
asm(R"(
.text
.p2align 4
.type keel_switch_stack, @function
keel_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size keel_switch_stack, .-keel_switch_stack
)");

namespace keel::emulation {
namespace {

thread_local Fibre* starting = nullptr;  // whose first frame is about to run

}  // namespace

Fibre::Fibre(std::size_t stack_bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  stack_bytes_ = (stack_bytes + page - 1) / page * page;
  mapped_ = stack_bytes_ + page;
  void* memory = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(concat("no memory for a fibre's stack of ", stack_bytes_, " bytes: ", std::strerror(errno)),
                ErrorKind::io);
  memory_ = static_cast<std::byte*>(memory);
  ::mprotect(memory_, page, PROT_NONE);
#if defined(__SANITIZE_THREAD__)
  own_tsan_ = __tsan_create_fiber(0);
#endif
}

Fibre::~Fibre() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(own_tsan_);
#endif
  ::munmap(memory_, mapped_);
}

void Fibre::begin(Entry entry, void* argument) {
#if defined(__SANITIZE_THREAD__)
  if (!done_) {  // the frames that it holds for the earlier entry
    __tsan_destroy_fiber(own_tsan_);
    own_tsan_ = __tsan_create_fiber(0);
  }
#endif
  entry_ = entry;
  argument_ = argument;
  done_ = false;
  prepare_stack();
}

// The frame that keel_switch_stack pops: control words, six registers, and run() as the address to return to.
void Fibre::prepare_stack() {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(memory_ + (mapped_ - stack_bytes_), stack_bytes_);
  own_fake_stack_ = nullptr;
#endif
  auto* top = reinterpret_cast<std::uint64_t*>(memory_ + mapped_);
  *--top = 0;  // keeps the stack aligned as after a call, and ends a debugger's walk
  *--top = reinterpret_cast<std::uint64_t>(&Fibre::run);
  for (int i = 0; i < 6; ++i) *--top = 0;
  --top;
  std::uint32_t mxcsr = 0;
  std::uint16_t x87 = 0;
  asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(x87));
  std::memcpy(top, &mxcsr, sizeof mxcsr);
  std::memcpy(reinterpret_cast<char*>(top) + 4, &x87, sizeof x87);
  own_ = top;
}

// ThreadSanitizer notes each call and waits for its return, which never comes here: noted, the calls of all the blocks
// that a fibre ran would pile up.
KEEL_UNNOTED void Fibre::run() {
  Fibre& self = *starting;
  self.switch_in();
  self.entry_(self.argument_);
  self.done_ = true;
  self.switch_out(true);
  __builtin_unreachable();
}

void Fibre::resume() {
  starting = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&caller_fake_stack_, memory_ + (mapped_ - stack_bytes_), stack_bytes_);
#elif defined(__SANITIZE_THREAD__)
  caller_tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_tsan_, 0);
#endif
  keel_switch_stack(&caller_, own_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(caller_fake_stack_, nullptr, nullptr);
#endif
}

void Fibre::suspend() {
  switch_out(false);
  switch_in();
}

void Fibre::switch_in() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(own_fake_stack_, &caller_stack_, &caller_stack_bytes_);
#endif
}

KEEL_UNNOTED void Fibre::switch_out([[maybe_unused]] bool for_good) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &own_fake_stack_, caller_stack_, caller_stack_bytes_);
#elif defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(caller_tsan_, 0);
#endif
  keel_switch_stack(&own_, caller_);
}

}  // namespace keel::emulation
