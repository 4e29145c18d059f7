#pragma once
// Flat memory: the parameters of one unit as one dense range, with views for the model.
//
// Values and gradients of all parameters of a (unit, trainable) pair lie one behind the other, so that
// optimizers, norms and collectives walk plain memory. The layout is the same at every sharding stage.

#include <cstdint>
#include <string>
#include <vector>

#include "keel/nn/module.h"

namespace keel {

// The dtypes of a model's numbers in memory. The dtype in which gradients travel, the wire dtype, is the engine's.
struct PrecisionPolicy {
  DType parameter = DType::f32;  // values and activations
  DType gradient = DType::f32;   // accumulators that get more than one contribution; others have the parameter's dtype
  bool keeps_master = true;      // weights narrower than fp32 have an fp32 master; false where the optimizer needs none
  bool averages = false;         // weights of every dtype have a master, as an optimizer's weights are averages
  bool master() const { return averages || (keeps_master && (parameter == DType::bf16 || parameter == DType::f16)); }
  DType master_dtype() const { return parameter == DType::f64 ? DType::f64 : DType::f32; }

  static PrecisionPolicy of(DType parameter) { return {parameter, parameter == DType::f64 ? DType::f64 : DType::f32}; }
};

// One parameter inside a flat buffer.
struct Segment {
  std::string name;
  Dims shape;
  std::int64_t offset;  // elements from the start of the buffer
  std::int64_t numel;
  std::shared_ptr<Parameter::State> parameter;
  std::vector<std::int64_t> matrices = {};  // as in keel/nn/hidden_matrices.h: their rows; none where it is no matrix
};

struct FlatBuffer {
  std::string unit;  // path of the unit; "" is the root
  bool trainable = true;
  std::vector<Segment> segments;
  std::int64_t numel = 0;   // up to the end of the last segment
  std::int64_t padded = 0;  // elements in memory: numel rounded up to kFlatAlignment and to whole shards
  bool tied = false;        // a forward pass uses one of the parameters several times, or in several places
  std::int64_t uses = 1;    // of the unit's module in a forward pass
  // One table alone, whose gradient is kept as rows of `row_dtype`. Shards have whole rows.
  bool sparse = false;
  DType row_dtype = DType::f32;
  Tensor values;    // (padded), the policy's parameter dtype
  Tensor master;    // f32 (padded) where the policy has one; else undefined
  Tensor gradient;  // (padded) when trainable and not sparse

  // Lets the next contribution overwrite each gradient; touches no memory itself.
  void zero_grad();
  // Writes zeros where no contribution has landed, so that the whole gradient is valid. A gradient kept as rows has no
  // rows there.
  void complete_gradient();
  // `target`, dense, holds elements [begin, begin + target.numel()) of the buffer. Writes zeros to those that belong to
  // no parameter.
  void clear_gaps(std::int64_t begin, const Tensor& target) const;
};

inline constexpr std::int64_t kFlatAlignment = 128;  // elements

struct MaterializeOptions {
  PrecisionPolicy policy = {};
  std::uint64_t seed = 1;
  bool accumulates = false;  // more than one backward between steps, so every gradient is an accumulator
};

// The buffers of a model without any memory, in visiting order of their units; each can be cut into `shards` equal
// shards. A parameter that occurs in several places belongs to the root unit. One whose gradient is kept as rows has a
// buffer of its own. Parameters of at least `block` elements begin at a multiple of it, and so does each shard, so that
// no cut goes through a block of any of them.
std::vector<FlatBuffer> lay_out(Module& model, int shards = 1, std::int64_t block = 1);
// Makes the parameters views of the buffer's values and gradient.
void attach_parameters(FlatBuffer& buffer);
// Writes the initial numbers of elements [begin, begin + target.numel()) of the buffer to `target`, dense; elements
// that belong to no parameter become 0.
void initialise(const FlatBuffer& buffer, std::uint64_t seed, std::int64_t begin, const Tensor& target);

// Gives every parameter and buffer of the model memory and its initial numbers, and returns the flat buffers. Values
// belong to the purposes parameter, gradient and optimizer (master).
std::vector<FlatBuffer> materialize(Module& model, const Context& context, const MaterializeOptions& options = {});

}  // namespace keel
