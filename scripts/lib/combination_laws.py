"""The laws: for each, how the two sides of a case differ, though no bit of what they learn does."""

from combination_case import Case, Session, Side, Stop
from combination_draws import (OF_AVERAGES, STAGES, Draw, draw_messages, draw_model, draw_optimizer, draw_precision,
                               draw_run, draw_schedule, draw_task)
from combination_questions import draw_questions

LAWS = ("stage", "stage", "residence", "residence", "resume", "resume", "resume", "details", "virtual", "virtual", "average",
        "plan", "kill", "kill", "signal", "ranks", "start")
PLACES = ("device", "host", "file", "file")
# What changes how a step is done, and no bit of its result; some keys need a stage or ranks of their own.
DETAILS = {
    "sharding.bucket": (0.001, 0.01, 0.1, "auto"),
    "sharding.first_bucket": (0.001, 0.01),
    "sharding.overlap": (False,),
    "sharding.prefetch": (0, 2, 3),
    "sharding.reshard_after_forward": (False,),
    "sharding.keep_last_unit": (True,),
    "sharding.persistence_threshold": (100, 3000),
    "sharding.progress": ("thread", "poll"),
    "sharding.algorithm": ("direct", "flat"),
    "sharding.matrices": ("everyone",),
    "sharding.strict": (False,),
    "checkpoint.async": (True,),
    "checkpoint.memory_every": (1, 2),
    "checkpoint.every": (0, 1, 2),
    "model.recompute": (True,),
    "data.workers": (0, 2),
    "log.trace": (2,),
    "eval.sanity": (1,),
}
VIRTUAL_RANKS = (2, 4, 4, 8)


class Drawing:
    """One case while it is drawn: what both sides share is drawn first, then what each has of its own."""

    def __init__(self, number):
        self.draw = draw = Draw(number)
        self.number, self.law, self.task = number, draw.choice(LAWS), draw_task(draw)
        self.ranks = draw.choice([1, 2, 2, 3, 4, 4])
        if self.law in ("stage", "start") and self.ranks == 1:
            self.ranks = 2
        draw_model(draw, self.task)
        draw_optimizer(draw, self.task)
        draw_schedule(draw)
        self.precision = draw_precision(draw)
        if self.law != "virtual":
            # With outer.type numbers lie in memory (docs/offload.md), and no average is kept here.
            draw_messages(draw, self.ranks, groups_train_alone=self.law not in ("residence", "average"))
        draw_run(draw)
        self.keys = draw.keys
        # On all sides or on none: a device's update rounds otherwise.
        self.processor_updates = "device" in self.keys and draw.happens(0.4)
        self.sizes = [self.ranks]
        if self.law == "virtual":
            self.share_virtual_ranks()
        elif self.law == "average":
            draw.drop(*OF_AVERAGES)
        elif self.law == "plan":
            self.keys.update({"eval.every": 0, "checkpoint.every": 0})

    def share_virtual_ranks(self):
        """What does not go together with virtual ranks (docs/zero.md) is left out."""
        draw = self.draw
        draw.set("sharding.virtual_ranks", *VIRTUAL_RANKS)
        draw.drop("sharding.accumulation", "sharding.wire")
        self.keys["batch.global"] = max(8, self.keys["batch.global"])
        self.sizes = [ranks for ranks in (1, 2, 4, 8) if ranks <= self.keys["sharding.virtual_ranks"]]

    def session(self, ranks=None, start=None):
        ranks = ranks or self.draw.choice(self.sizes)
        if not start:
            start = "threads" if self.draw.happens(0.9) or ranks > 4 else self.draw.choice(["tcp", "thread-ranks", "mpi"])
        return Session(ranks, self.possible(start), {**self.keys, **self.own_keys(ranks)})

    def possible(self, start):
        """Emulated devices are those of one process, and with MPI all ranks end with any of them (docs/comm.md)."""
        if "device" in self.keys:
            return "threads"
        return "tcp" if start == "mpi" and self.keys.get("outer.on_failure") == "drop" else start

    def own_keys(self, ranks):
        """Stage, residences and details of one session."""
        draw, own = self.draw, {}
        stages = STAGES
        if self.keys.get("sharding.group") and "outer.type" not in self.keys:
            stages = STAGES[1:]  # with groups the bits of ddp are others (docs/comm.md)
        own["strategy"] = f"{draw.choice(stages)}-{self.precision}"
        if "outer.type" not in self.keys and self.keys["optimizer.type"] != "LBFGS":
            if draw.happens(0.8 if self.law == "residence" else 0.2):
                own.update(self.residences(own["strategy"]))
        if "device" in self.keys:
            own.pop("sharding.offload_optimizer", None)
        if self.processor_updates:  # a strategy of communication has all weights at hand
            own["sharding.offload_optimizer"] = "host" if "outer.type" in self.keys else draw.choice(["host", "file"])
        often = 0.3 if self.law == "details" else 0.12
        for key, values in DETAILS.items():
            if draw.happens(often) and self.fits(key, ranks):
                own[key] = draw.choice(values)
        if own.get("checkpoint.every") == 0 and "checkpoint.best" in self.keys:
            del own["checkpoint.every"]
        if own["strategy"].startswith("zero3") and ranks == 4 and "outer.type" not in self.keys:
            in_memory = not any(key.startswith("sharding.offload") for key in own)
            if draw.happens(often) and in_memory and self.law != "virtual":
                own.update({"sharding.secondary": True, "sharding.subgroup": 2})
        return own

    def fits(self, key, ranks):
        if key == "sharding.bucket":  # auto measures steps of several ranks, and its memory is that of the largest size
            return self.keys["optimizer.type"] != "LBFGS" and self.law != "plan" and ranks > 1
        return key != "checkpoint.every" or self.law != "plan"

    def residences(self, strategy):
        """Where numbers lie, but for what docs/offload.md calls an error."""
        draw, keys, own = self.draw, self.keys, {}
        for what in ("optimizer", "parameters", "gradients"):
            if draw.happens(0.6):
                own[f"sharding.offload_{what}"] = draw.choice(PLACES)
        if draw.happens(0.6):
            own["sharding.offload_budget"] = draw.choice([0.3, 0.3, 0.1, 1])
        own["sharding.offload_threads"] = draw.choice([1, 2])
        by_value = keys.get("clip_by") == "value"
        summed_often = keys.get("sharding.accumulation") == "each_backward" and strategy.startswith("ddp")
        if by_value or summed_often or "sharding.virtual_ranks" in keys:
            own.pop("sharding.offload_gradients", None)
        if "sharding.weight_code" in keys and not strategy.startswith("zero3"):
            own.pop("sharding.offload_parameters", None)
        return own

    def stops(self, count):
        last = self.keys["steps"] - 1
        elsewhere = 0 if "early_stopping.patience" in self.keys else 0.15  # which needs the checkpoint that it names
        return [Stop(step, self.session(), self.draw.happens(elsewhere))
                for step in sorted(self.draw.sample(range(1, last + 1), min(count, last)))]

    def case(self):
        case = Case(self.number, self.law, self.task, Side(self.session()), Side(self.session()))
        if self.law in SIDES:
            SIDES[self.law](self, case)
        case.checks.update(draw_questions(self.draw, case, self.precision))
        return case


def relate_resumed(drawing, case):
    case.b.stops = drawing.stops(drawing.draw.choice([1, 1, 2]))


def relate_virtual(drawing, case):
    if drawing.draw.happens(0.6):
        relate_resumed(drawing, case)


def relate_killed(drawing, case):
    draw, keys = drawing.draw, case.b.first.keys
    case.b.ends = [(draw.randint(10, 160), "KILL") for _ in range(draw.choice([1, 2, 3]))]
    case.b.first.start = "threads"  # one process, which ends as a whole
    keys["checkpoint.every"] = draw.choice([1, 2])
    if draw.happens(0.5):
        keys["checkpoint.memory_every"] = draw.choice([1, 1, 2, 3])
        if "checkpoint.best" not in keys:
            keys["checkpoint.every"] = draw.choice([0, 3])
    if draw.happens(0.5):
        keys["checkpoint.async"] = True


def relate_asked(drawing, case):
    """A session that is asked to end finishes its step and saves."""
    draw = drawing.draw
    case.b.ends = [(draw.randint(30, 400), draw.choice(["TERM", "INT", "USR1"])) for _ in range(draw.choice([1, 2, 3]))]
    case.b.first.start = drawing.possible(draw.choice(["threads", "tcp", "mpi"]))
    if draw.happens(0.3):
        case.b.first.keys["checkpoint.async"] = True


def relate_averaged(drawing, case):
    """An average beside training changes nothing of it; it has records, tensors and a state of its own."""
    draw, keys = drawing.draw, case.b.first.keys
    if draw.happens(0.6):
        keys["ema.decay"] = 0.9
    if draw.happens(0.6):
        keys["swa.start"] = draw.choice([1, 2])
        keys["swa.evaluate"] = "ema.decay" not in keys and draw.happens(0.5)
    keys["eval.every"] = draw.choice([1, 2])
    keys["eval.at_start"] = draw.happens(0.5)
    case.excepted = {"evaluations", "records", "sections", "state"}


def relate_ranks(drawing, case):
    """Both sides go on with the same other number of ranks, each in its own way."""
    step = drawing.draw.randint(1, drawing.keys["steps"] - 1)
    ranks = drawing.draw.choice([1, 2, 3])
    if "outer.type" in drawing.keys:  # several groups, each of as many ranks as before
        ranks = 4 if drawing.keys["sharding.group"] else drawing.draw.choice([2, 3])
    elif "sharding.group" in drawing.keys or "sharding.subgroup" in drawing.keys:
        ranks = 2
    case.a.stops = [Stop(step, drawing.session(ranks))]
    case.b.stops = [Stop(step, drawing.session(ranks))]


def relate_started(drawing, case):
    case.a.first.start = "threads"
    case.b.first.start = drawing.possible(drawing.draw.choice(["tcp", "thread-ranks", "mpi"]))


def relate_planned(_, case):
    case.checks["plan"] = ()


SIDES = {"resume": relate_resumed, "virtual": relate_virtual, "kill": relate_killed, "signal": relate_asked,
         "average": relate_averaged, "ranks": relate_ranks, "start": relate_started, "plan": relate_planned}


def draw_case(number):
    return Drawing(number).case()
