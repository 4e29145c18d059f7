#pragma once
// Everything a device needs to work, owned in one place: memory, threads, libraries, kernels, log.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <typeindex>

#include "keel/runtime/allocator.h"
#include "keel/runtime/device.h"
#include "keel/runtime/stream.h"

namespace keel {

struct KernelTable;  // defined by the kernels layer
class DeviceApi;
struct DeviceMemory;

enum class LogLevel : unsigned char { info, warning, error };
using LogSink = std::function<void(LogLevel, std::string_view)>;

// Which implementations fill the kernel table: the fastest that work here, or only keel's own.
enum class KernelChoice : unsigned char { automatic, plain };

struct ContextOptions {
  Device device = {};
  int threads = 0;  // of parallel_for; 0 means one for each processor this process may use
  KernelChoice kernels = KernelChoice::automatic;
  LogSink log = {};  // without a sink nothing is ever printed
};

// A handle: copies share one state, which lives as long as any handle or storage. Two contexts
// of one process share nothing.
class Context {
 public:
  Context() = default;  // empty; using it is an error
  static Context create(ContextOptions options = {});

  explicit operator bool() const { return state_ != nullptr; }
  friend bool operator==(const Context& a, const Context& b) { return a.state_ == b.state_; }

  Device device() const;
  int threads() const;
  KernelChoice kernel_choice() const;
  Allocator& allocator() const;
  MemoryReport memory() const { return allocator().report(); }
  DeviceApi& api() const;
  // What it can still have of its device: what nobody uses, and what lies in its own cache.
  DeviceMemory memory_left() const;

  // Where this thread's work for the context goes: the stream of the innermost StreamScope, else the context's own.
  Stream stream() const;
  Stream make_stream(bool urgent = false) const;  // urgent: its kernels go first
  // Blocks until the work of stream() is done. Throws what it did wrong.
  void synchronize() const { stream().synchronize(); }
  // The host, with memory that this device reads and writes in its own time. On the processor: the context itself.
  const Context& host() const;
  void log(LogLevel level, std::string_view message) const;

  // The one T of this context, made on first use: library handles, plan caches.
  template <class T>
  T& resource() const {
    return *static_cast<T*>(resource(typeid(T), [] { return std::shared_ptr<void>(std::make_shared<T>()); }));
  }

  // Filled by the kernels layer on first use; see keel/kernels/table.h.
  std::atomic<const KernelTable*>& kernel_table() const;

 private:
  struct State;
  void* resource(std::type_index type, std::shared_ptr<void> (*make)()) const;
  std::shared_ptr<State> state_;
};

// Directs this thread's work for a context to another stream of its device while it lives.
class StreamScope {
 public:
  StreamScope(const Context& context, Stream stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  friend class Context;
  Context context_;
  Stream stream_;
  const StreamScope* outer_;
};

// Threads used when ContextOptions::threads is 0: the processors in this process's affinity mask.
int default_threads();

}  // namespace keel
