// TensorBoard's event files, read back by a decoder of the test's own; TensorBoard's is asked in
// peers/tensorboard_reads.

#include "keel/trainer/trackers/event_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <tuple>

#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"
#include "tests/trackers/session.h"

namespace keel {
namespace {

using testing::description_in;
using testing::resumed_in;
using testing::TrackedSession;
using Told = std::vector<std::string>;

// A field of a message: its number, and its bytes as they are on the wire, without a length.
struct Field {
  std::uint64_t number;
  std::string bytes;
  double as_double() const { return as<double>(); }
  float as_float() const { return as<float>(); }
  template <class T>
  T as() const {
    EXPECT_EQ(bytes.size(), sizeof(T));
    T value{};
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::uint64_t as_varint() const {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) value |= (bytes[i] & 0x7fULL) << 7 * i;
    return value;
  }
};

std::string take(std::string_view& rest, std::size_t count) {
  EXPECT_LE(count, rest.size());
  const std::string piece(rest.substr(0, count));
  rest.remove_prefix(std::min(count, rest.size()));
  return piece;
}

Field varint(std::string_view& rest) {
  std::size_t count = 1;
  while (count < rest.size() && (rest[count - 1] & 0x80) != 0) ++count;
  return {0, take(rest, count)};
}

std::vector<Field> fields_of(std::string_view rest) {
  std::vector<Field> fields;
  while (!rest.empty()) {
    const std::uint64_t tag = varint(rest).as_varint();
    Field field = {tag >> 3, ""};
    switch (tag & 7) {
      case 0: field.bytes = varint(rest).bytes; break;
      case 1: field.bytes = take(rest, 8); break;
      case 2: field.bytes = take(rest, varint(rest).as_varint()); break;
      case 5: field.bytes = take(rest, 4); break;
      default: ADD_FAILURE() << "wire type " << (tag & 7); return fields;
    }
    fields.push_back(field);
  }
  return fields;
}

// The first field of a path of numbers; null where there is none.
std::optional<Field> field_at(const std::string& message, std::initializer_list<std::uint64_t> path) {
  Field field = {0, message};
  for (const std::uint64_t number : path) {
    const std::vector<Field> all = fields_of(field.bytes);
    const auto found = std::find_if(all.begin(), all.end(), [&](const Field& each) { return each.number == number; });
    if (found == all.end()) return std::nullopt;
    field = *found;
  }
  return field;
}

// By the bits of the polynomial's definition, and not by a table.
std::uint32_t masked_crc(const std::string& bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const bool differs = ((crc ^ static_cast<unsigned char>(byte) >> bit) & 1) != 0;
      crc = (crc >> 1) ^ (differs ? 0x82f63b78U : 0U);
    }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

std::vector<std::string> events_in(const std::string& file) {
  std::vector<std::string> events;
  const std::string text = read_text_file(file);
  for (std::string_view rest = text; !rest.empty();) {
    const Field length = {0, take(rest, 8)};
    EXPECT_EQ((Field{0, take(rest, 4)}.as<std::uint32_t>()), masked_crc(length.bytes));
    events.push_back(take(rest, length.as<std::uint64_t>()));
    EXPECT_EQ((Field{0, take(rest, 4)}.as<std::uint32_t>()), masked_crc(events.back()));
  }
  return events;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

struct EventFiles : ::testing::Test {
  testing::TemporaryFolder folder;
  std::string events = folder / "tensorboard";
};

TEST(Crc32c, HasTheValuesOfRfc3720) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST_F(EventFiles, HoldNumbersTextsAndHparams) {
  TrackedSession session("tensorboard", {}, description_in(folder.path()));
  session.log(300, {{"loss", 0.1}, {"tokens", std::int64_t{768}}, {"phase", "warm-up"}, {"norm", NAN}});
  EXPECT_EQ(session.end(RunStatus::killed), Told{});
  const std::vector<std::string> files = files_in(events);
  ASSERT_EQ(files.size(), 1U);
  const std::vector<std::string> all = events_in(files.front());
  EXPECT_EQ(field_at(all.front(), {3})->bytes, "brain.Event:2");
  std::vector<std::string> tags;
  for (const std::string& event : all) {
    EXPECT_GT(field_at(event, {1})->as_double(), 1.6e9);  // after 2020
    if (const auto summary = field_at(event, {5}))
      for (const Field& value : fields_of(summary->bytes)) tags.push_back(field_at(value.bytes, {1})->bytes);
  }
  const std::vector<std::string> expected = {
      "_hparams_/session_start_info", "keel.version", "config", "phase", "loss", "tokens", "norm",
      "_hparams_/session_end_info"};
  EXPECT_EQ(tags, expected);
  const std::string& record = all[all.size() - 2];
  EXPECT_EQ(field_at(record, {2})->as_varint(), 300U);
  EXPECT_EQ(field_at(record, {5, 1, 2})->as_float(), 0.1F);
  // SessionEndInfo's status: failure, as TensorBoard has no word for killed.
  EXPECT_EQ(field_at(all.back(), {5, 1, 9, 1, 2, 4, 1})->as_varint(), 2U);
}

// By the field numbers of TensorBoard's plugin_data.proto, of Summary, TensorProto, TensorShapeProto and Struct's
// Value.
TEST_F(EventFiles, HoldSettingsAndTextsAsVectorsOfOneWithAPluginsData) {
  TrackedSession session("tensorboard", {}, description_in(folder.path()));
  session->text("note", "words");
  EXPECT_EQ(session.end(), Told{});
  const std::vector<std::string> all = events_in(files_in(events).front());
  std::map<std::string, std::string> values;  // by tag
  for (const std::string& event : all)
    if (const auto value = field_at(event, {5, 1})) values[field_at(value->bytes, {1}).value().bytes] = value->bytes;

  const std::string &note = values["note"], &start = values["_hparams_/session_start_info"],
                    &end = values["_hparams_/session_end_info"];
  constexpr std::uint64_t kFloat = 1, kString = 7;  // of DataType
  for (const auto& [value, plugin, type] :
       {std::tuple(note, "text", kString), {start, "hparams", kFloat}, {end, "hparams", kFloat}}) {
    EXPECT_EQ(field_at(value, {9, 1, 1}).value().bytes, plugin);
    EXPECT_EQ(field_at(value, {8, 1}).value().as_varint(), type);
    EXPECT_EQ(field_at(value, {8, 2, 2, 1}).value().as_varint(), 1U) << "its shape";
    if (type == kFloat) { EXPECT_EQ(field_at(value, {8, 5}).value().as_float(), 0.0F); }
  }
  EXPECT_EQ(field_at(note, {8, 8}).value().bytes, "words");

  const std::string info = field_at(start, {9, 1, 2, 3}).value().bytes;
  std::map<std::string, std::string> settings;
  for (const Field& field : fields_of(info))
    if (field.number == 1)
      settings[field_at(field.bytes, {1}).value().bytes] = field_at(field.bytes, {2}).value().bytes;
  ASSERT_EQ(settings.size(), 4U);
  EXPECT_EQ(field_at(settings["seed"], {2}).value().as_double(), 1);
  EXPECT_EQ(field_at(settings["optimizer.lr"], {2}).value().as_double(), 3e-4);
  EXPECT_EQ(field_at(settings["optimizer.type"], {3}).value().bytes, "AdamW");
  EXPECT_EQ(field_at(settings["cuda_graph"], {4}).value().as_varint(), 0U);
  EXPECT_EQ(field_at(info, {4}).value().bytes, "try") << "the group";
  EXPECT_GT(field_at(info, {5}).value().as_double(), 1.6e9) << "when it began";
  EXPECT_EQ(field_at(end, {9, 1, 2, 4, 1}).value().as_varint(), 1U) << "success";
  EXPECT_GE(field_at(end, {9, 1, 2, 4, 2}).value().as_double(), field_at(info, {5}).value().as_double());
}

TEST_F(EventFiles, GoOnInANewOneThatTakesLaterStepsBack) {
  for (int session = 0; session < 3; ++session)
    TrackedSession("tensorboard", {},
                   session == 0 ? description_in(folder.path()) : resumed_in(folder.path(), 10 * session))
        .end();
  const std::vector<std::string> files = files_in(events);
  ASSERT_EQ(files.size(), 3U);  // in the order of their names, though they are of one second
  for (std::uint64_t i = 0; i < files.size(); ++i) {
    const std::string second = events_in(files[i]).at(1);
    EXPECT_EQ(field_at(second, {7, 1}).has_value(), i > 0);
    if (i > 0) { EXPECT_EQ(field_at(second, {2})->as_varint(), 10 * i + 1); }
  }
}

TEST_F(EventFiles, ThatCannotBeMadeAreToldOnce) {
  write_text_file(events, "a file");
  const Told told = TrackedSession("tensorboard", {}, description_in(folder.path())).end();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("cannot make the folder"), std::string::npos) << told[0];
}

// Protobuf leaves fields of value 0 out.
TEST_F(EventFiles, HaveTheStepOfEveryEventButZero) {
  TrackedSession session("tensorboard", {}, description_in(folder.path()));
  for (const std::int64_t step : {1, 2, 127, 128, 16384}) session.log(step, {{"loss", 1.0}});
  EXPECT_EQ(session.end(), Told{});
  std::vector<std::int64_t> steps;
  for (const std::string& event : events_in(files_in(events).front())) {
    const auto step = field_at(event, {2});
    steps.push_back(step ? static_cast<std::int64_t>(step->as_varint()) : -1);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{-1, -1, -1, -1, 1, 2, 127, 128, 16384, -1}));
}

TEST(ProtobufMessages, AreTheBytesOfTheWireFormat) {
  using namespace std::string_view_literals;
  EXPECT_EQ(ProtobufMessage().add(1, std::int64_t{0}).bytes(), "\x08\x00"sv);
  EXPECT_EQ(ProtobufMessage().add(1, std::int64_t{127}).bytes(), "\x08\x7f"sv);
  EXPECT_EQ(ProtobufMessage().add(1, std::int64_t{128}).bytes(), "\x08\x80\x01"sv);
  EXPECT_EQ(ProtobufMessage().add(1, std::int64_t{300}).bytes(), "\x08\xac\x02"sv);
  EXPECT_EQ(ProtobufMessage().add(1, std::int64_t{-1}).bytes(), "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv);
  EXPECT_EQ(ProtobufMessage().add(16, std::int64_t{1}).bytes(), "\x80\x01\x01"sv);
  EXPECT_EQ(ProtobufMessage().add(3, 1.0).bytes(), "\x19\x00\x00\x00\x00\x00\x00\xf0\x3f"sv);
  EXPECT_EQ(ProtobufMessage().add(3, 1.0F).bytes(), "\x1d\x00\x00\x80\x3f"sv);
  EXPECT_EQ(ProtobufMessage().add(2, "abc"sv).bytes(),
            "\x12\x03"
            "abc"sv);
  EXPECT_EQ(ProtobufMessage().add(2, ProtobufMessage().add(1, ""sv)).add(1, std::int64_t{5}).bytes(),
            "\x12\x02\x0a\x00\x08\x05"sv);
}

// Every byte has its place in the table.
TEST(Crc32c, IsThatOfThePolynomialForEveryByte) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = {static_cast<char>(byte), 'x', static_cast<char>(255 - byte)};
    const std::string record = tfrecord(text);
    EXPECT_EQ(record.substr(0, 8), std::string("\x03\0\0\0\0\0\0\0", 8));
    EXPECT_EQ((Field{0, record.substr(8, 4)}.as<std::uint32_t>()), masked_crc(record.substr(0, 8)));
    EXPECT_EQ((Field{0, record.substr(15)}.as<std::uint32_t>()), masked_crc(text)) << byte;
  }
}

}  // namespace
}  // namespace keel
