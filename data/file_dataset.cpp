#include "keel/data/file_dataset.h"

#include <algorithm>

#include "keel/data/gzip.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/utf8.h"
#include "keel/runtime/xxh3.h"

namespace keel {
namespace {

void check_utf8(const std::string& path, std::string_view text) {
  const std::size_t at = find_bad_utf8(text);
  if (at == std::string_view::npos) return;
  const std::string_view before = text.substr(0, at);
  const std::size_t feed = before.rfind('\n');
  throw Error(concat("'", path, "', line ", std::ranges::count(before, '\n') + 1, ", byte ",
                     feed == std::string_view::npos ? at + 1 : at - feed, ": this is not UTF-8"));
}

std::string contents_of(const std::string& path) {
  std::string text;
  if (is_gzip(path)) {
    decompress(path, [&](std::string_view piece) { text += piece; });
  } else {
    const InputFile file(path);
    text.resize(file.size());
    file.read(0, std::as_writable_bytes(std::span(text)));
  }
  check_utf8(path, text);
  return text;
}

Hash128 hash_of(std::string_view text) { return xxh3(std::as_bytes(std::span(text))); }

class FileDataset final : public Dataset {
 public:
  FileDataset(std::vector<std::string> paths, const FilesOptions& options) : paths_(std::move(paths)) {
    Xxh3 all;
    for (const std::string& path : paths_) {
      const std::string text = contents_of(path);
      hashes_.push_back(hash_of(text));
      lengths_.push_back(std::ssize(text));
      const Hash128 of_path = hash_of(path);
      all.add(std::as_bytes(std::span(&of_path, 1)));
      all.add(std::as_bytes(std::span(&hashes_.back(), 1)));
      if (options.progress) options.progress(hashes_.size(), paths_.size());
    }
    hash_ = all.hash();
  }
  std::int64_t size() const override { return std::ssize(paths_); }
  std::int64_t length(std::int64_t i) const override {
    check_index(i);
    return lengths_[static_cast<std::size_t>(i)];
  }
  Example example(std::int64_t i) const override {
    check_index(i);
    const std::string& path = paths_[static_cast<std::size_t>(i)];
    std::string text = contents_of(path);
    KEEL_CHECK(hash_of(text) == hashes_[static_cast<std::size_t>(i)], "'", path, "' has changed since it was opened");
    std::vector<Example::Field> fields;
    fields.emplace_back("name", path);
    fields.emplace_back("text", std::move(text));
    return Example(std::move(fields));
  }
  std::string fingerprint() const override { return concat("files ", hash_.high, ' ', hash_.low); }

 private:
  std::vector<std::string> paths_;
  std::vector<Hash128> hashes_;
  std::vector<std::int64_t> lengths_;  // bytes
  Hash128 hash_;
};

}  // namespace

DatasetPtr open_files(std::vector<std::string> paths, const FilesOptions& options) {
  return std::make_shared<FileDataset>(std::move(paths), options);
}

}  // namespace keel
