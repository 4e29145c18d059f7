#pragma once
// TensorBoard's event files: records of TFRecord's framing, each of which holds an Event.
//
// An Event and what it holds are messages of protobuf (tensorboard/compat/proto/event.proto and summary.proto,
// plugins/hparams/plugin_data.proto). Of them keel writes a dozen fields, by the rules of protobuf's wire format, so
// that no build needs a compiler of messages or its library. TensorBoard's own reader is the test of it
// (tests/trackers/peers/tensorboard_reads).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/append_file.h"
#include "keel/runtime/json.h"

namespace keel {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
std::uint32_t crc32c(std::string_view bytes);
// length, CRC of the length, bytes, CRC of the bytes; the CRCs masked as TFRecord's readers expect.
std::string tfrecord(std::string_view bytes);

// One message: fields are appended in the order of calls.
class ProtobufMessage {
 public:
  ProtobufMessage& add(int field, double value);
  ProtobufMessage& add(int field, float value);
  ProtobufMessage& add(int field, std::int64_t value);
  ProtobufMessage& add(int field, std::string_view bytes);
  ProtobufMessage& add(int field, const ProtobufMessage& message) { return add(field, message.bytes()); }
  std::string_view bytes() const { return bytes_; }

 private:
  void add_varint(std::uint64_t value);
  void add_tag(int field, int wire_type);

  std::string bytes_;
};

class EventFile {
 public:
  // A new file in `folder`, with a name behind those of all event files there, as TensorBoard reads them in the order
  // of names. `resumes_behind`: what other files say of later steps does not count any more.
  EventFile(const std::string& folder, double seconds, std::optional<std::int64_t> resumes_behind);

  using Scalars = std::vector<std::pair<std::string, double>>;
  void write_scalars(std::int64_t step, double seconds, const Scalars& scalars);  // as fp32, as TensorBoard keeps them
  void write_text(std::int64_t step, double seconds, std::string_view tag, std::string_view text);
  // What HPARAMS shows of the run: numbers, flags and texts by name; and how it ended.
  void write_hparams(double seconds, std::string_view group, const Json::Object& values);
  void write_end(double seconds, bool is_success);

 private:
  void write_event(std::int64_t step, double seconds, int field, std::string_view bytes);
  void write_plugin_value(double seconds, std::string_view tag, int field, const ProtobufMessage& content);

  AppendFile file_;
};

}  // namespace keel
