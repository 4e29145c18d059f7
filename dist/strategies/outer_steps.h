#pragma once
// Steps of the outer axis: groups train by themselves, and now and then take a step together, from the mean of how far
// they have come.

#include "keel/dist/strategies/communication_strategy.h"

namespace keel {

// With every = H, rate 1 and no momentum that is local SGD (Stich 2018): every H steps the groups have the mean of
// their weights. With Nesterov's momentum it is DiLoCo (Douillard et al. 2023). With several fragments, a delay and a
// blend it is Streaming DiLoCo (Douillard et al. 2025).
//
// With w0 the weights after the last outer step and w_i those of group i, the outer gradient is g = mean(w0 - w_i),
// summed in fp32 in the order of groups. The step is that of SGD as PyTorch defines it: b = momentum b + g (g itself in
// the first step), w0 -= rate (g + momentum b), or rate b without nesterov.
struct OuterStepOptions {
  std::int64_t every = 1;  // H: steps of a group between two outer steps
  double rate = 1;
  double momentum = 0;
  bool nesterov = false;
  // The units are dealt to so many fragments of about equal size (deal_by_cost()), each of which has an outer step of
  // its own every H steps, evenly spread over them.
  std::int64_t fragments = 1;
  std::int64_t delay = 0;  // steps of a group from sending a fragment to using what has come; less than every
  double blend = 1;        // what of the new weights is used: blend of w0, and 1 - blend of the group's own
  // For groups of which some may be lost (keel/dist/strategies/surviving_groups.h): an outer step is then one attempt
  // of all fragments that are due, and what travels while a group goes on is kept, to be sent again.
  bool repeats = false;
  bool operator==(const OuterStepOptions&) const = default;
};

// An outer step of an optimizer whose update is linear in the gradient, after every step, at rate 1 and without
// momentum is data parallel training: the gradients are summed in its place. A step that a group skips counts in its
// window.
std::unique_ptr<CommunicationStrategy> make_outer_steps(const OuterStepOptions& options);

}  // namespace keel
