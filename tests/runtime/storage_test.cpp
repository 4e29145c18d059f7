#include "keel/runtime/storage.h"

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support.h"

namespace keel {
namespace {

using testing::context;

TEST(Storage, DroppedMemoryComesBackForEveryView) {
  const Context cpu = context();
  const Tensor x = empty(cpu, {4, 8}, DType::f32, Purpose::parameter);
  const Tensor view = x.slice(0, 1, 3);
  x.storage()->drop();
  EXPECT_FALSE(x.storage()->resident());
  EXPECT_EQ(cpu.memory()[Purpose::parameter].current, 0u);
  EXPECT_THROW(view.data<float>(), Error);
  x.storage()->restore();
  EXPECT_TRUE(x.storage()->resident());
  EXPECT_EQ(cpu.memory()[Purpose::parameter].current, 128u);
  EXPECT_EQ(view.data<float>(), x.data<float>() + 8);
}

TEST(Storage, DropAndRestoreMayBeRepeated) {
  const Context cpu = context();
  Storage storage(cpu, 64, Purpose::bucket);
  storage.restore();
  EXPECT_EQ(cpu.memory()[Purpose::bucket].current, 64u);
  storage.drop();
  storage.drop();
  EXPECT_EQ(cpu.memory()[Purpose::bucket].current, 0u);
}

TEST(Storage, TheTouchHookMayBringTheMemoryBack) {
  const Context cpu = context();
  const Tensor x = zeros(cpu, {16}, DType::f32, Purpose::parameter);
  int touched = 0;
  x.storage()->drop();
  x.storage()->set_touch_hook([&](Storage& storage) {
    ++touched;
    if (storage.resident()) return;
    storage.set_touch_hook({});  // so that writing below does not come here again
    storage.restore();
    std::memset(storage.data(), 0, storage.bytes());
  });
  EXPECT_EQ(x.slice(0, 4, 8).data<float>()[0], 0);
  EXPECT_EQ(touched, 1);
}

TEST(Storage, ATouchHookThatFailsReachesTheCaller) {
  const Tensor x = zeros(context(), {16});
  x.storage()->set_touch_hook([](Storage&) { throw Error("the gather failed"); });
  EXPECT_THROW(x.data<float>(), Error);
}

TEST(Storage, TheVersionCountsWritesButNotDropsAndRestores) {
  const Tensor x = zeros(context(), {16});
  EXPECT_EQ(x.storage()->version(), 0u);
  x.slice(0, 1, 2).mark_written();
  EXPECT_EQ(x.storage()->version(), 1u);
  x.storage()->drop();
  x.storage()->restore();
  EXPECT_EQ(x.storage()->version(), 1u);
}

TEST(Storage, AdoptedMemoryCannotBeDroppedAndItsDeleterMayFail) {
  std::string logged;
  ContextOptions options;
  options.log = [&](LogLevel level, std::string_view message) {
    EXPECT_EQ(level, LogLevel::error);
    logged = message;
  };
  char memory[8];
  {
    Storage storage(Context::create(options), memory, 8, Purpose::activation,
                    [](void*) { throw std::runtime_error("no way back"); });
    EXPECT_THROW(storage.drop(), Error);
  }
  EXPECT_NE(logged.find("no way back"), std::string::npos);
  EXPECT_THROW(Storage(context(), nullptr, 8, Purpose::activation, {}), Error);
}

TEST(Storage, OutlivesTheContextHandleThatMadeIt) {
  Tensor x;
  {
    const Context cpu = context();
    x = zeros(cpu, {1000});
  }
  EXPECT_EQ(x.to_vector<float>()[999], 0);
  EXPECT_EQ(x.context().memory().total.current, 4000u);
}

TEST(Storage, WhoseNumbersAreElsewhereIsReadOnceWithoutItsMemory) {
  struct Kept : Elsewhere {
    bool has_numbers() const override { return has; }
    void read(std::int64_t begin, std::int64_t bytes, const Reader& reader) override {
      for (std::int64_t at = begin; at < begin + bytes; at += 4)
        reader(std::as_bytes(std::span(&numbers[static_cast<std::size_t>(at / 4)], 1)));
    }
    std::vector<float> numbers = {0, 1, 2, 3};
    bool has = true;
  } kept;
  const Tensor x = from_values(context(), std::vector<float>(4, 9), {4});
  x.storage()->set_elsewhere(&kept);
  const auto read = [&](const Tensor& of) {
    std::vector<float> found;
    read_once(of, [&](std::span<const std::byte> piece) {
      for (std::size_t at = 0; at < piece.size(); at += sizeof(float)) {
        float number = 0;
        std::memcpy(&number, piece.data() + at, sizeof(number));
        found.push_back(number);
      }
    });
    return found;
  };
  kept.has = false;
  EXPECT_EQ(read(x.slice(0, 1, 3)), std::vector<float>({9, 9})) << "they are in memory";
  kept.has = true;
  x.storage()->drop();
  EXPECT_EQ(read(x.slice(0, 1, 3)), std::vector<float>({1, 2}));
  EXPECT_FALSE(x.storage()->resident());
  EXPECT_THROW(read(x.view({2, 2}).transpose(0, 1)), Error) << "of dense tensors alone";
}

}  // namespace
}  // namespace keel
