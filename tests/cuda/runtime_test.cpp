// Tensors, memory, streams and errors of a device.

#include <algorithm>
#include <cmath>

#include "keel/runtime/graph.h"
#include "tests/cuda/device.h"
#include "tests/cuda/runtime_kernels.h"
#include "tests/kernels/row_support.h"
#ifdef KEEL_EMULATED
#include "keel/runtime/emulation/machine.h"
#endif

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(RuntimeOnDevice);

TEST_P(RuntimeOnDevice, NumbersGoToTheDeviceAndComeBackInEveryDtype) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8}) {
    const Tensor x = uniform_tensor(host, {3, 5}, 1, dtype, 0, 100);
    const Tensor there = transfer(x, device);
    EXPECT_EQ(there.device(), kTestDevice);
    EXPECT_EQ(doubles(there), doubles(x)) << dtype;
    EXPECT_EQ(doubles(transfer(there, host)), doubles(x));
    EXPECT_EQ(doubles(there.transpose(0, 1)), doubles(x.transpose(0, 1)));  // strided, gathered on the host
    EXPECT_EQ(doubles(there.slice(1, 1, 3)), doubles(x.slice(1, 1, 3)));
  }
  EXPECT_EQ(doubles(zeros(device, {7})), std::vector<double>(7));
  EXPECT_EQ(from_values(device, std::vector<double>{2.5}, {}).item(), 2.5);
  EXPECT_EQ(transfer(empty(host, {0, 3}), device).numel(), 0);
}

TEST_P(RuntimeOnDevice, AStridedTensorIsNotTransferredButMadeDenseFirst) {
  const Tensor x = uniform_tensor(host, {3, 5}, 1).transpose(0, 1);
  EXPECT_THROW(transfer(x, device), Error);
  EXPECT_EQ(doubles(kernels::to(x, device)), doubles(x));
}

TEST_P(RuntimeOnDevice, NumbersOfOneDtypeAndShapeAreCopiedAcrossWithoutMemoryBesideThem) {
  const auto peak_of_copy = [&](const Tensor& to, const Tensor& from) {
    to.context().allocator().reset_peaks();
    const std::uint64_t version = to.storage()->version();
    const auto now = [&](auto of) { return to.context().memory()[Purpose::workspace].*of; };
    const std::size_t before = now(&MemoryCount::current);
    kernels::copy_across(to, from, Purpose::workspace);
    EXPECT_GT(to.storage()->version(), version);
    return now(&MemoryCount::peak) - before;
  };
  const Tensor x = uniform_tensor(host, {3, 5}, 1), y = zeros(device, {3, 5}), z = zeros(host, {3, 5});
  EXPECT_EQ(peak_of_copy(y, x), 0);
  EXPECT_EQ(peak_of_copy(z, y), 0);
  EXPECT_EQ(doubles(z), doubles(x));
  EXPECT_EQ(peak_of_copy(zeros(host, {3, 5}), x), 0);  // of one context

  const Tensor narrow = zeros(device, {3, 5}, DType::bf16), turned = zeros(device, {5, 3}),
               broad = zeros(device, {2, 5});
  EXPECT_GE(peak_of_copy(narrow, x), x.bytes());
  EXPECT_EQ(doubles(narrow), doubles(kernels::cast(x, DType::bf16)));
  EXPECT_GE(peak_of_copy(turned.transpose(0, 1), x), x.bytes());
  EXPECT_EQ(doubles(turned.transpose(0, 1)), doubles(x));
  kernels::copy_across(broad, x.slice(0, 1, 2));
  EXPECT_EQ(doubles(broad.slice(0, 1, 2)), doubles(x.slice(0, 1, 2)));
  EXPECT_THROW(kernels::copy_across(broad, x), Error);
}

TEST_P(RuntimeOnDevice, AHostCopyHoldsTheNumbersOfItsMoment) {
  const Tensor x = from_values(device, std::vector<float>{1, 2, 3}, {3});
  const HostCopy before(x);
  x.copy_from_host(std::vector<float>{4, 5, 6}.data());
  const HostCopy after(x);
  EXPECT_EQ(doubles(before.get()), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(doubles(after.get()), (std::vector<double>{4, 5, 6}));
}

TEST_P(RuntimeOnDevice, MemoryIsCountedByPurposeAndReused) {
  const auto count = [&](Purpose purpose) { return device.memory()[purpose].current; };
  const std::size_t before = count(Purpose::gradient);
  Tensor x = empty(device, {1000}, DType::f32, Purpose::gradient);
  EXPECT_EQ(count(Purpose::gradient) - before, 4000u);
  const std::byte* memory = x.raw();
  x = Tensor();
  EXPECT_EQ(count(Purpose::gradient), before);
  EXPECT_EQ(empty(device, {1000}).raw(), memory);
}

TEST_P(RuntimeOnDevice, WorkOfAnotherStreamIsWaitedForByEvents) {
  const Tensor x = zeros(device, {100});
  const Stream side = device.make_stream(true);
  side.wait(device.stream().record());
  {
    const StreamScope scope(device, side);
    EXPECT_EQ(device.stream(), side);
    fill_by_kernel(x, 3);
  }
  EXPECT_FALSE(device.stream() == side);
  x.storage()->used_by(side);
  device.stream().wait(side.record());
  EXPECT_EQ(doubles(x), std::vector<double>(100, 3));
}

TEST_P(RuntimeOnDevice, MemoryGoesToItsNextUserAfterTheOtherStreamsThatStillReadIt) {
  const Tensor kept = zeros(device, {100});
  const Stream side = device.make_stream();
  Tensor x = from_values(device, std::vector<float>(100, 7), {100});
  side.wait(device.stream().record());
  {
    const StreamScope scope(device, side);
    device.api().copy(kept.raw(), x.raw(), x.bytes(), side.native());
  }
  x.storage()->used_by(side);
  x = Tensor();                              // the copy may not have begun
  const Tensor next = empty(device, {100});  // the same block
  fill_by_kernel(next, -1);
  next.to_vector<float>();  // by now the block is overwritten
  side.synchronize();
  EXPECT_EQ(doubles(kept), std::vector<double>(100, 7));
}

TEST_P(RuntimeOnDevice, ADeviceThatIsNotThereIsAnErrorThatSaysWhy) {
  const auto message_of = [](Device wanted) {
    ContextOptions options;
    options.device = wanted;
    return error_of([&] { Context::create(options); });
  };
  EXPECT_NE(message_of({kTestDevice.type, 77}).find("the highest number is"), std::string::npos);
  const DeviceType other = kTestDevice.type == DeviceType::cuda ? DeviceType::emulated : DeviceType::cuda;
  EXPECT_NE(message_of({other, 0}).find("this build"), std::string::npos) << message_of({other, 0});
}

TEST_P(RuntimeOnDevice, AnOperationOnTwoDevicesIsRefused) {
  const std::string message = error_of([&] { kernels::binary<Add>(zeros(device, {2}), zeros(host, {2})); });
  EXPECT_EQ(message,
            concat("add mixes contexts: f32 (2) on ", kTestDevice, " and f32 (2) on cpu belong to different ones"));
}

TEST_P(RuntimeOnDevice, AnUnfitLaunchNamesTheKernelAndHarmsNothing) {
  const Tensor x = zeros(device, {4});
  const std::string message = error_of([&] {
    fill_by_kernel(x, 1, 4096);
    device.synchronize();
  });
  EXPECT_NE(message.find("fill_kernel"), std::string::npos) << message;
  fill_by_kernel(x, 2);
  EXPECT_EQ(doubles(x), std::vector<double>(4, 2));
}

TEST_P(RuntimeOnDevice, OutOfMemoryTellsWhatWasAskedAndWhoHoldsTheRest) {
  const Tensor held = zeros(device, {1 << 10}, DType::f32, Purpose::parameter);
  const std::string message = error_of([&] { empty(device, {std::int64_t{1} << 50}, DType::u8, Purpose::bucket); });
  EXPECT_NE(message.find(concat("out of memory on ", kTestDevice, ": ", std::int64_t{1} << 50,
                                " bytes were asked for as bucket")),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("parameter 4096"), std::string::npos) << message;
  EXPECT_NE(message.find("are free on the device"), std::string::npos) << message;
  EXPECT_EQ(doubles(zeros(device, {3})), std::vector<double>(3));  // and life goes on
}

TEST_P(RuntimeOnDevice, TwoContextsOfOneDeviceShareNothingAndTransferInOrder) {
  ContextOptions options;
  options.device = kTestDevice;
  const Context other = Context::create(options);
  const Tensor x = zeros(device, {50});
  fill_by_kernel(x, 4);
  const Tensor there = transfer(x, other);
  fill_by_kernel(x, 5);
  EXPECT_EQ(doubles(there), std::vector<double>(50, 4));
  EXPECT_THROW(kernels::binary<Add>(x, there), Error);
}

TEST_P(RuntimeOnDevice, AGraphRepeatsWhatWasRecordedAndRecordingDoesNothing) {
  const Tensor x = zeros(device, {100}), one = kernels::full(device, {100}, 1);
  device.synchronize();
  const Stream stream = device.make_stream();
  const auto work = [&] {
    kernels::accumulate(x, one);
    kernels::accumulate(x, kernels::binary<Add>(one, one));  // through memory of the graph's stream
  };
  {
    const StreamScope scope(device, stream);
    work();  // the memory is asked for once before
    EXPECT_FALSE(is_recording(device));
  }
  const Graph graph = Graph::record(device, stream, [&] {
    EXPECT_TRUE(is_recording(device));
    work();
  });
  EXPECT_FALSE(is_recording(device));
  stream.synchronize();
  EXPECT_EQ(doubles(x), std::vector<double>(100, 3));
  graph.launch();
  graph.launch();
  stream.synchronize();
  EXPECT_EQ(doubles(x), std::vector<double>(100, 9));
}

TEST_P(RuntimeOnDevice, WorkThatFailsIsNotRecordedAndTheStreamGoesOn) {
  const Tensor x = zeros(device, {4});
  device.synchronize();
  const Stream stream = device.make_stream();
  EXPECT_EQ(error_of([&] {
              Graph::record(device, stream, [&] {
                fill_by_kernel(x, 1);
                throw Error("enough");
              });
            }),
            "enough");
  {
    const StreamScope scope(device, stream);
    fill_by_kernel(x, 2);
  }
  stream.synchronize();
  EXPECT_EQ(doubles(x), std::vector<double>(4, 2));
  EXPECT_THROW(Graph().launch(), Error);
  EXPECT_THROW(Graph::record(host, host.stream(), [] {}), Error);
}

TEST_P(RuntimeOnDevice, AGraphKeepsTheMemoryThatItWritesWhenTheRestIsGivenBack) {
  const Tensor x = zeros(device, {100}), one = kernels::full(device, {100}, 1);
  device.synchronize();
  device.allocator().trim();
  const std::size_t before = device.memory().reserved;
  {
    const Stream stream = device.make_stream();
    const auto work = [&] { kernels::accumulate(x, kernels::binary<Add>(one, one)); };
    {
      const StreamScope scope(device, stream);
      work();
    }
    const Graph graph = Graph::record(device, stream, work);
    device.allocator().trim();  // as when memory runs out
    std::vector<Tensor> others;
    for (int i = 0; i < 20; ++i) others.push_back(kernels::full(device, {100}, 7));
    device.synchronize();
    graph.launch();
    stream.synchronize();
    EXPECT_EQ(doubles(x), std::vector<double>(100, 4));
    for (const Tensor& other : others) EXPECT_EQ(doubles(other), std::vector<double>(100, 7));
  }
  device.allocator().trim();
  EXPECT_EQ(device.memory().reserved, before);
}

TEST_P(RuntimeOnDevice, MemoryWhoseUsersCannotBeWaitedForIsNoReasonToDie) {
  const Stream stream = device.make_stream();
  Tensor x;
  {
    const StreamScope scope(device, stream);
    x = zeros(device, {100});
  }
  x.storage()->used_by(device.stream());
  stream.synchronize();
  EXPECT_THROW(Graph::record(device, stream, [&] { x = Tensor(); }), Error);  // waits for what is not recorded
  EXPECT_EQ(doubles(zeros(device, {3})), std::vector<double>(3));
  const std::size_t reserved = device.memory().reserved;
  device.allocator().trim();
  EXPECT_LT(device.memory().reserved, reserved);
}

TEST_P(RuntimeOnDevice, AdoptedMemoryIsGivenBackAfterTheWorkThatReadsIt) {
  const Tensor pinned = from_values(device.host(), std::vector<float>(100, 7), {100});
  float* const memory = pinned.data<float>();
  Tensor adopted =
      from_external(device.host(), memory, {100}, {1}, DType::f32, [&](void*) { std::fill_n(memory, 100, 0.0f); });
  const Tensor there = transfer(adopted, device);
  adopted = Tensor();
  EXPECT_EQ(memory[0], 0.0f);
  EXPECT_EQ(doubles(there), std::vector<double>(100, 7));
}

TEST_P(RuntimeOnDevice, ABlockMayHave48KilobytesOfDynamicSharedMemoryBesideItsArrays) {
  const Tensor x = zeros(device, {64});
  add_up_shared_memory(x, 48 << 10);
  EXPECT_EQ(doubles(x), std::vector<double>(64, 64));
}

TEST_P(RuntimeOnDevice, SharedArraysOfEveryTypeBeginAtSixteenBytes) {
  const Tensor x = zeros(device, {2});
  fetch_shared_offsets(x);
  EXPECT_EQ(doubles(x), std::vector<double>(2));
}

#ifdef KEEL_EMULATED

TEST_P(RuntimeOnDevice, MemoryThatNobodyWroteHoldsNan) {
  for (int repeat = 0; repeat < 2; ++repeat) {  // of the system, and of the cache
    const Tensor x = empty(device, {100});
    for (const double value : doubles(x)) EXPECT_TRUE(std::isnan(value));
    kernels::fill(x, 1);
  }
}

TEST_P(RuntimeOnDevice, WhatAKernelDoesWrongComesToLightAtTheNextWaitAndIsForgottenThen) {
  const Tensor x = zeros(device, {4});
  overrun_shared_memory(x);
  const std::string message = error_of([&] { x.to_vector<float>(); });
  EXPECT_NE(message.find("overrun_kernel"), std::string::npos) << message;
  EXPECT_NE(message.find("thread (4"), std::string::npos) << message;
  fill_by_kernel(x, 2);
  EXPECT_EQ(doubles(x), std::vector<double>(4, 2));
}

TEST(RuntimeOnDevices, NumbersGoFromOneDeviceToAnotherInOrderForAnyDrainSeed) {
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    emulation::Machine::get().reset({.devices = 2, .drain_seed = seed});
    {
      ContextOptions options;
      options.device = {DeviceType::emulated, 0};
      const Context first = Context::create(options);
      options.device.index = 1;
      const Context second = Context::create(options);
      const Tensor x = zeros(first, {50});
      fill_by_kernel(x, 4);
      const Tensor y = transfer(x, second);
      fill_by_kernel(y, 5);
      const Tensor z = transfer(y, first);
      EXPECT_EQ(doubles(x), std::vector<double>(50, 4)) << seed;
      EXPECT_EQ(doubles(y), std::vector<double>(50, 5)) << seed;
      EXPECT_EQ(doubles(z), std::vector<double>(50, 5)) << seed;
    }
    emulation::Machine::get().reset({});
  }
}

#endif

}  // namespace
}  // namespace keel
