"""Draws what a case trains: task, model, optimizer, schedule, messages among ranks, and what a run keeps."""

import random

from combination_data import ENCODERS, FOLDERS, TASKS

STAGES = ("ddp", "zero1", "zero2", "zero3")
OPTIMIZERS = """AdamW AdamW AdamW SGD Adam HFAdamW TFAdamW Adamax NAdam RAdam Adagrad Adadelta RMSprop Rprop ASGD Lion
Adam8bit AdamW8bit LAMB LAMB LARS Adafactor ScheduleFreeAdamW ScheduleFreeAdamW Muon Muon Muon LBFGS""".split()
TRUNKS = ("dense 13 relu; dense 7 tanh", "dense 33 relu; layernorm; dropout 0.2; dense 5 relu",
          "dense 9 relu; rmsnorm; dense 9 relu", "dense 300 gelu; dense 17")
SKY = {"name": "sky", "type": "classification", "metrics": ["accuracy", "f1_macro"]}
# Names of parameters that every model of such a kind has.
MATCHES = {"table": ("bias|norm", "layers.0", ""), "": ("bias|norm|ln_", "embed|wte", "h.0|layers.0|layer.0", "")}
WARMS_UP = ("constant", "linear", "cosine", "inverse_sqrt", "wsd")
OF_AVERAGES = ("ema.decay", "ema.evaluate", "ema.warmup", "swa.start", "swa.every", "swa.evaluate", "swa.rate_factor",
               "checkpoint.best")


class Draw(random.Random):
    """Random choices, and the keys that they have filled so far."""

    def __init__(self, number):
        super().__init__(number)
        self.keys = {}

    def happens(self, probability):
        return self.random() < probability

    def set(self, key, *values):
        self.keys[key] = self.choice(values)

    def maybe(self, probability, key, *values):
        if self.happens(probability):
            self.set(key, *values)

    def drop(self, *names):
        for name in names:
            self.keys.pop(name, None)


def draw_task(draw):
    return draw.choice([*TASKS, *["windows"] * 3])


def draw_model(draw, task):
    if task == "table":
        draw.set("model.trunk", *TRUNKS)
        draw.set("model.heads", [SKY, {"name": "far", "scale": "standard", "loss": draw.choice(["huber", "mse", "mae"])}],
                 [SKY, {"name": "far", "scale": "standard"}], [{"name": "far", "loss": "mse"}])
    else:
        draw_transformer(draw, task)
    draw.keys.update({"seed": draw.randint(1, 99), "steps": draw.randint(4, 10)})
    draw.set("batch.global", 8, 9, 12, 16, 24)
    draw.maybe(0.5, "batch.micro", 1, 2, 3, 4)
    draw_data(draw, task)


# task: keys of what it makes of its data, each with its values and how often it is drawn.
OF_DATA = {
    "texts": {"data.group_by_length": (True, 0.3), "data.pad_multiple": (4, 0.3), "data.tokenizer": ("words", 0.4),
              "task.label_smoothing": (0.1, 0.3), "task.class_weights": ([1, 2, 0.5], 0.3)},
    "words": {"data.group_by_length": (True, 0.3), "task.word_dropout": (0.2, 0.3), "task.label_smoothing": (0.1, 0.3)},
    "masked": {"data.rows": ("documents", 0.4), "task.masking": ("budget", 0.3)},
    "chats": {"data.packing": (False, 0.4), "data.long": ("skip", 0.4)},
    "table": {"task.regularizers": ([{"head": "far", "type": "square", "weight": 0.01}], 0.3), "data.scale": ("none", 0.3)},
    "mixture": {"data.stages": ([{"until": 2, "weights": [1, 0]}, {"weights": [1, 3]}], 0.5)},
}
# task: the file that is validated on by a name of its own.
FILES = {"windows": "text.txt", "texts": "texts.tsv", "table": "table.csv"}


def draw_data(draw, task):
    for key, (value, probability) in OF_DATA.get(task, {}).items():
        draw.maybe(probability, key, value)
    if task in ("packed", "table", "texts", "words", "chats"):
        draw.maybe(0.5, "data.last", "fewer", "join", "drop")
        if draw.keys.get("data.last") == "drop":
            draw.maybe(0.3, "data.batches", 2)
    if task == "mixture" and "data.stages" not in draw.keys:
        draw.set("data.mixture", [{"path": "text.txt", "weight": 1}, {"path": "documents.jsonl", "weight": 2}])
    if draw.keys.get("data.tokenizer") == "words":
        draw.maybe(0.5, "task.word_dropout", 0.2)
    if task in ("windows", "packed", "tokens") and draw.happens(0.1):
        draw.keys.update({"curriculum.type": "fixed_linear", "curriculum.steps": 4, "curriculum.min_length": 4,
                          "curriculum.multiple": 2})
    if task in FILES and draw.happens(0.15):
        draw.set("data.sets", [{"name": "own", "path": FILES[task]}, {"name": "other", "path": FILES[task]}])


def draw_transformer(draw, task):
    folders = [name for name, (tasks, _) in FOLDERS.items() if task in tasks]
    if folders and draw.happens(0.15):
        draw.set("model.from", *folders)
        draw.maybe(0.3, "model.weights", False)
        draw.maybe(0.2, "model.recompute", True)
        draw.maybe(0.3, "model.lora_rank", 2)
        return
    encoder = task in ENCODERS
    if encoder:
        draw.set("model.type", "bert", "roberta", "distilbert", "electra")
    else:
        draw.set("model.type", "gpt", "gpt", "llama", "llama", "mistral", "qwen2", "qwen3")
    draw.set("model.layers", 1, 2, 2, 3)
    draw.set("model.heads", *((2,) if encoder else (2, 2, 4)))
    draw.set("model.width", 36, 52, 20, 24, 44)
    draw.set("model.block", *{"sums": (12,), "chats": (40, 48)}.get(task, (12, 16, 7)))
    draw.maybe(0.4, "model.dropout", 0.2)
    draw.maybe(0.2, "model.attention_dropout", 0.1)
    draw.maybe(0.2, "model.recompute", True)
    if encoder:
        draw.set("model.hidden", 30, 52, 0)
    elif draw.keys["model.type"] == "gpt":
        draw.maybe(0.3, "model.bias", False)
    else:
        draw_llama(draw)
    if draw.happens(0.25):
        draw_adapters(draw, trains_head=not encoder and draw.keys["model.type"] != "gpt")


def draw_llama(draw):
    keys = draw.keys
    draw.maybe(0.5, "model.kv_heads", 1)
    draw.maybe(0.5, "model.tied", True)
    draw.set("model.hidden", 52, 30, 65)
    if keys["model.width"] // keys["model.heads"] % 2 or draw.happens(0.3):
        draw.set("model.head_size", 6, 10)
    if keys["model.type"] != "llama":
        draw.maybe(0.5, "model.window", 4)


def draw_adapters(draw, trains_head):
    draw.set("model.lora_rank", 1, 3)
    draw.maybe(0.3, "model.lora_dropout", 0.2)
    if trains_head and not draw.keys.get("model.tied"):
        draw.maybe(0.4, "model.lora_trains", ["lm_head"])


def draw_optimizer(draw, task):
    keys = draw.keys
    name = keys["optimizer.type"] = draw.choice(OPTIMIZERS)
    if name == "LBFGS":
        keys.update({"clip": 0, "optimizer.lr": 0.5, "optimizer.max_iterations": 3, "optimizer.history": 3})
        draw.set("optimizer.line_search", "none", "strong_wolfe")
        return
    if name not in ("Adafactor", "Adadelta", "LARS"):
        draw.maybe(0.7, "optimizer.lr", 1e-2, 3e-3, 1e-1)
    if name in ("SGD", "RMSprop"):
        draw.maybe(0.6, "optimizer.momentum", 0.9)
    if name == "SGD" and "optimizer.momentum" in keys:
        draw.maybe(0.5, "optimizer.nesterov", True)
    if name in ("AdamW", "Adam", "TFAdamW"):
        draw.maybe(0.2, "optimizer.amsgrad", True)
    if name == "RMSprop":
        draw.maybe(0.4, "optimizer.centered", True)
    if name == "Adafactor":
        draw.maybe(0.5, "optimizer.beta1", 0.9)
    if name == "ASGD":
        keys["optimizer.t0"] = 2
    if "8bit" in name:
        draw.set("optimizer.min_8bit_size", 256, 500, 1000)
    if name == "Muon":
        draw.set("optimizer.matrices", "hidden", "hidden", "all")
        draw.set("optimizer.products", "bf16", "fp32")
    if name != "Rprop":
        draw.maybe(0.3, "optimizer.weight_decay", 0.1, 0)
    if draw.happens(0.3):
        draw_groups(draw, task)
    if task != "table":
        draw.maybe(0.15, "optimizer.layer_decay", 0.7)


def draw_groups(draw, task):
    name = draw.keys["optimizer.type"]
    group = {"match": draw.choice(MATCHES.get(task, MATCHES[""])), "lr_factor": draw.choice([0, 0.5, 2])}
    if name != "Rprop":
        group["weight_decay"] = 0.3
    if name == "Muon" and draw.happens(0.5):
        group["matrices"] = "none"
    draw.keys["optimizer.groups"] = [group, {"match": "", "lr_factor": 0.1}] if draw.happens(0.3) else [group]


def draw_schedule(draw):
    """A learning rate that the optimizer goes together with, and clipping."""
    keys = draw.keys
    name = keys["optimizer.type"]
    if name in ("LBFGS", "ScheduleFreeAdamW"):
        return
    draw.maybe(0.5, "scheduler.type", *WARMS_UP, "OneCycleLR", "sequence")
    kind = keys.get("scheduler.type", "cosine")
    turns_momentum = name not in ("ASGD", "Adafactor", "Rprop", "Adagrad", "Adadelta")
    if kind == "OneCycleLR" and (not turns_momentum or name in ("SGD", "RMSprop") and "optimizer.momentum" not in keys):
        draw.drop("scheduler.type")
    if kind == "sequence":
        keys["scheduler.milestones"] = [3]
        keys["scheduler.schedules"] = [{"type": "linear"}, {"type": "constant"}]
    if kind in WARMS_UP:
        draw.maybe(0.3, "scheduler.warmup", 3)
    if kind == "wsd":
        keys["scheduler.decay"] = 1
    draw.maybe(0.5, "clip", 0, 0, 0.05, 0.3, 0.3)
    if keys.get("clip"):
        draw.maybe(0.2, "clip_by", "value")


def draw_precision(draw):
    keys = draw.keys
    precision = draw.choice(["fp32", "fp32", "bf16", "bf16", "fp16"])
    if keys["optimizer.type"] == "LBFGS":
        return "fp32"
    if precision == "fp16":
        draw.set("loss_scale.initial", 65536, 16384, 8192, 4096, 2048, 1024, 512)
        draw.set("loss_scale.interval", 2, 3, 2000)
        draw.maybe(0.3, "loss_scale.hysteresis", 2)
    if precision == "bf16":
        if keys["optimizer.type"] != "ScheduleFreeAdamW":
            draw.maybe(0.25, "optimizer.stochastic_rounding", True)
        draw.maybe(0.1, "sharding.gradient", "bf16", "fp32")
    draw.maybe(0.3, "sharding.accumulation", "each_backward")
    draw.maybe(0.1, "sharding.wire", "bf16", "fp32", "fp16")
    return precision


def draw_messages(draw, ranks, groups_train_alone):
    """What ranks tell each other, where there are several."""
    keys = draw.keys
    if ranks == 1 or keys["optimizer.type"] == "LBFGS":
        return
    kind = draw.random()
    if kind < 0.3:
        draw_compression(draw, ranks)
    elif kind < 0.6 and groups_train_alone and keys["optimizer.type"] != "ScheduleFreeAdamW":
        draw_outer(draw, ranks)
    if ranks == 4 and "outer.type" not in keys and keys.get("gradient_compression.type") not in ("powersgd", "qgz"):
        draw.maybe(0.3, "sharding.group", 2)
    draw.maybe(0.15, "sharding.weight_code", "int8", "int4")


def draw_compression(draw, ranks):
    rounded = [] if "sharding.wire" in draw.keys else ["bf16", "fp16"]
    draw.set("gradient_compression.type", *rounded, "int8", "int4", "qgz", "topk", "powersgd")
    kind = draw.keys["gradient_compression.type"]
    if kind == "topk":
        draw.set("gradient_compression.fraction", 0.01, 0.1, 0.5)
    if kind == "powersgd":
        draw.set("gradient_compression.rank", 1, 2)
    if kind == "qgz":
        draw.set("gradient_compression.bits", 4, 8)
        if ranks == 4:
            draw.keys["sharding.subgroup"] = 2


def draw_outer(draw, ranks):
    keys = draw.keys
    draw.set("outer.type", "local_sgd", "diloco", "streaming_diloco", "sparse_loco", "demo")
    kind = keys["outer.type"]
    if kind != "demo":
        draw.set("outer.every", 1, 2, 3, 4)
    if kind == "streaming_diloco":
        draw.set("outer.every", 3, 4)
        draw.set("outer.fragments", 1, 2, 3)
        draw.set("outer.delay", 0, 1, 2)
        draw.set("outer.blend", 0.5, 1)
    if kind == "sparse_loco":
        draw.set("outer.chunk", 64, 100, 4096)
        draw.set("outer.keep", 3, 8)
        draw.set("outer.bits", 2, 32)
    if kind == "demo":
        draw.set("outer.chunk", 7, 64, 100)
        draw.set("outer.keep", 2, 5)
    draw.maybe(0.15, "outer.on_failure", "drop")
    keys["sharding.group"] = 2 if ranks == 4 and draw.happens(0.6) else 0


def draw_run(draw):
    """What a run evaluates, saves, averages and records."""
    keys = draw.keys
    draw.set("eval.every", 0, 1, 2, 3)
    draw.set("eval.batches", 1, 2, 3)
    draw.set("checkpoint.every", 0, 1, 2, 3)
    keys.update({"log.every": 1, "threads": 1})
    if draw.happens(0.12) and keys["optimizer.type"] != "LBFGS" and "model.from" not in keys:
        draw_device(draw)
    if "outer.type" not in keys:
        draw_averages(draw)
    if "data.sets" not in keys and draw.happens(0.1):
        keys.update({"checkpoint.best": "validation_loss", "eval.every": 1})
    draw.maybe(0.15, "eval.at_start", True)
    if keys["eval.every"] and "data.sets" not in keys:
        draw.maybe(0.08, "early_stopping.patience", 1)


def draw_device(draw):
    """A device, which the emulator of CUDA makes: small, as it takes its time."""
    keys = draw.keys
    keys.update({"device": "emulated", "steps": min(keys["steps"], 4), "batch.global": 8, "eval.batches": 1})
    small = {"model.layers": 1, "model.width": 20, "model.block": 12, "model.trunk": TRUNKS[0]}
    small["outer.chunk"] = 100  # many small chunks take the emulator long
    keys.update({key: value for key, value in small.items() if key in keys and keys[key] not in (40, 48)})


def draw_averages(draw):
    keys = draw.keys
    if draw.happens(0.25):
        draw.set("ema.decay", 0.9, 0.5)
        draw.maybe(0.3, "ema.evaluate", False)
        draw.maybe(0.3, "ema.warmup", False)
    if draw.happens(0.2):
        draw.set("swa.start", 1, 2, 3)
        draw.set("swa.every", 1, 2)
        draw.maybe(0.3, "swa.rate_factor", 0.5)
        if "ema.decay" not in keys or "ema.evaluate" in keys:
            draw.maybe(0.5, "swa.evaluate", True)
