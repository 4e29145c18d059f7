#include <algorithm>
#include <cstring>
#include <numeric>

#include "keel/data/columns_format.h"
#include "keel/data/crc32.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"
#include "keel/runtime/xxh3.h"

namespace keel {
namespace {

constexpr std::uint64_t kMostSchema = 16 << 20;

// What a file says of itself, checked as far as can be without reading rows.
class ColumnsLayout {
 public:
  explicit ColumnsLayout(const InputFile& file) {
    read_header(file);
    read_schema(file);
    read_directory(file);
  }

  const std::vector<Column>& columns() const { return columns_; }
  std::int64_t rows() const { return first_rows_.back(); }
  std::size_t block_of(std::int64_t row) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(first_rows_, row) - first_rows_.begin()) - 1;
  }
  std::int64_t first_row(std::size_t block) const { return first_rows_[block]; }
  std::uint32_t rows_of(std::size_t block) const {
    return static_cast<std::uint32_t>(first_rows_[block + 1] - first_rows_[block]);
  }
  const ChunkEntry& chunk(std::size_t block, std::size_t column) const {
    return chunks_[block * columns_.size() + column];
  }
  Hash128 hash() const { return hash_; }

 private:
  void read_header(const InputFile& file) {
    KEEL_CHECK(file.size() >= sizeof header_, "it has ", file.size(), " bytes, fewer than the header's ",
               sizeof header_);
    file.read(0, std::as_writable_bytes(std::span(&header_, 1)));
    KEEL_CHECK(std::string_view(header_.magic, sizeof header_.magic) == kColumnsMagic, "it does not begin with ",
               kColumnsMagic);
    KEEL_CHECK(header_.version == kColumnsVersion, "its version is ", header_.version, "; this program reads version ",
               kColumnsVersion);
    KEEL_CHECK(header_.crc == crc_of(header_), "its header is damaged: the CRC does not match");
    KEEL_CHECK(sizeof header_ <= header_.schema_at && header_.schema_at <= header_.directory_at &&
                   header_.directory_at <= file.size() && header_.directory_at - header_.schema_at <= kMostSchema,
               "it has ", file.size(), " bytes, and its header places columns at ", header_.schema_at,
               " and the directory at ", header_.directory_at, "; it is cut short or damaged");
  }

  static std::string bytes_at(const InputFile& file, std::uint64_t at, std::uint64_t end, std::uint32_t crc,
                              std::string_view what) {
    std::string bytes(static_cast<std::size_t>(end - at), '\0');
    file.read(at, std::as_writable_bytes(std::span(bytes)));
    KEEL_CHECK(crc32(std::as_bytes(std::span(bytes))) == crc, "its ", what,
               " is cut short or damaged: the CRC does not match");
    return bytes;
  }

  void read_schema(const InputFile& file) {
    const std::string text =
        bytes_at(file, header_.schema_at, header_.directory_at, header_.schema_crc, "list of columns");
    columns_ = columns_from(text);
    KEEL_CHECK(columns_.size() == header_.columns, "it lists ", columns_.size(), " columns, and its header says ",
               header_.columns);
  }

  void read_directory(const InputFile& file) {
    const std::uint64_t of_block = sizeof(BlockEntry) + columns_.size() * sizeof(ChunkEntry);
    const std::uint64_t bytes = file.size() - header_.directory_at;
    KEEL_CHECK(bytes % of_block == 0 && bytes / of_block == header_.blocks, "its directory has ", bytes, " bytes; ",
               header_.blocks, " blocks of ", columns_.size(), " columns need ", of_block, " each");
    const std::string text = bytes_at(file, header_.directory_at, file.size(), header_.directory_crc, "directory");
    hash_ = xxh3(std::as_bytes(std::span(text)));
    first_rows_.push_back(0);
    chunks_.resize(static_cast<std::size_t>(header_.blocks) * columns_.size());
    for (std::size_t block = 0; block < header_.blocks; ++block) {
      const char* at = text.data() + block * of_block;
      BlockEntry entry;
      std::memcpy(&entry, at, sizeof entry);
      KEEL_CHECK(1 <= entry.rows && entry.rows <= kMostBlockRows, "block ", block, " has ", entry.rows, " rows; 1 to ",
                 kMostBlockRows, " are possible");
      std::memcpy(&chunks_[block * columns_.size()], at + sizeof entry, of_block - sizeof entry);
      for (std::size_t column = 0; column < columns_.size(); ++column) {
        const ChunkEntry& chunk = this->chunk(block, column);
        KEEL_CHECK(
            sizeof header_ <= chunk.at && chunk.at <= header_.schema_at && chunk.bytes <= header_.schema_at - chunk.at,
            "column '", printable(columns_[column].name, 64), "' of block ", block, " lies at ", chunk.at, " with ",
            chunk.bytes, " bytes, not before the list of columns at ", header_.schema_at);
      }
      first_rows_.push_back(first_rows_.back() + entry.rows);
    }
    KEEL_CHECK(static_cast<std::uint64_t>(rows()) == header_.rows, "its blocks have ", rows(),
               " rows, and its header says ", header_.rows);
  }

  ColumnsHeader header_ = {};
  std::vector<Column> columns_;
  std::vector<std::int64_t> first_rows_;  // of each block, and of the end
  std::vector<ChunkEntry> chunks_;        // block by block
  Hash128 hash_;
};

// The bytes of one row as a value of the column, whose elements are T.
template <class T>
Value value_of(const Column& column, std::span<const std::byte> bytes) {
  if constexpr (std::is_same_v<T, char>) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  } else {
    const auto element = [&](std::size_t i) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof value);
      return value;
    };
    using Single = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
    using Several = std::conditional_t<std::is_floating_point_v<T>, Numbers, Integers>;
    if (column.form == ColumnForm::single) return static_cast<Single>(element(0));
    Several several;
    const std::size_t count = bytes.size() / sizeof(T);
    several.shape = column.form == ColumnForm::fixed ? column.shape : Dims{static_cast<std::int64_t>(count)};
    several.values.resize(count);
    for (std::size_t i = 0; i < count; ++i)
      several.values[i] = static_cast<typename decltype(several.values)::value_type>(element(i));
    return several;
  }
}

// The rows of one column in one block.
class ColumnChunk {
 public:
  ColumnChunk(const Column& column, std::uint32_t rows, std::span<const std::byte> bytes)
      : column_(column), element_(element_bytes(column.type)) {
    std::size_t values_at = 0;
    if (column.nullable) {
      present_ = bytes.data();
      values_at += (rows + 7) / 8;
    }
    if (has_offsets(column)) {
      offsets_at_ = values_at;
      values_at += (std::size_t{rows} + 1) * sizeof(std::uint32_t);
    }
    KEEL_CHECK(bytes.size() >= values_at, "it has ", bytes.size(), " bytes, too few for ", rows, " rows");
    bytes_ = bytes;
    values_ = bytes.subspan(values_at);
    const std::size_t count = has_offsets(column) ? offset(rows) : std::size_t{rows} * width();
    KEEL_CHECK(values_.size() == count * element_, "it has ", values_.size(), " bytes of values, and ", count, " of ",
               element_, " bytes belong there");
  }

  bool has(std::uint32_t row) const {
    return present_ == nullptr || (std::to_integer<unsigned>(present_[row / 8]) >> (row % 8) & 1u) != 0;
  }
  Value value(std::uint32_t row) const {
    const std::size_t begin = has_offsets(column_) ? offset(row) : row * width();
    const std::size_t end = has_offsets(column_) ? offset(row + 1) : begin + width();
    KEEL_CHECK(begin <= end && end * element_ <= values_.size(), "row ", row, " of it reaches from ", begin, " to ",
               end, " of ", values_.size() / element_);
    const std::span<const std::byte> bytes = values_.subspan(begin * element_, (end - begin) * element_);
    return with_element(column_.type, [&]<class T>(T) -> Value { return value_of<T>(column_, bytes); });
  }

 private:
  std::size_t width() const { return static_cast<std::size_t>(product(column_.shape)); }
  std::size_t offset(std::uint32_t row) const {
    std::uint32_t offset = 0;
    std::memcpy(&offset, bytes_.data() + offsets_at_ + row * sizeof offset, sizeof offset);
    return offset;
  }

  const Column& column_;
  std::size_t element_;
  const std::byte* present_ = nullptr;
  std::size_t offsets_at_ = 0;
  std::span<const std::byte> bytes_, values_;
};

// Calls f; what it throws then names the file.
template <class F>
auto naming_columns(const std::string& path, F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::io) throw;  // which does already
    throw Error(concat("'", path, "' is not a valid columnar file: "), error);
  }
}

class ColumnarDataset final : public Dataset {
 public:
  ColumnarDataset(const std::string& path, const ColumnsOptions& options)
      : file_(path), layout_(naming_columns(path, [&] { return ColumnsLayout(file_); })) {
    for (const std::string& field : options.fields) {
      const auto found = std::ranges::find(layout_.columns(), field, &Column::name);
      if (found == layout_.columns().end()) refuse_field(field);
      read_.push_back(static_cast<std::size_t>(found - layout_.columns().begin()));
    }
    if (read_.empty()) {
      read_.resize(layout_.columns().size());
      std::iota(read_.begin(), read_.end(), std::size_t{0});
    }
  }

  std::int64_t size() const override { return layout_.rows(); }
  Example example(std::int64_t i) const override { return std::move(examples(std::span(&i, 1)).front()); }

  std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
    for (const std::int64_t i : indices) check_index(i);
    std::vector<std::size_t> order(indices.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return indices[i]; });
    std::vector<std::vector<Example::Field>> fields(indices.size());
    std::vector<std::byte> buffer;
    for (std::size_t next = 0; next < order.size();) {
      const std::size_t block = layout_.block_of(indices[order[next]]), first = next;
      const std::int64_t end = layout_.first_row(block) + layout_.rows_of(block);
      while (next < order.size() && indices[order[next]] < end) ++next;
      const std::span<const std::size_t> wanted = std::span(order).subspan(first, next - first);
      for (const std::size_t column : read_) read_column(block, column, wanted, indices, buffer, fields);
    }
    std::vector<Example> all;
    all.reserve(fields.size());
    for (std::vector<Example::Field>& each : fields) all.emplace_back(std::move(each));
    return all;
  }

  std::int64_t length(std::int64_t i) const override {
    check_index(i);
    std::int64_t longest = 0;
    for (const std::size_t column : read_) longest = std::max(longest, length_in(column, i));
    return longest;
  }

  std::string fingerprint() const override {
    std::string text = concat("columns ", layout_.hash().high, ' ', layout_.hash().low);
    for (const std::size_t column : read_) {
      const std::string& name = layout_.columns()[column].name;
      text += concat(' ', name.size(), ' ', name);
    }
    return text;
  }

 private:
  [[noreturn]] void refuse_field(const std::string& field) const {
    std::string message = concat("'", file_.path(), "' has no field '", printable(field, 64), "'; it has ");
    for (const Column& column : layout_.columns())
      message += concat(&column == &layout_.columns().front() ? "" : ", ", printable(column.name, 64));
    throw Error(message);
  }

  // Adds the values of a column to the fields of the examples that are wanted of a block.
  void read_column(std::size_t block, std::size_t index, std::span<const std::size_t> wanted,
                   std::span<const std::int64_t> indices, std::vector<std::byte>& buffer,
                   std::vector<std::vector<Example::Field>>& fields) const {
    const Column& column = layout_.columns()[index];
    const ChunkEntry& entry = layout_.chunk(block, index);
    buffer.resize(entry.bytes);
    file_.read(entry.at, buffer);
    naming_columns(file_.path(), [&] {
      try {
        KEEL_CHECK(crc32(buffer) == entry.crc, "its CRC does not match");
        const ColumnChunk chunk(column, layout_.rows_of(block), buffer);
        for (const std::size_t i : wanted) {
          const auto row = static_cast<std::uint32_t>(indices[i] - layout_.first_row(block));
          if (chunk.has(row)) fields[i].emplace_back(column.name, chunk.value(row));
        }
      } catch (const Error& error) {
        throw Error(concat("column '", printable(column.name, 64), "' of rows ", layout_.first_row(block), " to ",
                           layout_.first_row(block) + layout_.rows_of(block) - 1, " is damaged: "),
                    error);
      }
    });
  }

  // Reads no more than two offsets, and takes them for what they are.
  std::int64_t length_in(std::size_t index, std::int64_t i) const {
    const Column& column = layout_.columns()[index];
    if (!has_offsets(column)) return product(column.shape);
    const std::size_t block = layout_.block_of(i);
    const auto row = static_cast<std::uint64_t>(i - layout_.first_row(block));
    const std::uint64_t bits = column.nullable ? (layout_.rows_of(block) + 7) / 8 : 0;
    const ChunkEntry& chunk = layout_.chunk(block, index);
    std::uint32_t offsets[2] = {};
    const std::uint64_t at = bits + row * sizeof(std::uint32_t);
    if (at + sizeof offsets > chunk.bytes) return 0;
    file_.read(chunk.at + at, std::as_writable_bytes(std::span(offsets)));
    return std::int64_t{offsets[1]} - std::int64_t{offsets[0]};
  }

  InputFile file_;
  ColumnsLayout layout_;
  std::vector<std::size_t> read_;  // columns
};

}  // namespace

DatasetPtr open_columns(const std::string& path, const ColumnsOptions& options) {
  return std::make_shared<ColumnarDataset>(path, options);
}

std::vector<Column> columns_of(const std::string& path) {
  const InputFile file(path);
  return naming_columns(path, [&] { return ColumnsLayout(file).columns(); });
}

}  // namespace keel
