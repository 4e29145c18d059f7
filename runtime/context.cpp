#include "keel/runtime/context.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "keel/runtime/error.h"

namespace keel {

struct Context::State {
  ContextOptions options;
  Allocator allocator;
  std::atomic<const KernelTable*> kernel_table = nullptr;
  std::mutex mutex;  // guards resources
  std::unordered_map<std::type_index, std::shared_ptr<void>> resources;
};

int default_threads() {
  if (const char* wish = std::getenv("OMP_NUM_THREADS"))
    if (const int threads = std::atoi(wish); threads > 0) return threads;
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return std::max(1, CPU_COUNT(&mask));
  return std::max(1u, std::thread::hardware_concurrency());
}

Context Context::create(ContextOptions options) {
  KEEL_CHECK(options.device.type == DeviceType::cpu, "device ", options.device, " is not part of this build");
  KEEL_CHECK(options.threads >= 0, "threads must be 0 (all) or more, got ", options.threads);
  if (options.threads == 0) options.threads = default_threads();
  Context context;
  context.state_ = std::make_shared<State>();
  context.state_->options = std::move(options);
  return context;
}

Device Context::device() const { return state_->options.device; }
int Context::threads() const { return state_->options.threads; }
KernelChoice Context::kernel_choice() const { return state_->options.kernels; }
Allocator& Context::allocator() const { return state_->allocator; }
std::atomic<const KernelTable*>& Context::kernel_table() const { return state_->kernel_table; }

void Context::log(LogLevel level, std::string_view message) const {
  if (state_->options.log) state_->options.log(level, message);
}

void* Context::resource(std::type_index type, std::shared_ptr<void> (*make)()) const {
  const std::lock_guard lock(state_->mutex);
  std::shared_ptr<void>& slot = state_->resources[type];
  if (!slot) slot = make();
  return slot.get();
}

}  // namespace keel
