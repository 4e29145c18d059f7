#pragma once
// One unit of a model on one rank: its parameters and its gradient, each whole or in part, and the collectives that
// move them.

#include <cstdint>
#include <memory>
#include <string>

#include "keel/dist/parallel/unit_gradient.h"
#include "keel/dist/parallel/unit_parameters.h"
#include "keel/dist/parallel/unit_split.h"
#include "keel/nn/tensor_parts.h"

namespace keel {

// The layout is the same in every stage: rank r's shard is part r of n equal parts of the padded unit. Of what the
// stage shards, a rank keeps its own shard only.
//
//             parameters           gradients                        master and optimizer state
//   stage 0   whole                whole                            whole
//   stage 1   whole                whole                            shard
//   stage 2   whole                shard; whole while backward runs shard
//   stage 3   shard; whole in use  as stage 2                       shard
//
// Where gradients are reduced after each backward pass, their sums over ranks are added up in a shard of their own in
// stages 0 and 1, too; stage 0 gathers it in the end.
//
// A table whose gradient is kept as rows has no memory for gradients: own_rows() holds the rows that this rank owns.
class ShardUnit {
 public:
  // `number`: of the unit in the engine.
  ShardUnit(FlatBuffer layout, const EngineSite& site, std::size_t number);
  ShardUnit(const ShardUnit&) = delete;
  ShardUnit& operator=(const ShardUnit&) = delete;

  const FlatBuffer& layout() const { return buffer_; }
  const UnitSplit& split() const { return split_; }
  bool trainable() const { return split_.trainable; }
  bool sparse() const { return buffer_.sparse; }
  Span shard() const { return split_.shard; }  // of this rank
  Span owned() const { return split_.owned; }  // what this rank updates: its shard, or everything (stage 0)

  UnitParameters& parameters() { return parameters_; }
  const UnitParameters& parameters() const { return parameters_; }
  UnitGradient& gradient() { return *gradient_; }  // of a trainable unit
  const UnitGradient& gradient() const { return *gradient_; }
  // Null where the unit is frozen or its gradient is kept as rows.
  Reducer* reducer() const { return gradient_ ? gradient_->reducer() : nullptr; }
  // Forgets the gradient that was added since the last step, if the unit is trained.
  void zero_grad() {
    if (gradient_) gradient_->zero();
  }

  // The owned part of a parameter, in a tensor of the owned elements; without numbers where this rank owns none of it.
  TensorPart part(const Segment& segment, std::string name, const Tensor& owned) const;
  // The same of a tensor of the elements `span`.
  static TensorPart part(const Segment& segment, std::string name, const Tensor& values, Span span);
  // The part of a tensor of the owned elements that this rank counts in norms and sums: its shard, without padding.
  Tensor counted(const Tensor& owned) const { return counted(owned, split_.shard); }
  // The shard of one of this rank's virtual ranks; shard() where it has but one.
  Span virtual_shard(int number) const { return keel::part(split_.shard, split_.virtual_ranks, number); }
  // The gradient of that shard, without padding, as the norm counts it; the values of own_rows() where it is kept as
  // rows.
  Tensor shard_gradient(int number = 0) const;
  // Adds its squares to the state of a step, as kernels::add_squares() does; elements count from `before` plus the
  // shard's begin.
  void add_squares(const Tensor& state, std::int64_t before, int number = 0) const;
  // Whether the rows that are looked up from now on count as used.
  void count_rows(bool counts) const;

 private:
  Tensor counted(const Tensor& owned, Span among) const;

  FlatBuffer buffer_;  // values and gradient may be without memory
  UnitSplit split_;
  UnitSite site_;  // with these
  UnitParameters parameters_;
  std::unique_ptr<UnitGradient> gradient_;
};

}  // namespace keel
