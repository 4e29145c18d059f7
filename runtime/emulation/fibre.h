#pragma once
// Fibres: functions with a stack of their own, which one operating-system thread runs in turn.

#include <cstddef>

namespace keel::emulation {

// Runs until it suspends itself or ends; then resume() returns. Must be resumed by the thread that began it.
class Fibre {
 public:
  using Entry = void (*)(void* argument);

  explicit Fibre(std::size_t stack_bytes = std::size_t{64} << 10);
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  // The next resume() calls entry(argument), which must not throw. What an earlier entry left on the stack is
  // forgotten without running destructors.
  void begin(Entry entry, void* argument);
  void resume();
  // Called inside the fibre: goes back to where resume() was called.
  void suspend();
  bool done() const { return done_; }

 private:
  static void run();  // first frame of every fibre
  void switch_in();
  void switch_out(bool for_good);
  void prepare_stack();

  std::byte* memory_ = nullptr;  // a guard page, then the stack
  std::size_t mapped_ = 0, stack_bytes_ = 0;
  void* own_ = nullptr;     // stack pointer of the suspended fibre
  void* caller_ = nullptr;  // stack pointer of the thread inside resume()
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  bool done_ = true;

  // What the sanitizers want to be told about a switch; unused in other builds.
  void* own_fake_stack_ = nullptr;
  void* caller_fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  std::size_t caller_stack_bytes_ = 0;
  void* own_tsan_ = nullptr;
  void* caller_tsan_ = nullptr;
};

}  // namespace keel::emulation
