#include "keel/trainer/process_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace keel {
namespace {

struct ResidentMemory {
  std::int64_t all = 0, shared = 0;  // bytes
};

ResidentMemory resident_memory() {
  std::ifstream file("/proc/self/statm");
  std::int64_t size = 0, all = 0, shared = 0;  // pages
  if (!(file >> size >> all >> shared)) return {};
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  return {all * page, shared * page};
}

}  // namespace

std::int64_t resident_bytes() { return resident_memory().all; }

std::int64_t own_bytes() {
  const ResidentMemory memory = resident_memory();
  return memory.all - memory.shared;
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

}  // namespace keel
