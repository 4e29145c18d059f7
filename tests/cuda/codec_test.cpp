// Codecs and what PowerSGD needs, on a device.

#include "keel/kernels/codec.h"

#include <cstring>
#include <limits>

#include "keel/runtime/graph.h"
#include "tests/cuda/device.h"
#include "tests/kernels/codec_support.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(CodecOnDevice);

struct Coded {
  std::vector<std::uint8_t> payload;
  std::vector<double> rest, sums;
};

Coded code(const Context& context, const std::vector<double>& values, std::int64_t parts, const Codec& codec) {
  const auto count = static_cast<std::int64_t>(values.size()) / parts;
  const Tensor numbers = tensor_of(context, values, {parts, count});
  const Tensor payload = empty(context, {parts, codec.bytes(count)}, DType::u8);
  kernels::encode({numbers, payload, codec});
  const Tensor sums = kernels::full(context, {parts, count}, 0.375);
  kernels::decode_add({sums, payload, codec});
  return {payload.to_vector<std::uint8_t>(), doubles(numbers), doubles(sums)};
}

void expect_equal(const Coded& there, const Coded& here, const std::string& what) {
  EXPECT_TRUE(there.payload == here.payload) << what;
  EXPECT_TRUE(there.rest == here.rest) << what;
  EXPECT_TRUE(there.sums == here.sums) << what;
}

TEST_P(CodecOnDevice, GivesTheBitsOfTheProcessor) {
  constexpr std::int64_t kTile = 4096;
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{255}, std::int64_t{257}, kTile, 2 * kTile + 33})
    for (const Codec& codec :
         {kInt8Codec, kInt4Codec, top(0.001), top(0.3), top(1), top_2bit(0.001), top_2bit(0.3), top_2bit(1)})
      for (const std::int64_t parts : {1, 3}) {
        if (parts * count > 3 * kTile) continue;
        const std::vector<double> values = mixed(parts * count, static_cast<std::uint64_t>(count));
        expect_equal(code(device, values, parts, codec), code(host, values, parts, codec),
                     concat(count, " numbers, ", codec.bytes(count), " bytes, ", parts, " parts"));
      }
}

TEST_P(CodecOnDevice, KeepsOfEqualSizesTheFirst) {
  for (const double fraction : {0.01, 0.5, 0.999}) {
    std::vector<double> values(9000, 0);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (i % 3 != 0) values[i] = i % 2 == 0 ? 1 : -1;
    for (const double all : {0.0, -2.0}) {
      expect_equal(code(device, values, 2, top(fraction)), code(host, values, 2, top(fraction)),
                   concat(fraction, " of two sizes, then of ", all));
      values.assign(values.size(), all);
    }
  }
}

TEST_P(CodecOnDevice, SendsTheSmallestNumbersAndThoseThatAreNotFinite) {
  std::vector<double> values = mixed(700, 3);
  values[1] = std::numeric_limits<float>::denorm_min();
  values[2] = -std::numeric_limits<float>::max();
  for (const Codec& codec : {kInt8Codec, kInt4Codec, top(0.01), top(1), top_2bit(0.01), top_2bit(1)})
    expect_equal(code(device, values, 1, codec), code(host, values, 1, codec), "finite ones");
  std::vector<double> tiny(300);
  for (std::size_t i = 0; i < tiny.size(); ++i)
    tiny[i] = std::numeric_limits<float>::denorm_min() * static_cast<double>(i % 5);
  for (const Codec& codec : {kInt8Codec, kInt4Codec, top(0.1), top_2bit(0.1)})
    expect_equal(code(device, tiny, 1, codec), code(host, tiny, 1, codec), "subnormal ones");
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()})
    for (const Codec& codec : {kInt8Codec, kInt4Codec, top(0.01), top_2bit(0.01)}) {
      values[300] = bad;
      const Coded there = code(device, values, 1, codec), here = code(host, values, 1, codec);
      EXPECT_TRUE(there.payload == here.payload);
      EXPECT_FALSE(std::isfinite(there.sums[300]));
    }
}

TEST_P(CodecOnDevice, WorksInARecordedGraph) {
  const std::vector<double> values = mixed(2 * 5000, 4);
  for (const Codec& codec : {kInt8Codec, kInt4Codec, top(0.02), top_2bit(0.02)}) {
    const Tensor source = tensor_of(device, values, {2, 5000}), numbers = kernels::clone(source);
    const Tensor payload = empty(device, {2, codec.bytes(5000)}, DType::u8);
    const Tensor sums = zeros(device, {2, 5000});
    device.synchronize();
    const auto work = [&] {
      kernels::copy_into(numbers, source);
      kernels::encode({numbers, payload, codec});
      kernels::decode_add({sums, payload, codec});
    };
    const Stream stream = device.make_stream();
    const KeptMemory kept(device, stream);
    {
      const StreamScope scope(device, stream);
      work();
    }
    const Graph graph = Graph::record(device, stream, work);
    graph.launch();
    stream.synchronize();
    const Coded here = code(host, values, 2, codec);
    EXPECT_TRUE(payload.to_vector<std::uint8_t>() == here.payload);
    EXPECT_TRUE(doubles(numbers) == here.rest);
    const std::vector<double> twice = doubles(sums);
    const Tensor once = zeros(host, {2, 5000});
    kernels::decode_add({once, from_values(host, here.payload, {2, codec.bytes(5000)}), codec});
    const std::vector<double> carried = doubles(once);
    for (std::size_t i = 0; i < twice.size(); ++i) ASSERT_EQ(twice[i], 2 * carried[i]) << "what two payloads carried";
  }
}

TEST_P(CodecOnDevice, APayloadThatNamesNoElementIsNamedAtTheNextWait) {
  const std::uint32_t places[] = {3, 0, 10, 0};  // of the numbers 0
  std::vector<std::uint8_t> bytes(sizeof places);
  std::memcpy(bytes.data(), places, sizeof places);
  const Tensor payload = from_values(device, bytes, {1, 16}), numbers = zeros(device, {1, 10});
  kernels::decode_add({numbers, payload, top(0.2)});
  try {
    device.synchronize();
    FAIL() << "place 10 of 10";
  } catch (const Error& error) { EXPECT_STREQ(error.what(), "decode_add: place 10 at position 1 is outside [0, 10)"); }
}

TEST_P(CodecOnDevice, APlaceOfFewBitsThatNamesNoElementIsNamedAtTheNextWait) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(top_2bit(0.1).bytes(10)));
  bytes[8] = 12;
  kernels::decode_add({zeros(device, {1, 10}), from_values(device, bytes, {1, std::ssize(bytes)}), top_2bit(0.1)});
  try {
    device.synchronize();
    FAIL() << "place 12 of 10";
  } catch (const Error& error) { EXPECT_STREQ(error.what(), "decode_add: place 12 at position 0 is outside [0, 10)"); }
}

TEST_P(CodecOnDevice, NothingIsEncodedOfNothing) {
  for (const Codec& codec : {kInt8Codec, kInt4Codec, top(0.5), top_2bit(0.5)})
    for (const Dims& shape : {Dims{0, 5}, Dims{3, 0}}) {
      const Tensor numbers = zeros(device, shape);
      const Tensor payload = empty(device, {shape[0], codec.bytes(shape[1])}, DType::u8);
      kernels::encode({numbers, payload, codec});
      kernels::decode_add({numbers, payload, codec});
    }
  device.synchronize();
}

TEST_P(CodecOnDevice, MakesColumnsOrthonormalAsTheProcessorDoes) {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {5, 5}, {64, 3}, {1100, 4}}) {
    const Tensor x = uniform_tensor(host, {rows, columns}, 4), there = on_device(x);
    kernels::orthonormalise(there);
    kernels::orthonormalise(x);
    expect_close(there, x, 1, 1e-2);
    expect_same_bits_again([&, rows = rows, columns = columns] {
      const Tensor again = uniform_tensor(device, {rows, columns}, 4);
      kernels::orthonormalise(again);
      return std::vector<Tensor>{again};
    });
  }
}

TEST_P(CodecOnDevice, LeavesZerosForAColumnThatDependsOnOthersAndHidesNothingThatIsNotFinite) {
  expect_dependent_columns_are_zero(device);
}

TEST_P(CodecOnDevice, FillsEmptyRowsWithTheNumbersOfTheProcessor) {
  std::vector<double> values(5 * 1100, 0);
  values[1100 + 7] = 1e-30;
  values[3 * 1100] = -1;
  const Tensor x = tensor_of(host, values, {5, 1100}), there = on_device(x);
  kernels::fill_empty_rows(x, 3, "a name");
  kernels::fill_empty_rows(there, 3, "a name");
  EXPECT_EQ(doubles(there), doubles(x));
}

}  // namespace
}  // namespace keel
