#pragma once
// The ranks of a communicator, as forward passes see them.

#include "keel/dist/comm/communicator.h"
#include "keel/nn/rank_group.h"

namespace keel {

class PassGroup final : public RankGroup {
 public:
  explicit PassGroup(Communicator& ranks) : ranks_(ranks) {}
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  bool any(bool mine) override;

 private:
  Communicator& ranks_;
};

}  // namespace keel
