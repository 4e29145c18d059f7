#pragma once
// Formulas of learning-rate schedules: the factor on the base rate, or the momentum, after t steps.
//
// Sources are named in the table, optim/schedule_table.cpp. The library reports what a formula of its own keeps silent
// about: parameters have been checked, and t is at least 0.

#include "keel/optim/schedule_table.h"

namespace keel::schedules {

// keel's own; the warm-up's first step has rate 1/(w + 1) already.
double constant(const ScheduleNumbers& n, double t);
double linear(const ScheduleNumbers& n, double t);
double cosine(const ScheduleNumbers& n, double t);

// PyTorch's.
double step_lr(const ScheduleNumbers& n, double t);
double multi_step_lr(const ScheduleNumbers& n, double t);
double constant_lr(const ScheduleNumbers& n, double t);
double linear_lr(const ScheduleNumbers& n, double t);
double exponential_lr(const ScheduleNumbers& n, double t);
double polynomial_lr(const ScheduleNumbers& n, double t);
double cosine_annealing_lr(const ScheduleNumbers& n, double t);
double cosine_annealing_warm_restarts(const ScheduleNumbers& n, double t);
double cyclic_lr(const ScheduleNumbers& n, double t);
double cyclic_lr_momentum(const ScheduleNumbers& n, double t);
double one_cycle_lr(const ScheduleNumbers& n, double t);
double one_cycle_lr_momentum(const ScheduleNumbers& n, double t);

// Hugging Face's; the warm-up's first step has rate 0.
double constant_with_warmup(const ScheduleNumbers& n, double t);
double linear_with_warmup(const ScheduleNumbers& n, double t);
double cosine_with_warmup(const ScheduleNumbers& n, double t);
double cosine_with_restarts(const ScheduleNumbers& n, double t);
double inverse_sqrt(const ScheduleNumbers& n, double t);
double polynomial(const ScheduleNumbers& n, double t);
double cosine_with_min_lr(const ScheduleNumbers& n, double t);
double cosine_warmup_with_min_lr(const ScheduleNumbers& n, double t);
double warmup_stable_decay(const ScheduleNumbers& n, double t);

// transformers-framework's.
double sqrt_decay(const ScheduleNumbers& n, double t);
double normal_decay(const ScheduleNumbers& n, double t);
double polynomial_decay(const ScheduleNumbers& n, double t);
double polynomial_decay_layerwise(const ScheduleNumbers& n, double t);

// DeepSpeed's.
double warmup_lr(const ScheduleNumbers& n, double t);
double warmup_decay_lr(const ScheduleNumbers& n, double t);
double warmup_cosine_lr(const ScheduleNumbers& n, double t);
double one_cycle(const ScheduleNumbers& n, double t);
double one_cycle_momentum(const ScheduleNumbers& n, double t);
double lr_range_test(const ScheduleNumbers& n, double t);

// Half a cosine from 1 at progress 0 to 0 at 1.
double half_cosine(double progress);
// Up from 0 to 1 over `up` steps and down again over `down`, again and again.
double triangle(double t, double up, double down);

}  // namespace keel::schedules
