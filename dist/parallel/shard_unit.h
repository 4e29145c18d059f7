#pragma once
// One unit of a model on one rank: its parameters and its gradient, each whole or in part, and the collectives that
// move them.

#include <cstdint>
#include <memory>
#include <string_view>

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

  std::size_t number() const { return site_.number; }
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

  // Adds the part of each parameter in a tensor of the owned elements, as "<prefix><parameter>"; without numbers where
  // this rank owns none of it.
  void add_parts(TensorParts& parts, std::string_view prefix, const Tensor& owned) const {
    add_parts(parts, prefix, owned, split_.owned);
  }
  // The same of a tensor of the elements `span`.
  void add_parts(TensorParts& parts, std::string_view prefix, const Tensor& values, Span span) const;
  // Writes 0 to what of such a tensor belongs to no parameter: no checkpoint has it.
  void clear_gaps(const Tensor& owned) const { buffer_.clear_gaps(split_.owned.begin, owned); }
  // The part of a tensor of the owned elements that this rank counts in norms and sums: its shard, without padding.
  Tensor counted(const Tensor& owned) const { return counted(owned, split_.shard); }
  // The shard of one of this rank's virtual ranks; shard() where it has but one.
  Span virtual_shard(int number) const { return part(split_.shard, split_.virtual_ranks, number); }
  // Adds the squares of that shard's gradient, without padding, to the state of a step, as kernels::add_squares() does;
  // elements count from `before` plus the shard's begin. Of one that is kept as rows they are those of own_rows().
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
