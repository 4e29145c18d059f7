"""The cases of generate_schedules.py: a section `scheduler` as keel reads it, and the same schedule by its library.

A function gives the rates and momenta of all steps.
"""

import logging
import math
import os
import warnings

import torch
from torch.optim import lr_scheduler as pt

try:
    import transformers.optimization as hf
except ImportError:
    hf = None
try:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed.runtime.lr_schedules as ds
except ImportError:
    ds = None

STEPS = 1000
LR = 0.02
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)


def trace(make, cycles_momentum=False, adam=True):
    """Rates, and momenta where asked for, before each step."""
    weights = [torch.nn.Parameter(torch.zeros(1))]
    opt = torch.optim.Adam(weights, lr=LR) if adam else torch.optim.SGD(weights, lr=LR, momentum=0.5)
    scheduler = make(opt)
    rates, momenta = [], []
    for _ in range(STEPS):
        group = opt.param_groups[0]
        rates.append(float(group["lr"]))
        momenta.append(float(group["betas"][0] if adam else group["momentum"]))
        opt.step()
        scheduler.step()
    return rates, momenta if cycles_momentum else None


def formula(f):
    return [LR * f(t) for t in range(STEPS)], None


def cycle(make, adam=False):
    return trace(make, cycles_momentum=True, adam=adam)


def torch_cases():
    yield "step", "type: StepLR, step_size: 90, gamma: 0.7", lambda: trace(lambda o: pt.StepLR(o, 90, 0.7))
    yield "step_default", "type: StepLR, step_size: 400", lambda: trace(lambda o: pt.StepLR(o, 400))
    yield (
        "multi_step",
        "type: MultiStepLR, milestones: [30, 200, 201, 750], gamma: 0.3",
        lambda: trace(lambda o: pt.MultiStepLR(o, [30, 200, 201, 750], 0.3)),
    )
    yield "constant", "type: ConstantLR", lambda: trace(lambda o: pt.ConstantLR(o))
    yield (
        "constant_long",
        "type: ConstantLR, factor: 0.25, total_iters: 321",
        lambda: trace(lambda o: pt.ConstantLR(o, 0.25, 321)),
    )
    yield "linear", "type: LinearLR", lambda: trace(lambda o: pt.LinearLR(o))
    yield (
        "linear_falling",
        "type: LinearLR, start_factor: 0.9, end_factor: 0.1, total_iters: 640",
        lambda: trace(lambda o: pt.LinearLR(o, 0.9, 0.1, 640)),
    )
    yield "exponential", "type: ExponentialLR, gamma: 0.995", lambda: trace(lambda o: pt.ExponentialLR(o, 0.995))
    yield "polynomial", "type: PolynomialLR", lambda: trace(lambda o: pt.PolynomialLR(o))
    yield (
        "polynomial_power",
        "type: PolynomialLR, total_iters: 700, power: 2.5",
        lambda: trace(lambda o: pt.PolynomialLR(o, 700, 2.5)),
    )
    yield (
        "cosine_annealing",
        "type: CosineAnnealingLR, T_max: 1000",
        lambda: trace(lambda o: pt.CosineAnnealingLR(o, 1000)),
    )
    yield (
        "cosine_annealing_waves",
        "type: CosineAnnealingLR, T_max: 130, eta_min: 1e-3",
        lambda: trace(lambda o: pt.CosineAnnealingLR(o, 130, 1e-3)),
    )
    yield (
        "warm_restarts",
        "type: CosineAnnealingWarmRestarts, T_0: 170, eta_min: 1e-4",
        lambda: trace(lambda o: pt.CosineAnnealingWarmRestarts(o, 170, eta_min=1e-4)),
    )
    yield (
        "warm_restarts_doubling",
        "type: CosineAnnealingWarmRestarts, T_0: 40, T_mult: 2",
        lambda: trace(lambda o: pt.CosineAnnealingWarmRestarts(o, 40, 2)),
    )
    for mode in ("triangular", "triangular2", "exp_range"):
        yield (
            f"cyclic_{mode}",
            f"type: CyclicLR, base_lr: 1e-3, max_lr: 0.05, step_size_up: 60, step_size_down: 110, mode: {mode}, gamma: 0.997",
            lambda mode=mode: cycle(lambda o: pt.CyclicLR(o, 1e-3, 0.05, 60, 110, mode, 0.997)),
        )
    yield (
        "cyclic_default",
        "type: CyclicLR, base_lr: 1e-3, max_lr: 0.05, base_momentum: 0.7, max_momentum: 0.95, step_size_up: 75",
        lambda: cycle(lambda o: pt.CyclicLR(o, 1e-3, 0.05, 75, base_momentum=0.7, max_momentum=0.95)),
    )
    yield (
        "cyclic_without_momentum",
        "type: CyclicLR, base_lr: 1e-3, max_lr: 0.05, cycle_momentum: false",
        lambda: trace(lambda o: pt.CyclicLR(o, 1e-3, 0.05, cycle_momentum=False)),
    )
    for anneal in ("cos", "linear"):
        for three in (False, True):
            yield (
                f"one_cycle_{anneal}" + ("_three_phase" if three else ""),
                f"type: OneCycleLR, max_lr: 0.05, anneal_strategy: {anneal}, three_phase: {str(three).lower()}",
                lambda anneal=anneal, three=three: cycle(
                    lambda o: pt.OneCycleLR(o, 0.05, STEPS, anneal_strategy=anneal, three_phase=three)
                ),
            )
    yield (
        "one_cycle_parameters",
        "type: OneCycleLR, total_steps: 1100, pct_start: 0.17, div_factor: 7, final_div_factor: 30,"
        " base_momentum: 0.6, max_momentum: 0.9",
        lambda: cycle(
            lambda o: pt.OneCycleLR(
                o, LR, 1100, pct_start=0.17, div_factor=7, final_div_factor=30, base_momentum=0.6, max_momentum=0.9
            )
        ),
    )
    yield (
        "sequence",
        "type: SequentialLR, milestones: [100, 600], schedules: [{type: LinearLR, start_factor: 0.1, total_iters: 100},"
        " {type: CosineAnnealingLR, T_max: 500, eta_min: 1e-3}, {type: ExponentialLR, gamma: 0.99}]",
        lambda: trace(
            lambda o: pt.SequentialLR(
                o, [pt.LinearLR(o, 0.1, total_iters=100), pt.CosineAnnealingLR(o, 500, 1e-3), pt.ExponentialLR(o, 0.99)],
                [100, 600],
            )
        ),
    )
    yield (
        "product",
        "type: ChainedScheduler, schedules: [{type: ConstantLR, factor: 0.1, total_iters: 20},"
        " {type: ExponentialLR, gamma: 0.999}, {type: StepLR, step_size: 300, gamma: 0.5}]",
        lambda: trace(
            lambda o: pt.ChainedScheduler(
                [pt.ConstantLR(o, 0.1, 20), pt.ExponentialLR(o, 0.999), pt.StepLR(o, 300, 0.5)]
            )
        ),
    )


def hf_cases():
    yield "hf_constant", "type: Constant", lambda: trace(hf.get_constant_schedule)
    yield (
        "hf_constant_with_warmup",
        "type: ConstantWithWarmup, num_warmup_steps: 37",
        lambda: trace(lambda o: hf.get_constant_schedule_with_warmup(o, 37)),
    )
    yield (
        "hf_linear",
        "type: LinearWithWarmup, warmup_ratio: 0.1",
        lambda: trace(lambda o: hf.get_linear_schedule_with_warmup(o, 100, STEPS)),
    )
    yield (
        "hf_linear_past_its_end",
        "type: linear_decay, num_warmup_steps: 0, num_training_steps: 800",
        lambda: trace(lambda o: hf.get_linear_schedule_with_warmup(o, 0, 800)),
    )
    yield (
        "hf_cosine",
        "type: CosineWithWarmup, num_warmup_steps: 50",
        lambda: trace(lambda o: hf.get_cosine_schedule_with_warmup(o, 50, STEPS)),
    )
    yield (
        "hf_cosine_whole_wave",
        "type: cosine_with_warmup, num_warmup_steps: 50, num_cycles: 1.0",
        lambda: trace(lambda o: hf.get_cosine_schedule_with_warmup(o, 50, STEPS, 1.0)),
    )
    yield (
        "hf_restarts",
        "type: CosineWithHardRestartsWithWarmup, warmup: 80, steps: 900, cycles: 3",
        lambda: trace(lambda o: hf.get_cosine_with_hard_restarts_schedule_with_warmup(o, 80, 900, 3)),
    )
    yield (
        "hf_inverse_sqrt",
        "type: InverseSQRT, num_warmup_steps: 60",
        lambda: trace(lambda o: hf.get_inverse_sqrt_schedule(o, 60)),
    )
    yield "hf_inverse_sqrt_plain", "type: inverse_sqrt", lambda: trace(lambda o: hf.get_inverse_sqrt_schedule(o, 0))
    yield (
        "hf_inverse_sqrt_timescale",
        "type: inverse_sqrt, warmup: 60, timescale: 400",
        lambda: trace(lambda o: hf.get_inverse_sqrt_schedule(o, 60, 400)),
    )
    yield (
        "hf_polynomial",
        "type: PolynomialDecayWithWarmup, num_warmup_steps: 120",
        lambda: trace(lambda o: hf.get_polynomial_decay_schedule_with_warmup(o, 120, STEPS)),
    )
    yield (
        "hf_polynomial_power",
        "type: polynomial, warmup: 10, steps: 850, lr_end: 1e-3, power: 2",
        lambda: trace(lambda o: hf.get_polynomial_decay_schedule_with_warmup(o, 10, 850, 1e-3, 2.0)),
    )
    yield (
        "hf_cosine_with_min_lr",
        "type: cosine_with_min_lr, warmup: 50, min_lr: 2e-3",
        lambda: trace(lambda o: hf.get_cosine_with_min_lr_schedule_with_warmup(o, 50, STEPS, min_lr=2e-3)),
    )
    yield (
        "hf_cosine_with_min_lr_rate",
        "type: cosine_with_min_lr, warmup: 50, min_lr_rate: 0.2, cycles: 1.5",
        lambda: trace(
            lambda o: hf.get_cosine_with_min_lr_schedule_with_warmup(o, 50, STEPS, 1.5, min_lr_rate=0.2)
        ),
    )
    for name, text, start in (("", "", None), ("_start", ", warmup_lr_rate: 0.3", 0.3)):
        yield (
            "hf_cosine_warmup_with_min_lr" + name,
            "type: cosine_warmup_with_min_lr, warmup: 50, min_lr_rate: 0.1" + text,
            lambda start=start: trace(
                lambda o: hf.get_cosine_with_min_lr_schedule_with_warmup_lr_rate(
                    o, 50, STEPS, min_lr_rate=0.1, warmup_lr_rate=start
                )
            ),
        )
    for shape in ("linear", "cosine", "1-sqrt"):
        yield (
            f"hf_wsd_{shape}",
            f"type: warmup_stable_decay, warmup: 100, num_decay_steps: 300, min_lr_ratio: 0.05,"
            f" warmup_type: {shape}, decay_type: {shape}",
            lambda shape=shape: trace(
                lambda o: hf.get_wsd_schedule(
                    o, 100, 300, STEPS, warmup_type=shape, decay_type=shape, min_lr_ratio=0.05
                )
            ),
        )
    yield (
        "hf_wsd_stable",
        "type: wsd, warmup: 20, stable: 400, decay: 100",
        lambda: trace(lambda o: hf.get_wsd_schedule(o, 20, 100, num_stable_steps=400)),
    )


def framework_cases():
    yield (
        "sqrt_decay_constant",
        "type: sqrt_decay, num_constant_steps: 90",
        lambda: formula(lambda t: 1 / math.sqrt(max(90, t) / 90)),
    )
    yield (
        "sqrt_decay_warmup",
        "type: sqrt_decay, num_warmup_steps: 90",
        lambda: formula(lambda t: t / 90 if t < 90 else 1 / math.sqrt(max(90, t) / 90)),
    )
    yield (
        "normal_decay",
        "type: normal_decay, num_warmup_steps: 150",
        lambda: formula(lambda t: math.exp(-(((t - 150) * 2 / 150 if t < 150 else (t - 150) / STEPS) ** 2))),
    )
    yield (
        "polynomial_decay",
        "type: polynomial_decay, num_warmup_steps: 150, decay_power: 1.5",
        lambda: formula(lambda t: t / 150 if t < 150 else (1 - (t - 150) / (STEPS - 150)) ** 1.5),
    )

    def layerwise(t, steps, end, cycles):
        total = steps * max(1, math.ceil(t / steps)) if cycles else steps
        rate = (LR - end) * (1 - min(t, total) / total) ** 2 + end
        return rate / LR * min(1, t / 100)

    yield (
        "layerwise",
        "type: polynomial_decay_layerwise, num_warmup_steps: 100, lr_decay_power: 2, end_learning_rate: 5e-4",
        lambda: formula(lambda t: layerwise(t, STEPS, 5e-4, False)),
    )
    yield (
        "layerwise_cycle",
        "type: polynomial_decay_layerwise, steps: 300, warmup: 100, power: 2, scheduler_cycle: true",
        lambda: formula(lambda t: layerwise(t, 300, 1e-4, True)),
    )


def ds_cases():
    for rise in ("log", "linear"):
        yield (
            f"ds_warmup_{rise}",
            "type: WarmupLR, params: {warmup_min_lr: 1e-4, warmup_max_lr: 0.01, warmup_num_steps: 130,"
            f" warmup_type: {rise}}}",
            lambda rise=rise: trace(lambda o: ds.WarmupLR(o, 1e-4, 0.01, 130, rise)),
        )
        yield (
            f"ds_warmup_decay_{rise}",
            "type: WarmupDecayLR, params: {total_num_steps: 900, warmup_min_lr: 1e-4, warmup_max_lr: 0.01,"
            f" warmup_num_steps: 130, warmup_type: {rise}}}",
            lambda rise=rise: trace(lambda o: ds.WarmupDecayLR(o, 900, 1e-4, 0.01, 130, rise)),
        )
        yield (
            f"ds_warmup_cosine_{rise}",
            "type: WarmupCosineLR, params: {total_num_steps: 900, warmup_min_ratio: 0.02, warmup_num_steps: 130,"
            f" cos_min_ratio: 0.01, warmup_type: {rise}}}",
            lambda rise=rise: trace(lambda o: ds.WarmupCosineLR(o, 900, 0.02, 130, 0.01, rise)),
        )
    yield (
        "ds_one_cycle",
        "type: OneCycle, params: {cycle_min_lr: 1e-3, cycle_max_lr: 0.03, cycle_first_step_size: 200,"
        " cycle_second_step_size: 350, decay_step_size: 50, decay_lr_rate: 0.5, decay_mom_rate: 0.01}",
        lambda: cycle(
            lambda o: ds.OneCycle(
                o, 1e-3, 0.03, 0.5, 200, 350, decay_step_size=50, decay_mom_rate=0.01
            ),
            adam=True,
        ),
    )
    yield (
        "ds_one_cycle_stairs",
        "type: OneCycle, params: {cycle_min_lr: 1e-3, cycle_max_lr: 0.03, cycle_first_step_size: 200,"
        " cycle_first_stair_count: 5, cycle_second_stair_count: 8}",
        lambda: cycle(
            lambda o: ds.OneCycle(
                o, 1e-3, 0.03, cycle_first_step_size=200, cycle_first_stair_count=5, cycle_second_stair_count=8
            ),
            adam=True,
        ),
    )
    for stairs in (False, True):
        yield (
            "ds_range_test" + ("_staircase" if stairs else ""),
            "type: LRRangeTest, params: {lr_range_test_min_lr: 1e-4, lr_range_test_step_size: 70,"
            f" lr_range_test_step_rate: 3, lr_range_test_staircase: {str(stairs).lower()}}}",
            lambda stairs=stairs: trace(lambda o: ds.LRRangeTest(o, 1e-4, 70, 3.0, stairs)),
        )


def cases():
    """(library, name, section, function or None where the library is not installed)"""
    for library, make in (("PyTorch", torch_cases), ("transformers", hf_cases), ("", framework_cases), ("DeepSpeed", ds_cases)):
        missing = (library == "transformers" and hf is None) or (library == "DeepSpeed" and ds is None)
        for name, text, compute in make():
            yield library, name, text, None if missing else compute
