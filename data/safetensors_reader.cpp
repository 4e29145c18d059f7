#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>

#include "keel/data/safetensors.h"
#include "keel/data/safetensors_format.h"
#include "keel/runtime/json_events.h"

namespace keel {
namespace {

namespace format = safetensors;

// Follows the JSON as it is read: the format has one fixed shape, so whatever departs from it is refused
// at its first token and no document, however deep or large, is ever built.
class HeaderReader final : public JsonEvents {
 public:
  std::vector<SafetensorsEntry> entries;  // offsets count from the first data byte
  std::unordered_map<std::string, std::size_t> index;
  Metadata metadata;

  void key(std::string& name) override {
    if (level_ == Level::header) {
      KEEL_CHECK(name == format::kMetadataKey ? !has_metadata_ : index.emplace(name, entries.size()).second, "'", name,
                 "' appears twice");
      name_ = name;
    } else if (level_ == Level::tensor) {
      field_ = field_named(name);
      KEEL_CHECK(!seen(field_), where(), " has '", name, "' twice");
      seen(field_) = true;
    } else {
      KEEL_CHECK(metadata.emplace(name, "").second, "the metadata have '", name, "' twice");
      name_ = name;
    }
  }

  void begin_object() override {
    if (level_ == Level::outside) {
      level_ = Level::header;
    } else if (level_ == Level::header && name_ == format::kMetadataKey) {
      has_metadata_ = true;
      level_ = Level::metadata;
    } else if (level_ == Level::header) {
      level_ = Level::tensor;
      seen_ = {};
      extents_.clear();
      entries.emplace_back().name = name_;
    } else {
      unexpected("an object");
    }
  }

  void end_object() override {
    if (level_ == Level::tensor) finish_tensor();
    level_ = level_ == Level::header ? Level::outside : Level::header;
  }

  void begin_array() override {
    if (level_ != Level::tensor || field_ == Field::dtype) unexpected("a list");
    level_ = Level::list;
  }

  void end_array() override { level_ = Level::tensor; }

  void whole_number(std::uint64_t value) override {
    if (level_ != Level::list) unexpected("a number");
    if (field_ == Field::shape) {
      KEEL_CHECK(extents_.size() < kMaxRank, where(), " has more than ", kMaxRank, " dimensions, the most keel offers");
      KEEL_CHECK(value <= std::numeric_limits<std::int64_t>::max(), where(), " has an extent of ", value);
      extents_.push_back(static_cast<std::int64_t>(value));
    } else {
      KEEL_CHECK(offset_count_ < 2, where(), " has more than two data_offsets");
      offsets_[offset_count_++] = value;
    }
  }

  void string(std::string& value) override {
    if (level_ == Level::metadata) {
      metadata[name_] = value;
    } else if (level_ == Level::tensor && field_ == Field::dtype) {
      const auto* row = std::find_if(format::kDTypeNames.begin(), format::kDTypeNames.end(),
                                     [&](const format::DTypeName& known) { return known.name == value; });
      KEEL_CHECK(row != format::kDTypeNames.end(), where(), " has dtype '", value,
                 "'; known are F32 BF16 F16 F64 I32 I64 U8 BOOL");
      entries.back().dtype = row->dtype;
    } else {
      unexpected("a text");
    }
  }

  void negative_number(std::int64_t) override { unexpected("a negative number"); }
  void real_number(double, const std::string& written) override { unexpected("the number " + written); }
  void null() override { unexpected("null"); }
  void boolean(bool) override { unexpected("a boolean"); }

 private:
  enum class Level { outside, header, metadata, tensor, list };
  enum class Field { dtype, shape, data_offsets };

  bool& seen(Field field) { return seen_[static_cast<std::size_t>(field)]; }

  std::string where() const {
    if (level_ == Level::outside) return "the header";
    if (level_ == Level::metadata || name_ == format::kMetadataKey) return "the metadata";
    return concat("tensor '", name_, "'");
  }

  [[noreturn]] void unexpected(const std::string& what) const {
    const std::string_view place =
        level_ == Level::tensor || level_ == Level::list ? kFields[static_cast<int>(field_)] : std::string_view();
    throw Error(
        concat(where(), " has ", what, place.empty() ? "" : " in ", place, ", which the format does not allow"));
  }

  Field field_named(std::string_view name) const {
    for (std::size_t i = 0; i < kFields.size(); ++i)
      if (kFields[i] == name) return static_cast<Field>(i);
    throw Error(concat(where(), " has an unknown key '", name, "'"));
  }

  // The number of bytes of the shape; zero extents do not hide an overflow of the others.
  std::size_t bytes_of(const SafetensorsEntry& entry) const {
    std::int64_t bytes = static_cast<std::int64_t>(size_of(entry.dtype));
    for (const std::int64_t extent : entry.shape)
      KEEL_CHECK(!__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes), where(), " of shape ",
                 entry.shape, " has more bytes than can be counted");
    return product(entry.shape) == 0 ? 0 : static_cast<std::size_t>(bytes);
  }

  void finish_tensor() {
    for (std::size_t i = 0; i < kFields.size(); ++i) KEEL_CHECK(seen_[i], where(), " has no '", kFields[i], "'");
    KEEL_CHECK(offset_count_ == 2, where(), " needs two data_offsets, has ", offset_count_);
    KEEL_CHECK(offsets_[0] <= offsets_[1], where(), " ends at ", offsets_[1], ", before it begins at ", offsets_[0]);
    SafetensorsEntry& entry = entries.back();
    entry.shape = Dims(extents_);
    entry.offset = offsets_[0];
    entry.bytes = offsets_[1] - offsets_[0];
    const std::size_t needed = bytes_of(entry);
    KEEL_CHECK(entry.bytes == needed, where(), " of shape ", entry.shape, " and dtype ", entry.dtype, " needs ", needed,
               " bytes, but its data_offsets span ", entry.bytes);
    offset_count_ = 0;
  }

  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};  // as in Field

  Level level_ = Level::outside;
  Field field_ = Field::dtype;
  std::string name_;  // of the tensor, or the key of the metadata
  std::array<bool, 3> seen_ = {};
  std::vector<std::int64_t> extents_;
  std::array<std::size_t, 2> offsets_ = {};
  std::size_t offset_count_ = 0;
  bool has_metadata_ = false;
};

// Returns the JSON text, after the checks that need no parsing.
std::string_view header_of(std::string_view file) {
  KEEL_CHECK(file.size() >= format::kLengthBytes, "it has ", file.size(), " bytes, fewer than the ",
             format::kLengthBytes, " of the header's length");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  KEEL_CHECK(length <= format::kMaxHeaderBytes, "its first 8 bytes give a header of ", length, " bytes, more than the ",
             format::kMaxHeaderBytes, " that the format allows");
  const std::string_view rest = file.substr(format::kLengthBytes);
  KEEL_CHECK(length <= rest.size(), "its header should have ", length, " bytes, but only ", rest.size(),
             " follow: it is truncated");
  KEEL_CHECK(length > 0 && rest[0] == '{', "its header does not begin with '{'");
  return rest.substr(0, length);
}

// The tensors must cover the data exactly: `entries` are sorted by their place.
void check_layout(const std::vector<SafetensorsEntry>& entries, std::size_t data_bytes) {
  std::size_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    KEEL_CHECK(entry.offset >= end, "tensor '", entry.name, "' begins at data byte ", entry.offset,
               ", inside the tensor before it, which ends at ", end);
    KEEL_CHECK(entry.offset == end, "data bytes ", end, " to ", entry.offset, ", before tensor '", entry.name,
               "', belong to no tensor");
    end += entry.bytes;
  }
  KEEL_CHECK(end <= data_bytes, "its tensors need ", end, " data bytes, but ", data_bytes,
             " are there: it is truncated");
  KEEL_CHECK(end == data_bytes, "its last ", data_bytes - end, " bytes belong to no tensor");
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : mapping_(std::make_shared<const MappedFile>(path, Mapping::copy_on_write)) {
  try {
    const std::string_view header = header_of(mapping_->text());
    HeaderReader reader;
    try {
      read_json(header, reader);
    } catch (const JsonError& error) { throw Error("the header is not valid JSON: ", error); }
    entries_ = std::move(reader.entries);
    metadata_ = std::move(reader.metadata);
    std::sort(entries_.begin(), entries_.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
      return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
    });
    const std::size_t data_begin = format::kLengthBytes + header.size();
    check_layout(entries_, mapping_->size() - data_begin);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      entries_[i].offset += data_begin;
      index_.emplace(entries_[i].name, i);
    }
  } catch (const Error& error) { throw Error(concat("'", path, "' is not a valid safetensors file: "), error); }
}

const SafetensorsEntry& SafetensorsFile::entry(std::string_view name) const {
  if (const auto found = index_.find(std::string(name)); found != index_.end()) return entries_[found->second];
  std::vector<std::string_view> names;
  for (const SafetensorsEntry& entry : entries_) names.push_back(entry.name);
  const std::string near = nearest(name, names);
  throw Error(concat("'", path(), "' holds no tensor '", name, "'",
                     near.empty() ? "" : concat("; the nearest name is '", near, "'")));
}

Tensor SafetensorsFile::tensor(std::string_view name, const Context& context, Purpose purpose) const {
  const SafetensorsEntry& found = entry(name);
  Tensor copy = empty(context, found.shape, found.dtype, purpose);
  if (found.bytes != 0) std::memcpy(copy.raw(), mapping_->bytes().data() + found.offset, found.bytes);
  return copy;
}

Tensor SafetensorsFile::view(std::string_view name, const Context& context) const {
  const SafetensorsEntry& found = entry(name);
  if (found.bytes == 0 || found.offset % size_of(found.dtype) != 0) return tensor(name, context);
  return from_external(context, mapping_->writable() + found.offset, found.shape, dense_strides(found.shape),
                       found.dtype, [keep = mapping_](void*) {});
}

std::vector<NamedTensor> SafetensorsFile::views(const Context& context) const {
  std::vector<NamedTensor> all;
  for (const SafetensorsEntry& entry : entries_) all.emplace_back(entry.name, view(entry.name, context));
  return all;
}

}  // namespace keel
