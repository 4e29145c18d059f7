// Asks for much shared memory, in a library of its own.

#include <cstdio>
#include <exception>

void launch_with_shared_memory(unsigned bytes);

int main() {
  try {
    launch_with_shared_memory(100 << 10);
    std::puts("launched");
  } catch (const std::exception& error) {
    std::puts(error.what());
    return 1;
  }
}
