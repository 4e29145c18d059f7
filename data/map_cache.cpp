#include "keel/data/map_cache.h"

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "keel/data/example_bytes.h"
#include "keel/runtime/error.h"
#include "keel/runtime/xxh3.h"

namespace keel {

struct MapCache::Header {
  char magic[8] = {'K', 'E', 'E', 'L', 'M', 'A', 'P', '1'};
  Hash128 of;  // the fingerprint
  std::uint64_t size = 0, entries_at = 0;
  Hash128 hash;  // of all before it
  std::uint64_t unused = 0;
};

namespace {

Hash128 hash_of_text(std::string_view text) { return xxh3(std::as_bytes(std::span(text))); }

template <class Header>
Hash128 hash_of_header(const Header& header) {
  return xxh3(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, hash)));
}

}  // namespace

std::shared_ptr<const MapCache> MapCache::open(const std::string& folder, const std::string& fingerprint,
                                               const std::function<void(const Put& put)>& fill) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  const std::string path = concat(folder, '/', hexadecimal(hash_of_text(fingerprint)), ".keel-map");
  if (std::filesystem::exists(path, failed)) {
    std::shared_ptr<MapCache> found(new MapCache(path, fingerprint));
    if (found->is_whole()) return found;
  }
  Header header;
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&header, 1)));
  std::vector<Entry> entries;
  std::string bytes;
  fill([&](const Example& example) {
    bytes.clear();
    append_bytes(bytes, example);
    file.write(bytes);
    entries.push_back({file.size(), longest_field(example), hash_of_text(bytes).low});
  });
  header.of = hash_of_text(fingerprint);
  header.size = entries.size();
  header.entries_at = file.size();
  header.hash = hash_of_header(header);
  file.write(std::as_bytes(std::span(entries)));
  file.rewrite(0, std::as_bytes(std::span(&header, 1)));
  file.commit();
  std::shared_ptr<MapCache> made(new MapCache(path, fingerprint));
  KEEL_CHECK(made->is_whole(), "'", path, "' is not what was written to it");
  return made;
}

MapCache::MapCache(const std::string& path, std::string fingerprint)
    : file_(path), fingerprint_(std::move(fingerprint)) {}

bool MapCache::is_whole() {
  static_assert(sizeof(Header) == 64 && sizeof(Entry) == 24);
  Header header;
  if (file_.size() < sizeof header) return false;
  file_.read(0, std::as_writable_bytes(std::span(&header, 1)));
  if (std::memcmp(header.magic, Header().magic, sizeof header.magic) != 0) return false;
  if (header.hash != hash_of_header(header) || header.of != hash_of_text(fingerprint_)) return false;
  size_ = static_cast<std::int64_t>(header.size);
  return header.entries_at + header.size * sizeof(Entry) == file_.size();
}

MapCache::Entry MapCache::entry(std::int64_t i) const {
  Entry entry = {sizeof(Header), 0, 0};  // the first one begins behind the header
  if (i < 0) return entry;
  const std::uint64_t at = file_.size() - static_cast<std::uint64_t>(size_ - i) * sizeof entry;
  file_.read(at, std::as_writable_bytes(std::span(&entry, 1)));
  return entry;
}

Example MapCache::example(std::int64_t i) const {
  check_index(i);
  const Entry own = entry(i), before = entry(i - 1);
  try {
    KEEL_CHECK(before.end <= own.end && own.end <= file_.size(), "its place is damaged");
    std::string bytes(static_cast<std::size_t>(own.end - before.end), '\0');
    file_.read(before.end, std::as_writable_bytes(std::span(bytes)));
    KEEL_CHECK(hash_of_text(bytes).low == own.hash, "its hash does not match");
    return example_from(bytes);
  } catch (const Error& error) {
    throw Error(concat("example ", i, " of the cache '", file_.path(), "' is damaged: "), error,
                "; remove the file, and it is made again");
  }
}

std::int64_t MapCache::length(std::int64_t i) const {
  check_index(i);
  return entry(i).length;
}

}  // namespace keel
