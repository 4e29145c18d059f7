#include "keel/trainer/trackers/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>

#include "keel/runtime/host_name.h"

namespace keel {
namespace {

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0U);
    table[i] = value;
  }
  return table;
}

template <class Number>
std::string little_endian(Number value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8U; }

// Field numbers of the messages.
namespace event {
constexpr int kTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace session_log {
constexpr int kStatus = 1;
constexpr std::int64_t kStart = 1;
}  // namespace session_log
namespace value {
constexpr int kTag = 1, kNumber = 2, kTensor = 8, kMetadata = 9;
}
namespace tensor {
constexpr int kType = 1, kShape = 2, kFloat = 5, kString = 8;
constexpr std::int64_t kFloats = 1, kStrings = 7;
}  // namespace tensor
namespace hparams {
constexpr int kStart = 3, kEnd = 4;                     // of HParamsPluginData
constexpr int kValues = 1, kGroup = 4, kStartTime = 5;  // of SessionStartInfo
constexpr int kStatus = 1, kEndTime = 2;                // of SessionEndInfo
constexpr std::int64_t kSuccess = 1, kFailure = 2;      // of Status
constexpr int kNumber = 2, kText = 3, kFlag = 4;        // of google.protobuf.Value
}  // namespace hparams

constexpr int kSummaryValue = 1;

ProtobufMessage vector_of_one(std::int64_t type) {
  ProtobufMessage dimension, shape;
  dimension.add(1, std::int64_t{1});
  shape.add(2, dimension);
  return ProtobufMessage().add(tensor::kType, type).add(tensor::kShape, shape);
}

ProtobufMessage plugin(std::string_view name, std::string_view content) {
  return ProtobufMessage().add(1, ProtobufMessage().add(1, name).add(2, content));
}

ProtobufMessage value_of(const Json& value) {
  ProtobufMessage message;
  if (value.is_boolean()) message.add(hparams::kFlag, std::int64_t{value.boolean()});
  else if (value.is_number()) message.add(hparams::kNumber, value.number());
  else message.add(hparams::kText, std::string_view(value.string()));
  return message;
}

// events.out.tfevents.<seconds>.<host>.<process>.0, behind every other one.
std::string new_file(const std::string& folder, double seconds) {
  constexpr std::string_view kPrefix = "events.out.tfevents.";
  std::string last;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix)) last = std::max(last, name);
  }
  for (auto stamp = static_cast<std::int64_t>(seconds);; ++stamp) {
    std::string name = fmt::format("{}{:010}.{}.{}.0", kPrefix, stamp, host_name(), ::getpid());
    if (name > last) return fmt::format("{}/{}", folder, name);
  }
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

std::string tfrecord(std::string_view bytes) {
  const std::string length = little_endian(std::uint64_t{bytes.size()});
  std::string record = length + little_endian(masked(crc32c(length)));
  record += bytes;
  return record + little_endian(masked(crc32c(bytes)));
}

void ProtobufMessage::add_varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
  bytes_ += static_cast<char>(value);
}

void ProtobufMessage::add_tag(int field, int wire_type) {
  add_varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire_type));
}

ProtobufMessage& ProtobufMessage::add(int field, double value) {
  add_tag(field, 1);
  bytes_ += little_endian(std::bit_cast<std::uint64_t>(value));
  return *this;
}
ProtobufMessage& ProtobufMessage::add(int field, float value) {
  add_tag(field, 5);
  bytes_ += little_endian(std::bit_cast<std::uint32_t>(value));
  return *this;
}
ProtobufMessage& ProtobufMessage::add(int field, std::int64_t value) {
  add_tag(field, 0);
  add_varint(static_cast<std::uint64_t>(value));
  return *this;
}
ProtobufMessage& ProtobufMessage::add(int field, std::string_view bytes) {
  add_tag(field, 2);
  add_varint(bytes.size());
  bytes_ += bytes;
  return *this;
}

EventFile::EventFile(const std::string& folder, double seconds, std::optional<std::int64_t> resumes_behind)
    : file_(new_file(folder, seconds)) {
  write_event(0, seconds, event::kFileVersion, "brain.Event:2");
  if (!resumes_behind) return;
  const ProtobufMessage start = ProtobufMessage().add(session_log::kStatus, session_log::kStart);
  write_event(*resumes_behind + 1, seconds, event::kSessionLog, start.bytes());
}

void EventFile::write_event(std::int64_t step, double seconds, int field, std::string_view bytes) {
  ProtobufMessage message;
  message.add(event::kTime, seconds);
  if (step != 0) message.add(event::kStep, step);
  message.add(field, bytes);
  file_.write(tfrecord(message.bytes()));
}

void EventFile::write_scalars(std::int64_t step, double seconds, const Scalars& scalars) {
  ProtobufMessage summary;
  for (const auto& [tag, number] : scalars)
    summary.add(
        kSummaryValue,
        ProtobufMessage().add(value::kTag, std::string_view(tag)).add(value::kNumber, static_cast<float>(number)));
  write_event(step, seconds, event::kSummary, summary.bytes());
}

void EventFile::write_text(std::int64_t step, double seconds, std::string_view tag, std::string_view text) {
  const ProtobufMessage one = ProtobufMessage()
                                  .add(value::kTag, tag)
                                  .add(value::kTensor, vector_of_one(tensor::kStrings).add(tensor::kString, text))
                                  .add(value::kMetadata, plugin("text", ""));
  write_event(step, seconds, event::kSummary, ProtobufMessage().add(kSummaryValue, one).bytes());
}

void EventFile::write_plugin_value(double seconds, std::string_view tag, int field, const ProtobufMessage& content) {
  const ProtobufMessage data = ProtobufMessage().add(field, content);
  const ProtobufMessage one = ProtobufMessage()
                                  .add(value::kTag, tag)
                                  .add(value::kTensor, vector_of_one(tensor::kFloats).add(tensor::kFloat, 0.0F))
                                  .add(value::kMetadata, plugin("hparams", data.bytes()));
  write_event(0, seconds, event::kSummary, ProtobufMessage().add(kSummaryValue, one).bytes());
}

void EventFile::write_hparams(double seconds, std::string_view group, const Json::Object& values) {
  ProtobufMessage info;
  for (const auto& [name, each] : values)  // entries of a map are messages of a key and a value
    info.add(hparams::kValues, ProtobufMessage().add(1, std::string_view(name)).add(2, value_of(each)));
  info.add(hparams::kGroup, group).add(hparams::kStartTime, seconds);
  write_plugin_value(seconds, "_hparams_/session_start_info", hparams::kStart, info);
}

void EventFile::write_end(double seconds, bool is_success) {
  const ProtobufMessage info = ProtobufMessage()
                                   .add(hparams::kStatus, is_success ? hparams::kSuccess : hparams::kFailure)
                                   .add(hparams::kEndTime, seconds);
  write_plugin_value(seconds, "_hparams_/session_end_info", hparams::kEnd, info);
}

}  // namespace keel
