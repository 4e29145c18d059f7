#include "keel/data/map.h"

#include <algorithm>

#include "keel/data/example_bytes.h"
#include "keel/data/map_cache.h"
#include "keel/data/walk.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::int64_t kGroup = 64;  // counts that are added up

// Calls put(i, what becomes of example i) for each example in order; f is called by several threads.
void map_all(const Dataset& below, const MapFunction& f,
             const std::function<void(const std::vector<Example>& made)>& put) {
  std::vector<std::vector<Example>> made(kWalkRound);
  walk(
      below,
      [&](std::int64_t first, const std::vector<Example>& examples) {
        for (std::int64_t i = first; i < first + std::ssize(examples); ++i)
          made[static_cast<std::size_t>(i % kWalkRound)] = f(examples[static_cast<std::size_t>(i - first)], i);
      },
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) put(made[static_cast<std::size_t>(i % kWalkRound)]);
      });
}

class MappedDataset final : public Dataset {
 public:
  MappedDataset(DatasetPtr below, MapFunction f, std::string fingerprint)
      : below_(std::move(below)), f_(std::move(f)), fingerprint_(std::move(fingerprint)) {
    map_all(*below_, f_, [&](const std::vector<Example>& made) {
      if (std::ssize(counts_) % kGroup == 0) sums_.push_back(size_);
      counts_.push_back(static_cast<std::uint32_t>(made.size()));
      size_ += std::ssize(made);
    });
  }

  std::int64_t size() const override { return size_; }
  std::string fingerprint() const override { return fingerprint_; }
  Example example(std::int64_t i) const override { return std::move(examples(std::span(&i, 1)).front()); }

  std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
    std::vector<Place> places;
    std::vector<std::int64_t> sources;  // the same one once where it follows itself
    for (const std::int64_t i : indices) {
      places.push_back(place_of(i));
      if (sources.empty() || sources.back() != places.back().source) sources.push_back(places.back().source);
    }
    const std::vector<Example> examples = below_->examples(sources);
    std::vector<Example> all;
    std::vector<Example> made;
    std::size_t next = 0;
    for (const Place& place : places) {
      if (next == 0 || sources[next - 1] != place.source) {
        made = f_(examples[next], place.source);
        ++next;
      }
      KEEL_CHECK(std::ssize(made) == counts_[static_cast<std::size_t>(place.source)], "the map makes ", made.size(),
                 " examples of example ", place.source, ", and made ", counts_[static_cast<std::size_t>(place.source)],
                 " before; it must be a pure function");
      all.push_back(made[static_cast<std::size_t>(place.part)]);
    }
    return all;
  }

 private:
  struct Place {
    std::int64_t source, part;
  };

  Place place_of(std::int64_t i) const {
    check_index(i);
    const auto behind = std::ranges::upper_bound(sums_, i);
    std::int64_t source = (behind - sums_.begin() - 1) * kGroup, part = i - *(behind - 1);
    for (; part >= counts_[static_cast<std::size_t>(source)]; ++source)
      part -= counts_[static_cast<std::size_t>(source)];
    return {source, part};
  }

  DatasetPtr below_;
  MapFunction f_;
  std::string fingerprint_;
  std::vector<std::int64_t> sums_;     // examples made before each group of sources
  std::vector<std::uint32_t> counts_;  // made of each source
  std::int64_t size_ = 0;
};

class EachMapped final : public Dataset {
 public:
  EachMapped(DatasetPtr below, std::function<Example(const Example&, std::int64_t)> f, std::string fingerprint)
      : below_(std::move(below)), f_(std::move(f)), fingerprint_(std::move(fingerprint)) {}
  std::int64_t size() const override { return below_->size(); }
  Example example(std::int64_t i) const override { return f_(below_->example(i), i); }
  std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
    std::vector<Example> all = below_->examples(indices);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = f_(all[i], indices[i]);
    return all;
  }
  std::int64_t length(std::int64_t i) const override { return longest_field(example(i)); }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  DatasetPtr below_;
  std::function<Example(const Example&, std::int64_t)> f_;
  std::string fingerprint_;
};

}  // namespace

DatasetPtr map(DatasetPtr below, MapFunction f, const std::string& version, const std::string& cache_folder) {
  KEEL_CHECK(below != nullptr && f != nullptr, "a map needs a data set and a function");
  const std::string fingerprint = concat("map ", version.size(), ' ', version, " of ", below->fingerprint());
  if (cache_folder.empty()) return std::make_shared<MappedDataset>(std::move(below), std::move(f), fingerprint);
  return MapCache::open(cache_folder, fingerprint, [&](const MapCache::Put& put) {
    map_all(*below, f, [&](const std::vector<Example>& made) {
      for (const Example& example : made) put(example);
    });
  });
}

DatasetPtr map_each(DatasetPtr below, std::function<Example(const Example& example)> f, const std::string& version) {
  KEEL_CHECK(f != nullptr, "a map needs a data set and a function");
  return map_numbered(
      std::move(below), [f = std::move(f)](const Example& example, std::int64_t /*i*/) { return f(example); }, version);
}

DatasetPtr map_numbered(DatasetPtr below, std::function<Example(const Example& example, std::int64_t i)> f,
                        const std::string& version) {
  KEEL_CHECK(below != nullptr && f != nullptr, "a map needs a data set and a function");
  std::string fingerprint = concat("map each ", version.size(), ' ', version, " of ", below->fingerprint());
  return std::make_shared<EachMapped>(std::move(below), std::move(f), std::move(fingerprint));
}

}  // namespace keel
