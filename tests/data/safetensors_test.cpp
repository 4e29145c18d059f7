#include "keel/data/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

std::string file_of(const std::string& header, const std::string& data, std::uint64_t length) {
  std::string file(reinterpret_cast<const char*>(&length), 8);
  return file + header + data;
}
std::string file_of(const std::string& header, const std::string& data) { return file_of(header, data, header.size()); }

// The reason for which a file of this header and data is refused; empty when it is read.
std::string refusal_of_tensors(const TemporaryFolder& folder, const std::string& file) {
  // A file that is truncated and written again is flushed to the disk by some file systems; a new one is not.
  std::filesystem::remove(folder / "a.safetensors");
  std::ofstream(folder / "a.safetensors", std::ios::binary) << file;
  return error_of([&] { SafetensorsFile opened(folder / "a.safetensors"); });
}

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  std::vector<std::byte> bytes;
  visit_dtype(tensor.dtype(), [&](auto tag) {
    const auto values = tensor.to_vector<typename decltype(tag)::type>();
    bytes.resize(tensor.bytes());
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  });
  return bytes;
}

// A tensor whose bytes are all different patterns, among them NaN and infinities.
Tensor patterned(const Context& context, const Dims& shape, DType dtype, unsigned seed) {
  Tensor tensor = empty(context, shape, dtype);
  std::mt19937_64 engine(seed);
  for (std::size_t i = 0; i < tensor.bytes(); ++i) tensor.raw()[i] = static_cast<std::byte>(engine());
  return tensor;
}

std::vector<NamedTensor> one_of_each(const Context& context) {
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string name(name_of(dtype));
    tensors.emplace_back("matrix." + name, patterned(context, {3, 5}, dtype, i));
    tensors.emplace_back("scalar." + name, patterned(context, {}, dtype, 100 + i));
    tensors.emplace_back("empty." + name, patterned(context, {2, 0, 3}, dtype, 0));
  }
  tensors.emplace_back("a \"name\" with \\ and \n and \xc3\xa9", patterned(context, {7}, DType::u8, 1));
  return tensors;
}

TEST(Safetensors, RoundTripIsTheIdentityForEveryDtypeInBothOrders) {
  const TemporaryFolder folder;
  const Context context = testing::context();
  const std::vector<NamedTensor> tensors = one_of_each(context);
  const Metadata metadata = {{"format", "keel"}, {"", "empty key"}, {"step", "10"}};
  for (const auto order : {SafetensorsOrder::sorted, SafetensorsOrder::given}) {
    write_safetensors(folder / "a", tensors, metadata, order);
    const SafetensorsFile file(folder / "a");
    EXPECT_EQ(file.metadata(), metadata);
    ASSERT_EQ(file.entries().size(), tensors.size());
    for (const auto& [name, tensor] : tensors) {
      for (const Tensor& read : {file.tensor(name, context), file.view(name, context)}) {
        EXPECT_EQ(read.dtype(), tensor.dtype()) << name;
        EXPECT_EQ(read.shape(), tensor.shape()) << name;
        EXPECT_EQ(bytes_of(read), bytes_of(tensor)) << name;
      }
    }
  }
}

TEST(Safetensors, SortedOrderAlignsEveryTensorAndDoesNotDependOnTheGivenOne) {
  const TemporaryFolder folder;
  const Context context = testing::context();
  std::vector<NamedTensor> tensors = one_of_each(context);
  write_safetensors(folder / "a", tensors);
  const SafetensorsFile file(folder / "a");
  for (const SafetensorsEntry& entry : file.entries()) EXPECT_EQ(entry.offset % size_of(entry.dtype), 0u) << entry.name;
  std::shuffle(tensors.begin(), tensors.end(), std::mt19937(1));
  write_safetensors(folder / "b", tensors);
  EXPECT_EQ(read_text_file(folder / "a"), read_text_file(folder / "b"));
}

TEST(Safetensors, WritesStridedViewsRowMajor) {
  const TemporaryFolder folder;
  const Context context = testing::context();
  std::vector<double> values(600 * 700);
  std::iota(values.begin(), values.end(), 0.0);
  const Tensor matrix = testing::tensor_of(context, values, {600, 700});
  const Tensor row = testing::tensor_of(context, {5}, {1}).expand({300});
  const Tensor longer_than_a_piece = matrix.view({1, 420000}).slice(1, 1, 400000).expand({2, 399999});
  const std::vector<NamedTensor> tensors = {{"transposed", matrix.transpose(0, 1)},
                                            {"slice", matrix.slice(1, 3, 10)},
                                            {"expanded", row},
                                            {"long rows", longer_than_a_piece}};
  write_safetensors(folder / "a", tensors);
  const SafetensorsFile file(folder / "a");
  for (const auto& [name, tensor] : tensors)
    EXPECT_EQ(testing::doubles(file.tensor(name, context)), testing::doubles(tensor)) << name;
}

TEST(Safetensors, OfNoTensorsIsAFile) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a", {});
  const SafetensorsFile file(folder / "a");
  EXPECT_TRUE(file.entries().empty());
  EXPECT_TRUE(file.metadata().empty());
  EXPECT_EQ(refusal_of_tensors(folder, file_of("{}", "")), "");
}

TEST(Safetensors, ViewOutlivesTheFileObjectAndNeverWritesToTheFile) {
  const TemporaryFolder folder;
  const Context context = testing::context();
  write_safetensors(folder / "a", std::vector<NamedTensor>{{"x", testing::tensor_of(context, {1, 2, 3}, {3})}});
  const std::string before = read_text_file(folder / "a");
  Tensor view;
  {
    const SafetensorsFile file(folder / "a");
    view = file.views(context).at(0).second;
    EXPECT_EQ(context.memory().total.current, 0u);
  }
  view.data<float>()[0] = 10;
  EXPECT_EQ(testing::doubles(view), (std::vector<double>{10, 2, 3}));
  EXPECT_EQ(read_text_file(folder / "a"), before);
}

TEST(Safetensors, ReadsUnalignedNumbersBooleansAndTrailingSpaces) {
  const TemporaryFolder folder;
  const Context context = testing::context();
  const float value = 1.5f;
  const std::string data = "\1" + std::string(reinterpret_cast<const char*>(&value), 4);
  const std::string header =
      R"({"b":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},"f":{"dtype":"F32","shape":[],"data_offsets":[1,5]}}   )";
  ASSERT_EQ(refusal_of_tensors(folder, file_of(header, data)), "");
  const SafetensorsFile file(folder / "a.safetensors");
  EXPECT_EQ(file.view("f", context).item(), 1.5);
  EXPECT_EQ(file.view("b", context).to_vector<std::uint8_t>(), std::vector<std::uint8_t>{1});
}

TEST(Safetensors, HeaderIsPaddedToTheNextMultipleOfEightBytes) {
  const TemporaryFolder folder;
  const Context context = testing::context();
  for (std::size_t length = 1; length < 9; ++length) {
    write_safetensors(folder / "a",
                      std::vector<NamedTensor>{{std::string(length, 'x'), testing::tensor_of(context, {1}, {1})}});
    const std::string file = read_text_file(folder / "a");
    const std::size_t end = file.find("}}") + 2, numbers = file.size() - 4;
    EXPECT_EQ(numbers % 8, 0u);
    EXPECT_LT(numbers - end, 8u);
    EXPECT_EQ(file.substr(end, numbers - end), std::string(numbers - end, ' '));
  }
}

TEST(Safetensors, NamesTheNearestTensorWhenOneIsMissing) {
  const TemporaryFolder folder;
  const Context context = testing::context();
  write_safetensors(folder / "a", std::vector<NamedTensor>{{"layer.weight", zeros(context, {1})}});
  const SafetensorsFile file(folder / "a");
  EXPECT_TRUE(file.contains("layer.weight"));
  EXPECT_FALSE(file.contains("layer.wieght"));
  const std::string message = error_of([&] { file.tensor("layer.wieght", context); });
  EXPECT_NE(message.find("'layer.weight'"), std::string::npos) << message;
  EXPECT_NE(message.find(folder / "a"), std::string::npos) << message;
}

TEST(Safetensors, WriterRefusesWhatItCannotReadBack) {
  const TemporaryFolder folder;
  const Tensor one = zeros(testing::context(), {1});
  const auto write = [&](std::vector<NamedTensor> tensors, const Metadata& metadata = {}) {
    return error_of([&] { write_safetensors(folder / "a", tensors, metadata); });
  };
  EXPECT_NE(write({{"x", one}, {"x", one}}).find("'x'"), std::string::npos);
  EXPECT_NE(write({{"x", Tensor()}}).find("'x'"), std::string::npos);
  EXPECT_NE(write({{"__metadata__", one}}).find("reserves"), std::string::npos);
  EXPECT_NE(write({{"\xff", one}}).find("UTF-8"), std::string::npos);
  EXPECT_NE(write({{"x", one}}, {{"k", "\xc3"}}).find("UTF-8"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

TEST(Safetensors, RefusesEveryMalformedHeaderWithPathAndReason) {
  const TemporaryFolder folder;
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  const std::string good = tensor("F32", "[1]", "[0,4]");
  const std::string data(4, '\0');
  const std::pair<std::string, std::string> cases[] = {
      {file_of("", ""), "does not begin with '{'"},
      {file_of("[]", ""), "does not begin with '{'"},
      {file_of("{}", "", 3), "truncated"},
      {file_of("{}", "", ~0ull), "more than the 100000000"},
      {file_of("{}", "", 100000001), "more than the 100000000"},
      {file_of("{} x", ""), "not valid JSON"},
      {file_of("{\"x\":" + good + ",}", data), "not valid JSON"},
      {file_of("{\"x\":" + good, data), "not valid JSON"},
      {file_of("{\"\xff\":" + good + "}", data), "not valid JSON"},
      {file_of("{\"x\":1}", ""), "tensor 'x' has a number"},
      {file_of("{\"x\":null}", ""), "tensor 'x' has null"},
      {file_of("{\"x\":[]}", ""), "tensor 'x' has a list"},
      {file_of("{\"x\":{}}", ""), "tensor 'x' has no 'dtype'"},
      {file_of("{\"x\":" + good + ",\"x\":" + good + "}", data), "'x' appears twice"},
      {file_of(R"({"x":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", data), "'dtype' twice"},
      {file_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"scale":1}})", data), "unknown key 'scale'"},
      {file_of(R"({"x":{"dtype":"F32","data_offsets":[0,4]}})", data), "no 'shape'"},
      {file_of(R"({"x":{"dtype":"F32","shape":[1]}})", data), "no 'data_offsets'"},
      {file_of("{\"x\":" + tensor("F8", "[1]", "[0,4]") + "}", data), "dtype 'F8'"},
      {file_of("{\"x\":" + tensor("F32", "1", "[0,4]") + "}", data), "a number in shape"},
      {file_of("{\"x\":" + tensor("F32", "[-1]", "[0,4]") + "}", data), "a negative number in shape"},
      {file_of("{\"x\":" + tensor("F32", "[1.0]", "[0,4]") + "}", data), "the number 1.0 in shape"},
      {file_of("{\"x\":" + tensor("F32", "[[1]]", "[0,4]") + "}", data), "a list in shape"},
      {file_of("{\"x\":" + tensor("F32", "[\"1\"]", "[0,4]") + "}", data), "a text in shape"},
      {file_of("{\"x\":" + tensor("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", data), "more than 8 dimensions"},
      {file_of("{\"x\":" + tensor("F32", "[1]", "[0,4,4]") + "}", data), "more than two data_offsets"},
      {file_of("{\"x\":" + tensor("F32", "[1]", "[4]") + "}", data), "needs two data_offsets"},
      {file_of("{\"x\":" + tensor("F32", "[1]", "[4,0]") + "}", data), "ends at 0, before it begins at 4"},
      {file_of("{\"x\":" + tensor("F32", "[1]", "[-4,0]") + "}", data), "a negative number in data_offsets"},
      {file_of("{\"x\":" + tensor("F32", "[2]", "[0,4]") + "}", data), "needs 8 bytes, but its data_offsets span 4"},
      {file_of("{\"x\":" + tensor("F32", "[4611686018427387904,4]", "[0,0]") + "}", ""), "more bytes than"},
      {file_of("{\"x\":" + tensor("F32", "[4611686018427387904,4,0]", "[0,0]") + "}", ""), "more bytes than"},
      {file_of("{\"x\":" + tensor("F32", "[9223372036854775808]", "[0,0]") + "}", ""),
       "an extent of 9223372036854775808"},
      {file_of("{\"x\":" + tensor("F32", "[99999999999999999999]", "[0,0]") + "}", ""),
       "the number 99999999999999999999"},
      {file_of("{\"x\":" + good + "}", data + "x"), "last 1 bytes belong to no tensor"},
      {file_of("{\"x\":" + good + "}", "abc"), "truncated"},
      {file_of("{\"x\":" + good + ",\"y\":" + good + "}", data), "inside the tensor before it"},
      {file_of("{\"x\":" + good + ",\"y\":" + tensor("U8", "[1]", "[5,6]") + "}", data + "xy"), "belong to no tensor"},
      {file_of("{\"x\":" + tensor("F32", "[1]", "[18446744073709551612,18446744073709551616]") + "}", ""),
       "the number"},
      {file_of("{\"x\":" + tensor("U8", "[0]", "[18446744073709551615,18446744073709551615]") + "}", ""),
       "belong to no"},
      {file_of(R"({"__metadata__":{"a":1}})", ""), "the metadata has a number"},
      {file_of(R"({"__metadata__":{"a":"1","a":"2"}})", ""), "'a' twice"},
      {file_of(R"({"__metadata__":{"a":{}}})", ""), "the metadata has an object"},
      {file_of(R"({"__metadata__":"a"})", ""), "the metadata has a text"},
      {file_of(R"({"__metadata__":{},"__metadata__":{}})", ""), "appears twice"},
      {file_of(R"({"x":)" + std::string(100000, '[') + "}", ""), "tensor 'x' has a list"},
      {file_of(R"({"x":)" + std::string(100000, '{') + "}", ""), "not valid JSON"},
  };
  for (const auto& [file, reason] : cases) {
    const std::string message = refusal_of_tensors(folder, file);
    EXPECT_NE(message.find(reason), std::string::npos) << file.substr(0, 200) << "\n" << message;
    EXPECT_NE(message.find(folder / "a.safetensors"), std::string::npos) << message;
  }
  EXPECT_NE(error_of([&] { SafetensorsFile file(folder / "none"); }).find("No such file"), std::string::npos);
}

TEST(Safetensors, RefusesEveryTruncation) {
  const TemporaryFolder folder;
  write_safetensors(folder / "good", one_of_each(testing::context()), {{"k", "v"}});
  const std::string good = read_text_file(folder / "good");
  for (std::size_t length = 0; length < good.size(); ++length)
    ASSERT_NE(refusal_of_tensors(folder, good.substr(0, length)), "") << length;
}

TEST(Safetensors, ThousandsOfMutationsLoadOrAreRefused) {
  const TemporaryFolder folder;
  const Context context = testing::context();
  write_safetensors(folder / "good", one_of_each(context), {{"format", "keel"}});
  const std::string good = read_text_file(folder / "good");
  const std::size_t header_end = SafetensorsFile(folder / "good").entries()[0].offset;
  std::mt19937_64 engine(1);
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(engine() % bound); };
  int loaded = 0, refused = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string file = good;
    for (std::size_t change = 0, changes = 1 + below(3); change < changes; ++change) {
      const std::size_t at = below(std::min(file.size(), header_end));
      switch (below(5)) {
        case 0: file[at] ^= static_cast<char>(1u << below(8)); break;
        case 1: file[at] = "{}[]\",:0123456789-eE\\u \0"[below(24)]; break;
        case 2: file.erase(at, 1 + below(20)); break;
        case 3: file.insert(at, file.substr(below(file.size()), 1 + below(40))); break;
        case 4: file.resize(below(file.size()) + 1); break;
      }
    }
    // Half of the time the length is right, so that the parser sees the damage.
    if (file.size() > 8 && below(2) == 0) {
      const std::uint64_t length = std::min(header_end, file.size()) - 8;
      std::memcpy(file.data(), &length, 8);
    }
    const std::string message = refusal_of_tensors(folder, file);
    ++(message.empty() ? loaded : refused);
    if (!message.empty()) continue;
    const SafetensorsFile opened(folder / "a.safetensors");
    for (const SafetensorsEntry& entry : opened.entries()) bytes_of(opened.tensor(entry.name, context));
  }
  EXPECT_GT(loaded, 20);
  EXPECT_GT(refused, 3000);
}

}  // namespace
}  // namespace keel
