#pragma once
// What a map has made of a data set, in a file.
//
// A header of 64 bytes; the examples as bytes; for each of them where it ends, how long it is and its hash (24 bytes).
// The header has a hash of what it belongs to, and of itself, and is written last.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "keel/data/dataset.h"
#include "keel/runtime/file.h"

namespace keel {

class MapCache final : public Dataset {
 public:
  // The cache of this fingerprint in the folder. Where there is none that is whole, `fill` is called with a function
  // that takes the examples in order.
  using Put = std::function<void(const Example& example)>;
  static std::shared_ptr<const MapCache> open(const std::string& folder, const std::string& fingerprint,
                                              const std::function<void(const Put& put)>& fill);

  std::int64_t size() const override { return size_; }
  Example example(std::int64_t i) const override;
  std::int64_t length(std::int64_t i) const override;
  std::string fingerprint() const override { return fingerprint_; }

 private:
  struct Header;
  struct Entry {
    std::uint64_t end;  // of the bytes, in the file
    std::int64_t length;
    std::uint64_t hash;
  };

  MapCache(const std::string& path, std::string fingerprint);
  bool is_whole();
  Entry entry(std::int64_t i) const;

  InputFile file_;
  std::string fingerprint_;
  std::int64_t size_ = 0;
};

}  // namespace keel
