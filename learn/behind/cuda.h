#pragma once
// What checks the exercises of CUDA: arrays of the device, launches in several orders of threads, and counts
// of what the memory had to do.

#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "learn/behind/check.h"
#include "learn/given/kernel.h"

namespace learn {

// What all arrays have, whatever their elements are.
class GlobalArray {
 public:
  GlobalArray(std::string name, std::int64_t size, std::size_t element_bytes);
  const std::string& name() const { return name_; }
  std::int64_t size() const { return size_; }
  std::size_t element_bytes() const { return element_bytes_; }
  std::int64_t reads() const { return reads_; }
  std::int64_t writes() const { return writes_; }

 private:
  friend void note_read(GlobalArray&, const Index&, bool);
  friend void note_write(GlobalArray&, const Index&, bool);
  std::string name_;
  std::int64_t size_;
  std::size_t element_bytes_;
  std::int64_t reads_ = 0, writes_ = 0;
  std::vector<std::uint64_t> writers_;  // of each element: block and thread, and 1; 0 is nobody
};

// Ends the law where some numbers were never written: `name` as the exercise calls them.
void expect_written(std::string_view name, const std::vector<bool>& written);

template <class T>
class Array {
 public:
  Array(std::string name, std::vector<T> numbers)
      : numbers_(std::move(numbers)), shadow_(std::move(name), size(), sizeof(T)) {}
  // Numbers that the kernel is to write.
  Array(std::string name, std::int64_t size)
      : numbers_(static_cast<std::size_t>(size)), shadow_(std::move(name), size, sizeof(T)) {
    std::memset(static_cast<void*>(numbers_.data()), 0xff, numbers_.size() * sizeof(T));
  }
  operator Global<T>() { return {numbers_.data(), size(), &shadow_}; }
  operator Global<const T>() { return {numbers_.data(), size(), &shadow_}; }
  std::int64_t size() const { return static_cast<std::int64_t>(numbers_.size()); }
  const GlobalArray& counts() const { return shadow_; }
  // All elements; ends the law where one was never written.
  const std::vector<T>& read() const {
    std::vector<bool> written;
    for (const T& x : numbers_) written.push_back(!unwritten(x));
    expect_written(shadow_.name(), written);
    return numbers_;
  }

 private:
  std::vector<T> numbers_;
  GlobalArray shadow_;
};

std::vector<bf16> to_bf16(std::span<const float> numbers);
std::vector<float> to_float(std::span<const bf16> numbers);

// Calls of learn::multiply_add() by lanes, in the last launch.
std::int64_t tensor_core_calls();

class MemoryWatch;  // learn/behind/memory_watch.h
void watch_memory(MemoryWatch* watch);

// Runs a grid, and ends the law with an explanation where a thread does what it must not.
void run_kernel(const keel::emulation::Grid& grid, keel::FunctionRef<void()> body);

// kernel(args...) in a grid of blocks. The arguments are converted to the kernel's parameters.
template <class... Params, class... Args>
void launch(const char* name, void (*kernel)(Params...), dim3 grid, dim3 block, Args&&... args) {
  static_assert(sizeof...(Params) == sizeof...(Args));
  std::tuple<std::remove_cv_t<Params>...> parameters{static_cast<Params>(std::forward<Args>(args))...};
  const auto body = [&] { std::apply(kernel, parameters); };
  run_kernel({name, grid, block, 0, reinterpret_cast<const void*>(kernel)}, body);
}

// Calls body() once in each order in which blocks and threads may run: forward, in reverse and shuffled by
// two seeds. It launches on fresh arrays and returns the result, `name` as the exercise calls it. Ends the
// law where the bits differ; returns the first result.
std::vector<float> in_all_orders(std::string_view name, const std::function<std::vector<float>()>& body);

}  // namespace learn
