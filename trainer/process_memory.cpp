#include "keel/trainer/process_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace keel {

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t size = 0, resident = 0;  // pages
  return file >> size >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

}  // namespace keel
