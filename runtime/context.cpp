#include "keel/runtime/context.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "keel/runtime/device_api.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/runtime/processor.h"

namespace keel {

namespace {
thread_local const StreamScope* innermost_scope = nullptr;
}

struct Context::State {
  State(ContextOptions asked, std::shared_ptr<DeviceApi> device_api)
      : options(std::move(asked)),
        api(std::move(device_api)),
        allocator(api, options.device),
        stream(Stream::create(api)) {}

  ContextOptions options;
  std::shared_ptr<DeviceApi> api;
  Allocator allocator;
  Context host;   // empty on the processor
  Stream stream;  // ends first: until then its work may use the memory of both
  std::atomic<const KernelTable*> kernel_table = nullptr;
  std::mutex mutex;  // guards resources
  std::unordered_map<std::type_index, std::shared_ptr<void>> resources;
};

int default_threads() {
  if (const char* wish = std::getenv("OMP_NUM_THREADS"); wish != nullptr && *wish != 0) {
    constexpr int kMost = 4096;
    const std::string_view text(wish);
    int threads = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
    const bool is_number = error == std::errc() && (end == text.data() + text.size() || *end == ',');  // "4,2": nested
    KEEL_CHECK(is_number && threads >= 1 && threads <= kMost, "OMP_NUM_THREADS is '", printable(text, 60),
               "'; a number of threads, from 1 to ", kMost, ", is expected there");
    return threads;
  }
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return std::max(1, CPU_COUNT(&mask));
  return std::max(1u, std::thread::hardware_concurrency());
}

void check_processor() {
  static const MissingInstructions missing = missing_instructions(kBuiltFor);
  if (missing) throw Error(missing.message, ErrorKind::unsupported);
}

Context Context::create(ContextOptions options) {
  check_processor();
  KEEL_CHECK(options.threads >= 0, "threads must be 0 (all) or more, got ", options.threads);
  if (options.threads == 0) options.threads = default_threads();
  Context context;
  context.state_ = std::make_shared<State>(options, open_device(options.device));
  if (options.device.type != DeviceType::cpu) {
    std::shared_ptr<DeviceApi> pinned = pinned_api(options.device);
    options.device = {};
    context.state_->host.state_ = std::make_shared<State>(std::move(options), std::move(pinned));
  }
  return context;
}

Device Context::device() const { return state_->options.device; }
int Context::threads() const { return state_->options.threads; }
KernelChoice Context::kernel_choice() const { return state_->options.kernels; }
Allocator& Context::allocator() const { return state_->allocator; }
DeviceApi& Context::api() const { return *state_->api; }

DeviceMemory Context::memory_left() const {
  DeviceMemory left = api().memory();
  const MemoryReport own = memory();
  if (left.total > 0) left.free += static_cast<std::int64_t>(own.reserved - std::min(own.reserved, own.total.current));
  return left;
}

const Context& Context::host() const { return state_->host ? state_->host : *this; }

Stream Context::stream() const {
  for (const StreamScope* scope = innermost_scope; scope != nullptr; scope = scope->outer_)
    if (scope->context_ == *this) return scope->stream_;
  return state_->stream;
}

Stream Context::make_stream(bool urgent) const { return Stream::create(state_->api, urgent); }

StreamScope::StreamScope(const Context& context, Stream stream)
    : context_(context), stream_(std::move(stream)), outer_(std::exchange(innermost_scope, this)) {}
StreamScope::~StreamScope() { innermost_scope = outer_; }

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
