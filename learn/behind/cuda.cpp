#include "learn/behind/cuda.h"

#include <algorithm>

#include "keel/runtime/emulation/grid.h"
#include "learn/behind/memory_watch.h"
#include "learn/given/tensor_core.h"

namespace learn {
namespace {

namespace emulation = keel::emulation;

constexpr std::int64_t kMostAccesses = 10'000'000;  // of a launch
constexpr std::uint64_t kMostBlocks = 100'000;

struct Running {
  MemoryWatch* watch = nullptr;
  std::int64_t accesses = 0, products = 0;
  emulation::Order order = emulation::Order::forward;
  std::uint64_t seed = 1;
};
Running running;

std::uint32_t thread_number() {
  const auto& t = emulation::here.thread;
  const auto& extent = emulation::here.block_extent;
  return t.x + extent.x * (t.y + extent.y * t.z);
}

std::uint32_t block_number() {
  const auto& b = emulation::here.block;
  const auto& extent = emulation::here.grid_extent;
  return b.x + extent.x * (b.y + extent.y * b.z);
}

void count_access(const std::source_location& where) {
  if (++running.accesses > kMostAccesses)
    emulation::fail_thread(
        keel::concat("the threads have used memory ", kMostAccesses, " times: a loop does not end"), where);
}

}  // namespace

GlobalArray::GlobalArray(std::string name, std::int64_t size, std::size_t element_bytes)
    : name_(std::move(name)),
      size_(size),
      element_bytes_(element_bytes),
      writers_(static_cast<std::size_t>(size)) {}

void outside_global(const GlobalArray& array, const Index& index) {
  emulation::fail_thread(keel::concat("uses ", array.name(), '[', index.value, "]; the last is ",
                                      array.name(), '[', array.size() - 1, ']'),
                         index.where);
}

namespace {

void watch_global(const GlobalArray& array, const Index& index, bool write) {
  count_access(index.where);
  if (running.watch != nullptr)
    running.watch->note_global(array, index, write, block_number(), thread_number());
}

std::uint64_t this_thread() { return (std::uint64_t{block_number()} << 32 | thread_number()) + 1; }

std::string name_of(std::uint64_t writer) {
  const std::uint64_t number = writer - 1;
  const auto thread = static_cast<std::uint32_t>(number), block = static_cast<std::uint32_t>(number >> 32);
  const auto of = [](std::uint32_t i, const emulation::Extent3& extent) {
    return keel::concat('(', i % extent.x, ", ", i / extent.x % extent.y, ", ", i / extent.x / extent.y, ')');
  };
  return keel::concat("thread ", of(thread, emulation::here.block_extent), " of block ",
                      of(block, emulation::here.grid_extent));
}

}  // namespace

void note_read(GlobalArray& array, const Index& index, bool unwritten) {
  watch_global(array, index, false);
  ++array.reads_;
  if (unwritten)
    emulation::fail_thread(
        keel::concat("reads ", array.name_, '[', index.value, "], which nobody has written"), index.where);
  const std::uint64_t writer = array.writers_[static_cast<std::size_t>(index.value)];
  if (writer != 0 && (writer - 1) >> 32 != block_number())
    emulation::fail_thread(keel::concat("reads ", array.name_, '[', index.value, "], which ", name_of(writer),
                                        " writes: nothing orders two blocks"),
                           index.where);
}

// Two threads of a block that write the same number are let through.
void note_write(GlobalArray& array, const Index& index, bool changes) {
  watch_global(array, index, true);
  ++array.writes_;
  std::uint64_t& writer = array.writers_[static_cast<std::size_t>(index.value)];
  const std::uint64_t own = this_thread();
  if (writer != 0 && writer != own && (changes || (writer - 1) >> 32 != (own - 1) >> 32))
    emulation::fail_thread(keel::concat("writes ", array.name_, '[', index.value, "], which ",
                                        name_of(writer), " has written, too"),
                           index.where);
  writer = own;
}

void note_shared(const void* address, const char* name, const std::source_location& where) {
  count_access(where);
  if (running.watch != nullptr)
    running.watch->note_shared(address, name, where, block_number(), thread_number());
}

void note_product() { ++running.products; }
std::int64_t tensor_core_calls() { return running.products; }

void watch_memory(MemoryWatch* watch) { running.watch = watch; }

void outside_shared(const Index& index, std::size_t count, const char* name) {
  emulation::fail_thread(
      keel::concat("uses ", name, '[', index.value, "]; the last is ", name, '[', count - 1, ']'),
      index.where);
}

void unwritten_shared(const Index& index, const char* name) {
  emulation::fail_thread(
      keel::concat("reads ", name, '[', index.value, "], which no thread of the block has written yet"),
      index.where);
}

void expect_written(std::string_view name, const std::vector<bool>& written) {
  const auto missing = std::count(written.begin(), written.end(), false);
  if (missing == 0) return;
  const auto size = static_cast<std::int64_t>(written.size());
  if (missing == size)
    wrong("The kernel wrote nothing: no element of {}, which has {}, is other than before the launch.", name,
          size);
  const auto first = std::find(written.begin(), written.end(), false) - written.begin();
  wrong("{}[{}] was never written. {} of its {} elements were not.", name, first, missing, size);
}

std::vector<bf16> to_bf16(std::span<const float> numbers) {
  std::vector<bf16> halves;
  for (const float x : numbers) halves.push_back(bf16(x));
  return halves;
}

std::vector<float> to_float(std::span<const bf16> numbers) {
  std::vector<float> floats;
  for (const bf16 x : numbers) floats.push_back(static_cast<float>(x));
  return floats;
}

namespace {

// What a message of the emulator has, and what it means.
struct Meaning {
  std::string_view part, meaning;
};
constexpr Meaning kMeanings[] = {
    {"race on shared memory",
     "Two threads use one element, one of them writes, and which comes first is chance. A __syncthreads() "
     "that all "
     "threads of the block reach between the two lines gives them an order."},
    {"for the block at",
     "__syncthreads() waits for each thread of the block, at the same line. A thread that has returned, or "
     "that an "
     "if keeps away, never comes, and a GPU hangs or goes on with wrong numbers. The barrier must stand "
     "where all "
     "threads pass."},
    {"for its warp at",
     "A shuffle waits for each lane that its mask names, a product on tensor cores for all 32. A lane that "
     "has returned, or that an if keeps away, "
     "never "
     "comes."},
    {"which no thread of the block has written yet",
     "Shared memory begins with whatever a block before has left. If another thread is to write the element, "
     "a __syncthreads() must come between."},
    {"which nobody has written", "Memory begins with whatever was there before."},
    {"has written, too", "Which of them comes last is chance. One thread alone must write each element."},
    {"an empty grid or block",
     "A quotient of whole numbers is rounded down, to 0 where the size is below that of a block. (n + k - 1) "
     "/ k is "
     "rounded up."},
    {"a shuffle reads a lane that is not in its mask", "What it hears then is undefined."},
    {"is not in its own mask", "Each lane that calls a shuffle must be in the mask."},
};

// Without the folders of "/a/b/c.cu:12" and "a/b/c.cu:12".
std::string without_folders(std::string text) {
  for (std::size_t at = text.find('/'); at != std::string::npos; at = text.find('/')) {
    const std::size_t begin = text.find_last_of(" \n", at) + 1;
    text.erase(begin, at + 1 - begin);
  }
  return text;
}

std::string explained(std::string text) {
  text = without_folders(std::move(text)) + '.';
  for (const Meaning& one : kMeanings)
    if (text.find(one.part) != std::string::npos) return text + '\n' + std::string(one.meaning);
  return text;
}

}  // namespace

void run_kernel(const emulation::Grid& grid, keel::FunctionRef<void()> body) {
  if (grid.grid.count() > kMostBlocks)
    wrong("The grid has {} x {} x {} blocks, far more than there are numbers.", grid.grid.x, grid.grid.y,
          grid.grid.z);
  emulation::GridOptions options = emulation::grid_options();
  options.blocks = options.threads = running.order;
  options.seed = running.seed;
  running.accesses = running.products = 0;
  std::string failed;
  try {
    emulation::run_grid(grid, options, body);
  } catch (const keel::Error& error) { failed = explained(error.what()); }
  if (!failed.empty()) wrong(failed);
}

std::vector<float> in_all_orders(std::string_view name, const std::function<std::vector<float>()>& body) {
  struct Way {
    const char* words;
    emulation::Order order;
    std::uint64_t seed;
  };
  constexpr Way kWays[] = {{"one after the other", emulation::Order::forward, 1},
                           {"in reverse", emulation::Order::reverse, 1},
                           {"shuffled", emulation::Order::shuffled, 1},
                           {"shuffled otherwise", emulation::Order::shuffled, 2}};
  struct Back {
    ~Back() { running.order = emulation::Order::forward; }
  } back;
  std::vector<float> first;
  for (const Way& way : kWays) {
    running.order = way.order;
    running.seed = way.seed;
    std::vector<float> got = body();
    if (first.empty()) first = std::move(got);
    else
      for (std::size_t i = 0; i < first.size(); ++i)
        if (std::memcmp(&first[i], &got[i], sizeof(float)) != 0)
          wrong(
              "{}[{}] is {} when threads and blocks run {}, and {} when they run {}. A GPU promises no "
              "order; the "
              "result must not depend on one.",
              name, i, first[i], kWays[0].words, got[i], way.words);
  }
  return first;
}

}  // namespace learn
