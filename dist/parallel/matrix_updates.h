#pragma once
// Whole matrices for optimizers that transform them (Optimizer::matrices()), wherever their elements lie.

#include <cstdint>
#include <span>
#include <vector>

#include "keel/dist/parallel/matrix_deal.h"
#include "keel/dist/parallel/rank_sums.h"

namespace keel {

// Every rank has prepared the elements that it owns. Of sharded units the pieces of a matrix travel to its owner, which
// transforms it once and sends the pieces of the result back; or to everyone who has a piece, and nothing comes back.
// Where every rank owns all elements, one all-gather brings the results of owners together; everyone needs nothing.
// Elements are rounded to the dtype in which they travel in every stage, also where nothing does,
// so all stages and numbers of ranks transform the same bits.
class MatrixUpdates {
 public:
  // `ranges` are all that this rank updates, in the order of units and parameters, each of one parameter. The ranks of
  // the site are those that the deal is among.
  MatrixUpdates(const Optimizer& optimizer, MatrixDeal deal, std::span<const ParameterRange> ranges,
                const RanksSite& site);

  // Gives the ranges of matrices, the same as before, memory for `matrix`; end() takes it back.
  void begin(std::span<ParameterRange> ranges) const;
  void end(std::span<ParameterRange> ranges) const;
  // Makes of what prepare() has written there what update() reads. Every rank calls it.
  void run(std::span<const ParameterRange> ranges);

 private:
  // This rank's elements of a matrix, in the range of its parameter.
  struct OwnPiece {
    std::size_t range = 0;
    Span place = {};
  };
  Tensor own_piece(std::size_t matrix, std::span<const ParameterRange> ranges) const;
  Tensor buffer(std::int64_t count, Purpose purpose) const;
  Tensor transform(const DealtMatrix& matrix, const Tensor& numbers) const;
  void run_sharded(std::span<const ParameterRange> ranges);
  void run_alone(std::span<const ParameterRange> ranges);
  void run_whole(std::span<const ParameterRange> ranges);
  void transform_pieces(const Tensor& received, std::span<const ParameterRange> ranges) const;
  void exchange(const Tensor& mine, const Tensor& dealt, bool back);

  const Optimizer& optimizer_;
  MatrixDeal deal_;
  RanksSite site_;
  Communicator& ranks_;
  std::vector<OwnPiece> pieces_;  // by matrix
};

}  // namespace keel
