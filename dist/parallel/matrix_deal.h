#pragma once
// Which rank transforms which matrix, for optimizers that need whole ones.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "keel/dist/parallel/unit_split.h"

namespace keel {

// The group of a parameter, with the matrices that it consists of.
ParameterGroup group_of(const GroupRule& groups, const Segment& segment);

// A matrix, and the rank that transforms it.
struct DealtMatrix {
  std::size_t unit = 0, segment = 0;
  Span place = {};  // elements of the unit
  std::int64_t rows = 0, columns = 0;
  int owner = 0;
};

// How the matrices of a model lie on ranks. Rank r's shard of a unit is part r of n equal parts.
class MatrixDeal {
 public:
  // The matrices that the optimizer takes parameters as, in the order of the layout. Each, the costliest first, goes to
  // the rank with the least to do so far: rows * columns * the smaller of both. Where units are not `sharded`, every
  // rank owns all elements. `dtype` is that of weights in the optimizer.
  MatrixDeal(std::span<const FlatBuffer* const> layout, const Optimizer& optimizer, const GroupRule& groups, int ranks,
             bool sharded, DType dtype, MatrixWork work = MatrixWork::dealt);

  // Deals of neighbouring units, in their order: as many together as have at most so many elements of matrices on a
  // rank, or a single one.
  std::vector<MatrixDeal> in_batches(std::int64_t elements) const;
  // The units that this is a deal of, with matrices or without.
  Span units() const { return units_; }

  int ranks() const { return ranks_; }
  bool sharded() const { return sharded_; }
  bool by_everyone() const { return work_ == MatrixWork::everyone; }
  DType dtype() const { return dtype_; }  // in which matrices travel and are transformed
  const std::vector<DealtMatrix>& matrices() const { return matrices_; }

  // Of an element of a unit: its number among all that are trained.
  std::int64_t number_of(std::size_t unit, std::int64_t element) const { return before_[unit] + element; }
  // The elements of a matrix that a rank owns, as those of its unit.
  Span piece(const DealtMatrix& matrix, int rank) const;
  // Whether a rank transforms it: its owner, or everyone who has a piece.
  bool transforms(int rank, const DealtMatrix& matrix) const;
  // Of all matrices: elements that a rank owns, and elements of matrices that it transforms.
  std::int64_t owned(int rank) const;
  std::int64_t dealt(int rank) const;
  std::int64_t most_dealt() const;
  // Elements that one rank sends to another to be transformed, or to all; from owners as many come back.
  std::int64_t exchanged(int from, int to) const;
  std::int64_t sent(int from) const;
  // In which a rank transforms its matrices.
  std::int64_t operations(const Optimizer& optimizer, int rank) const;

 private:
  MatrixDeal of_units(Span units) const;
  void deal();

  int ranks_;
  bool sharded_;
  DType dtype_;
  MatrixWork work_;
  std::vector<std::int64_t> padded_, before_;  // by unit: its elements, and those that are trained in the units before
  std::vector<DealtMatrix> matrices_;
  Span units_ = {};
};

// The matrices that an optimizer transforms, as an engine of these options deals them to the ranks that shards are
// spread over: all at once, or one batch of units after the other, where something lies in files. None: it transforms
// none.
std::vector<MatrixDeal> deal_matrices(std::span<const FlatBuffer* const> layout, const Optimizer& optimizer,
                                      const ShardedOptions& options, int ranks);

}  // namespace keel
