#pragma once
// The same training done in several ways: whether the weights come out alike, and what each one costs.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/link.h"
#include "keel/trainer/progress.h"
#include "keel/trainer/skipped_of_training.h"
#include "keel/trainer/variants.h"

namespace keel {

struct CompareOptions {
  std::int64_t steps = 60;   // of each training, 2 at least
  std::int64_t repeats = 5;  // trainings of each variant
  Network network = {};      // a slower network than there is
};

// Times are of the first rank, of steps after a training's first.
struct ComparedRun {
  std::string name, base;  // as the variant's
  bool compresses = false;
  std::uint64_t fingerprint = 0;  // of all weights in the end; equal numbers have equal ones
  bool repeats = true;            // every training of it had that fingerprint and loss
  // What decides the weights' bits besides the configuration: "computes in bf16". Runs of which all of this is the same
  // must have equal weights, and two that differ in it need not.
  std::vector<std::string> decisive;
  double loss = 0;  // of the last step
  // Of a training. Where no step was taken, the weights are those that it began with, and say nothing of the variant.
  SkippedOfTraining skipped = {};
  // The first rank's bytes: those sent in a step after the first, and those of parameters, gradients and optimizer
  // state. What a strategy of communication sends is part of the former, on average over whole windows.
  std::int64_t sent = 0, sent_by_formula = 0;
  std::int64_t kept = 0, kept_by_formula = 0;
  // Steps of a strategy's window that no training had after its first step, so that `sent` leaves out what the strategy
  // sends; 0: it leaves out nothing.
  std::int64_t window = 0;
  double exposed_ms = 0;  // the part of a step in which the first rank waited: mean of the trainings' medians
  double step_ms = 0;     // the whole step, likewise
  double p95_ms = 0;      // 95 % of steps take no longer: mean over the trainings
  double codec_ms = 0;    // the part of a step that makes payloads of gradients, and sums of payloads, likewise
  // step_ms +- this is a 95 % confidence interval: t s / sqrt(n), of n trainings whose medians have the standard
  // deviation s, by Student's distribution of n - 1 degrees of freedom. 0: one training has none.
  double confidence_ms = 0;

  bool has_learnt() const { return skipped.none_taken.empty(); }
  bool fits_formulas() const { return sent == sent_by_formula && kept == kept_by_formula; }
};

// Trains each variant so many times, without evaluation and files, in turns whose order changes, so that a machine that
// grows slower favours none. Every rank calls it.
std::vector<ComparedRun> compare(std::span<const Variant> variants, const CompareOptions& options,
                                 TrainObserver& observer, Communicator& ranks);

// What compression brings, beside the same training without.
struct NetGain {
  double fraction = 0;  // of the step's time that it saves; negative: it costs so much
  // Whether that is more than chance explains: the difference of the two means is larger than the root of the sum of
  // the squares of their confidence intervals.
  bool is_gain = false, is_loss = false;
  // Bytes a second of a rank's link below which the bytes that are saved take longer than the codec: where compression
  // begins to pay if nothing hides either. 0: nowhere, as no bytes are saved.
  double pays_below = 0;
};
NetGain net_gain(const ComparedRun& plain, const ComparedRun& compressed);

}  // namespace keel
