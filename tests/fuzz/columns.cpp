#include "keel/data/columns.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "keel/data/columns_format.h"
#include "keel/data/crc32.h"
#include "keel/data/example_bytes.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/target.h"

namespace keel::fuzz {
namespace {

constexpr std::int64_t kRows = 50;

// Of values that may be NaN.
std::string bytes_of(const Example& example) {
  std::string bytes;
  append_bytes(bytes, example);
  return bytes;
}

void read_rows(const std::string& path) {
  const DatasetPtr data = open_columns(path);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(std::min(kRows, data->size())));
  std::iota(numbers.begin(), numbers.end(), 0);
  std::ranges::reverse(numbers);
  for (const std::int64_t number : numbers) (void)data->length(number);
  const std::vector<Example> all = data->examples(numbers);
  for (std::size_t i = 0; i < all.size(); ++i)
    require(bytes_of(all[i]) == bytes_of(data->example(numbers[i])), "an example alone is the one among others");
  if (data->size() > kRows) (void)data->example(data->size() - 1);
}

// The same file with the CRCs that it should have, so that what lies behind them is tried, too.
std::string with_crcs(std::string_view bytes) {
  std::string file(bytes);
  ColumnsHeader header;
  if (file.size() < sizeof header) return file;
  std::memcpy(&header, file.data(), sizeof header);
  const auto crc = [&](std::uint64_t begin, std::uint64_t end) {
    if (begin > end || end > file.size()) return 0u;
    return crc32(std::as_bytes(std::span(file).subspan(begin, end - begin)));
  };
  const std::uint64_t of_block = sizeof(BlockEntry) + std::uint64_t{header.columns} * sizeof(ChunkEntry);
  for (std::uint64_t at = header.directory_at; at < file.size() && of_block <= file.size() - at; at += of_block) {
    for (std::uint64_t entry = at + sizeof(BlockEntry); entry < at + of_block; entry += sizeof(ChunkEntry)) {
      ChunkEntry chunk;
      std::memcpy(&chunk, file.data() + entry, sizeof chunk);
      chunk.crc = chunk.at > file.size() ? 0 : crc(chunk.at, chunk.at + chunk.bytes);
      std::memcpy(file.data() + entry, &chunk, sizeof chunk);
    }
  }
  header.schema_crc = crc(header.schema_at, header.directory_at);
  header.directory_crc = crc(header.directory_at, file.size());
  header.crc = crc_of(header);
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

}  // namespace

bool columns(std::string_view bytes) {
  const bool as_it_is = accepts([&] { read_rows(write_scratch("columns", bytes)); });
  const bool with_seals = accepts([&] { read_rows(write_scratch("columns", with_crcs(bytes))); });
  return as_it_is || with_seals;
}

}  // namespace keel::fuzz
