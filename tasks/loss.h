#pragma once
// What a training step hands to the trainer: named terms, each a mean over one of the batch's weights, and values to
// log.
//
// Over a step, with micro-batches m of all ranks, term k and its weight w:
//
//   loss = sum over k with W_k > 0 of factor_k * (sum over m of w_km * L_km) / W_k,     W_k = sum over m of w_km
//
// and that is the function whose gradient the optimizer gets, however rows are divided into micro-batches and ranks.
// Gradients add up as sums and are divided by D by the step, as with a single term; D is the W_k of the first term that
// has one above 0. Term k of micro-batch m enters backward with the factor  factor_k * w_km * (D / W_k),  computed in
// fp64 and rounded once. So one term with factor 1 has the bits that it had before there were terms. The totals W are
// known before the first backward, since weights are counted with the batch: ranks tell each other once a step, added
// in their order in fp64, and only where terms have different weights; a step has all its batches by then. Weights that
// are whole numbers make totals exact. Where all are 0 the step is not taken. A rank runs backward through every term,
// also with the factor 0: ranks gather weights from each other on the way.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/autograd/loss.h"
#include "keel/data/batch.h"
#include "keel/nn/module.h"

namespace keel {

struct LossTerm {
  std::string name = {};  // "masked_lm"; not "loss", which is the sum of all
  Variable value =
      {};  // one element: a mean over `weight`, or a sum; narrower ones are cast to f32 when they are added
  std::string weight = {};    // of the batch: "tokens"
  double factor = 1;          // finite; 0 logs the term and trains nothing of it
  bool is_sum = false;        // the value is a sum over `weight`, not a mean; then it is w_km * L_km above
  Tensor counted = {};        // i64 scalar on the device: targets that the mean is over; undefined: not known
  bool crosses_rows = false;  // depends on which rows are computed together: exempt from equality over micro-batches

  // What the value's gradient counts in a micro-batch that weighs `own_weight` of `total`: factor_k * w_km * (D / W_k)
  // above, without w_km for a sum. 0 where the micro-batch has no weight, or nothing has.
  double factor_of(double own_weight, double total, double divisor) const;
};

// Where a term has weight 0 in a micro-batch, its value must be finite all the same, since it takes part in backward
// (with the factor 0): losses of keel are 0 over nothing, and a sum (add_sum) needs no division. A mean that is not
// finite there is an Error that says so.
class Loss {
 public:
  Loss() = default;
  // One term, which has no name of its own: the loss. Implicit, so that a step can return what it has computed.
  Loss(Variable mean, std::string weight = std::string(kRowWeight));
  Loss(const CrossEntropyLoss& mean, std::string weight = std::string(kRowWeight));

  // Terms have different names, which are letters, digits and _, and none that records have from keel ("loss", "step",
  // "lr", "tokens", ...) or from the metrics of a validation set without a name. An Error for another name, a value of
  // several elements, of whole numbers, or without a gradient while gradients are recorded ("does not depend on any
  // trained parameter"); every rank meets it in the same micro-batch.
  Loss& add(std::string name, Variable mean, std::string weight, double factor = 1);
  // Such a term knows how many targets it is a mean over. In a session's first step that is compared with the weight; a
  // difference is an Error: "masked_lm is a mean over 771 targets, but the batch has 8 rows; name the weight that
  // counts them", since other micro-batches would then weigh otherwise.
  Loss& add(std::string name, const CrossEntropyLoss& mean, std::string weight, double factor = 1);
  Loss& add_sum(std::string name, Variable sum, std::string weight, double factor = 1);
  // A function of outputs alone that each row has once: weight `rows`.
  Loss& add_regularizer(std::string name, Variable mean, double factor = 1);
  // The term just added depends on which rows are computed together; an Error where there is none.
  Loss& across_rows();
  // A value, of a name as terms have, that is only logged, as a mean over `weight` on all ranks: one element, any
  // floating dtype. Nothing waits for it.
  Loss& log(std::string name, Tensor mean, std::string weight);

  struct Logged {
    std::string name;
    Tensor mean;
    std::string weight;
  };
  const std::vector<LossTerm>& terms() const { return terms_; }
  const std::vector<Logged>& logged() const { return logged_; }
  // Names, weights, kinds and factors: a line for each term and each value that is logged, in order.
  std::string description() const;
  // The same as a number. It must be the same in every micro-batch of every rank of a step: it travels with what ranks
  // tell each other, and a difference is an AgreedError that names rank and terms. From step to step a session's losses
  // may differ in their factors alone; a term that is not wanted in a step has the factor 0.
  std::uint64_t signature() const;

 private:
  Loss& append_named(LossTerm term);
  Loss& append(LossTerm term);
  void check_new(const std::string& name, std::string_view what) const;

  std::vector<LossTerm> terms_;
  std::vector<Logged> logged_;
};

// The loss of a micro-batch. It draws from `pass` and nothing else.
using LossFunction = std::function<Loss(const Batch& batch, Forward& pass)>;

}  // namespace keel
