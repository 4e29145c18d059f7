#include "keel/data/kept_index.h"

#include <sys/stat.h>

#include <bit>
#include <cstddef>
#include <cstring>
#include <filesystem>

#include "keel/data/cache_folder.h"
#include "keel/runtime/error.h"
#include "keel/runtime/random.h"

namespace keel {

namespace {
constexpr std::uint64_t kNoLine = ~std::uint64_t{0};
}

struct KeptIndex::Header {
  char magic[8] = {'K', 'E', 'E', 'L', 'I', 'D', 'X', '2'};
  std::uint64_t bytes = 0;
  std::int64_t written = 0, changed = 0;
  std::uint64_t separator = 0, group_bytes = 0, groups = 0;
  std::int64_t lines = 0;
  std::uint64_t empty_at = kNoLine;  // LineIndex::empty_line()
  Hash128 of_file, of_index;
};

namespace {

static_assert(std::endian::native == std::endian::little, "indices hold little-endian numbers");

std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// The first `count` bytes of a header, and what comes behind it.
Hash128 hash_of(const void* header, std::size_t count, std::span<const std::byte> before,
                std::span<const std::byte> first) {
  Xxh3 hash;
  hash.add({static_cast<const std::byte*>(header), count});
  hash.add(before);
  hash.add(first);
  return hash.hash();
}

}  // namespace

KeptIndex::KeptIndex(LineIndex& index) : index_(index) {
  static_assert(sizeof(Header) == 104);
  struct stat status = {};
  if (index.file_.size() < index.options_.kept_from || ::stat(index.file_.path().c_str(), &status) != 0) return;
  written_ = nanoseconds(status.st_mtim);
  changed_ = nanoseconds(status.st_ctim);
  places_.push_back(concat(index.file_.path(), ".keel-index"));
  std::error_code failed;
  const std::string full = std::filesystem::absolute(index.file_.path(), failed).string();
  const std::string folder = folder_for_caches(index.options_.cache_folder);
  if (!failed && !folder.empty()) places_.push_back(concat(folder, '/', fnv1a64(full), ".keel-index"));
}

KeptIndex::Header KeptIndex::header() const {
  Header header;
  header.bytes = index_.file_.size();
  header.written = written_;
  header.changed = changed_;
  header.separator = static_cast<unsigned char>(index_.options_.separator);
  header.group_bytes = index_.group_bytes_;
  header.groups = (header.bytes + index_.group_bytes_ - 1) / index_.group_bytes_;
  return header;
}

bool KeptIndex::load() {
  for (const std::string& place : places_) {
    try {
      if (load_from(place)) return true;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::io) throw;  // not there, or not to be read: it is made again
    }
  }
  return false;
}

bool KeptIndex::load_from(const std::string& place) {
  const InputFile file(place);
  Header found;
  const Header wanted = header();
  const auto groups = static_cast<std::size_t>(wanted.groups);
  if (file.size() != sizeof found + 8 * (groups + 1) + 4 * groups) return false;
  file.read(0, std::as_writable_bytes(std::span(&found, 1)));
  if (std::memcmp(&found, &wanted, offsetof(Header, lines)) != 0) return false;
  std::vector<std::uint64_t> before(groups + 1);
  std::vector<std::uint32_t> first(groups);
  file.read(sizeof found, std::as_writable_bytes(std::span(before)));
  file.read(sizeof found + 8 * before.size(), std::as_writable_bytes(std::span(first)));
  if (found.of_index != hash_of(&found, offsetof(Header, of_index), bytes_of(before), bytes_of(first))) return false;
  index_.lines_before_ = std::move(before);
  index_.first_line_ = std::move(first);
  index_.lines_ = found.lines;
  index_.empty_at_ = found.empty_at == kNoLine ? std::nullopt : std::optional(found.empty_at);
  index_.hash_ = found.of_file;
  index_.kept_at_ = place;
  return true;
}

void KeptIndex::save() {
  Header made = header();
  made.lines = index_.lines_;
  made.empty_at = index_.empty_at_.value_or(kNoLine);
  made.of_file = index_.hash_;
  made.of_index =
      hash_of(&made, offsetof(Header, of_index), bytes_of(index_.lines_before_), bytes_of(index_.first_line_));
  for (const std::string& place : places_) {
    try {
      std::error_code ignored;
      if (&place != &places_.front())
        std::filesystem::create_directories(std::filesystem::path(place).parent_path(), ignored);
      AtomicFile file(place);
      file.write(std::as_bytes(std::span(&made, 1)));
      file.write(bytes_of(index_.lines_before_));
      file.write(bytes_of(index_.first_line_));
      file.commit();
      index_.kept_at_ = place;
      return;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::io) throw;  // the next place, or none: kept_at() tells
    }
  }
}

}  // namespace keel
