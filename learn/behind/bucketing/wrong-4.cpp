// says: Backward stands still meanwhile
#include <algorithm>
#include <cstdint>
#include <vector>

#include "learn/given/buckets.h"

struct Bucket {
  std::vector<int> parameters;
  std::vector<float> packed;
  int missing = 0;
};

class Buckets : public learn::Reducer {
 public:
  Buckets(learn::Group& group, std::vector<learn::Out> gradients, std::int64_t bytes)
      : group_(group), gradients_(std::move(gradients)), bucket_of_(gradients_.size()) {
    std::int64_t used = 0;
    for (int p = static_cast<int>(gradients_.size()) - 1; p >= 0; --p) {
      const std::int64_t size = 4 * gradient(p).size();
      if (buckets_.empty() || used + size > bytes) buckets_.emplace_back(), used = 0;
      used += size;
      buckets_.back().parameters.push_back(p);
      bucket_of_[static_cast<std::size_t>(p)] = buckets_.size() - 1;
    }
    reset();
  }

  void arrived(int parameter) override {
    --buckets_[bucket_of_[static_cast<std::size_t>(parameter)]].missing;
    for (; work_.size() < buckets_.size() && buckets_[work_.size()].missing == 0;) {
      Bucket& bucket = buckets_[work_.size()];
      bucket.packed.clear();
      for (const int p : bucket.parameters)
        bucket.packed.insert(bucket.packed.end(), gradient(p).begin(), gradient(p).end());
      work_.push_back(group_.all_reduce(learn::row(bucket.packed)));
      work_.back().wait();
    }
  }
  void finish() override {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      work_[b].wait();
      const float* from = buckets_[b].packed.data();
      for (const int p : buckets_[b].parameters)
        for (float& g : gradient(p)) g = *from++;
    }
    reset();
  }

 private:
  learn::Out gradient(int p) const { return gradients_[static_cast<std::size_t>(p)]; }
  void reset() {
    work_.clear();
    for (Bucket& bucket : buckets_) bucket.missing = static_cast<int>(bucket.parameters.size());
  }

  learn::Group& group_;
  std::vector<learn::Out> gradients_;
  std::vector<std::size_t> bucket_of_;
  std::vector<Bucket> buckets_;
  std::vector<learn::Work> work_;
};

std::unique_ptr<learn::Reducer> make_buckets(learn::Group& group, std::vector<learn::Out> gradients,
                                             std::int64_t bytes) {
  return std::make_unique<Buckets>(group, std::move(gradients), bytes);
}
