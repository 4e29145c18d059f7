#pragma once
// A file of pages in memory, whose calls fail when a test says so.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/scratch_file.h"

namespace keel::testing {

class FaultyFile : public ScratchFile {
 public:
  enum class Call : unsigned char { reserve, read, write };
  // Called before each; what it throws is the call's failure. `number` counts the calls of this kind from 1 on.
  using Fault = std::function<void(Call call, std::int64_t number)>;

  explicit FaultyFile(Fault fault = {}, std::size_t alignment = 1) : fault_(std::move(fault)), alignment_(alignment) {}

  const std::string& folder() const override { return folder_; }
  std::size_t alignment() const override { return alignment_; }
  void reserve(std::uint64_t offset, std::uint64_t bytes) override {
    begin(Call::reserve);
    const std::lock_guard lock(mutex_);
    if (bytes_.size() < offset + bytes) bytes_.resize(offset + bytes);
  }
  void read(std::uint64_t offset, std::span<std::byte> bytes) const override {
    check(offset, bytes.data(), bytes.size());
    begin(Call::read);
    const std::lock_guard lock(mutex_);
    std::memcpy(bytes.data(), bytes_.data() + offset, bytes.size());
  }
  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    check(offset, bytes.data(), bytes.size());
    begin(Call::write);
    const std::lock_guard lock(mutex_);
    std::memcpy(bytes_.data() + offset, bytes.data(), bytes.size());
  }
  // As a disk does that changes a bit.
  void damage(std::size_t byte) {
    const std::lock_guard lock(mutex_);
    bytes_.at(byte) ^= std::byte{4};
  }

 private:
  void begin(Call call) const {
    const std::int64_t number = ++counts_[static_cast<std::size_t>(call)];
    if (fault_) fault_(call, number);
  }
  void check(std::uint64_t offset, const void* memory, std::size_t bytes) const {
    for (const std::uint64_t each :
         {offset, static_cast<std::uint64_t>(bytes), reinterpret_cast<std::uint64_t>(memory)})
      if (each % alignment_ != 0) throw Error("the file asks for other multiples", ErrorKind::internal);
  }

  std::string folder_ = "memory";
  Fault fault_;
  std::size_t alignment_;
  mutable std::mutex mutex_;
  std::vector<std::byte> bytes_;
  mutable std::atomic<std::int64_t> counts_[3] = {};
};

// Fails from the call `number` of this kind on.
inline FaultyFile::Fault fails_from(FaultyFile::Call failing, std::int64_t number, std::string reason) {
  return [=](FaultyFile::Call call, std::int64_t at) {
    if (call == failing && at >= number) throw Error(reason, ErrorKind::io);
  };
}

}  // namespace keel::testing
