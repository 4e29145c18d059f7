#include "keel/dist/checkpoint/rank_parts.h"

#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "keel/dist/checkpoint/visibility.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPart = "part-", kJson = ".json";

std::string part_file(const std::string& folder, int rank) { return concat(folder, '/', part_name(rank)); }

}  // namespace

std::string part_name(int rank) { return concat(kPart, rank, kJson); }

std::optional<int> rank_of_part(std::string_view name) {
  if (!name.starts_with(kPart) || !name.ends_with(kJson) || name.size() < kPart.size() + kJson.size())
    return std::nullopt;
  int rank = 0;
  const char* end = name.data() + name.size() - kJson.size();
  const auto [stopped, error] = std::from_chars(name.data() + kPart.size(), end, rank);
  return error == std::errc() && stopped == end && rank >= 0 ? std::optional(rank) : std::nullopt;
}

void write_part(const std::string& folder, int rank, const Manifest& part) {
  write_text_file(part_file(folder, rank), part_text(part));
}

Manifest read_part(const std::string& folder, int rank) {
  const std::string path = part_file(folder, rank);
  return parse_part(read_text_file(path), path);
}

Manifest join_parts(const std::string& folder, int ranks) {
  ManifestJoin join;
  std::error_code code;
  for (int r = 0; r < ranks; ++r) {
    const std::string path = part_file(folder, r);
    if (!becomes_visible([&] { return fs::exists(path, code); }))
      throw Error(concat("'", path, "' does not appear; do all ranks see the same folder?"), ErrorKind::io);
    join.add(read_part(folder, r));
  }
  Manifest manifest = std::move(join).finish();
  for (const StoredFile& file : manifest.files) {
    const std::string path = concat(folder, '/', file.name);
    if (!becomes_visible([&] { return fs::file_size(path, code) == file.bytes && !code; }))
      throw Error(concat("'", path, "' does not appear with its ", file.bytes, " bytes"), ErrorKind::io);
  }
  for (int r = 0; r < ranks; ++r) fs::remove(part_file(folder, r), code);
  return manifest;
}

std::string commit_parts(AtomicFolder& made, int ranks, const Json& state) {
  Manifest manifest = join_parts(made.temporary(), ranks);
  manifest.state = state;
  write_text_file(concat(made.temporary(), '/', Manifest::kFile), manifest_text(manifest));
  made.commit(true);
  return disagreement(manifest);
}

}  // namespace keel
