"""A case: two sides that a law relates, each a training in one or several sessions, and the commands that run them."""

import json
import shlex
from dataclasses import dataclass, field

# What a side with stops saves: a checkpoint of each step, so that it can go on from any.
EACH_STEP = {"checkpoint.every": 1, "checkpoint.keep": 100}
# How several ranks are started; one rank is `keel train` alone.
STARTS = {"threads": ["launch", "--threads", "-N"], "tcp": ["launch", "--tcp", "-N"], "mpi": ["launch", "-N"],
          "thread-ranks": ["train", "--thread-ranks"]}
DIGITS = 8  # of the step in a checkpoint's name


def said(value):
    """As a value stands behind KEY=."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def settings(keys):
    return [f"{key}={said(value)}" for key, value in keys.items()]


@dataclass
class Session:
    """One call of keel: how many ranks, started how, with which keys."""
    ranks: int
    start: str
    keys: dict

    def command(self, keel, task, run, resume=None):
        """A line of bash."""
        start = [*STARTS[self.start], str(self.ranks)] if self.ranks > 1 else ["train"]
        after = [f"resume={resume}"] if resume else []
        return shlex.join([keel, *start, f"{task}.yaml", *settings(self.keys), f"run={run}", *after])

    def saving_each_step(self):
        return Session(self.ranks, self.start, {**self.keys, **EACH_STEP})


@dataclass
class Stop:
    """A side goes on from this step, its later checkpoints removed; `elsewhere`: in a new folder, by resume=PATH."""
    step: int
    session: Session
    elsewhere: bool = False


@dataclass
class Side:
    """A training. `ends`: signals that end sessions after so many milliseconds, as (milliseconds, signal); one that is left
    alone goes on behind them."""
    first: Session
    stops: list = field(default_factory=list)
    ends: list = field(default_factory=list)

    @property
    def sessions(self):
        return [self.first, *(stop.session for stop in self.stops)]

    def lines(self, keel, task, run):
        """The lines of bash that run it, each with the folder it writes, or None where its exit code does not count."""
        resume = "auto" if self.ends else None
        first = (self.first.saving_each_step() if self.stops else self.first).command(keel, task, run, resume)
        # Of a group of processes the launcher alone gets the signal.
        lines = [(f"timeout --foreground -s {signal} {milliseconds / 1000} {first}", None)
                 for milliseconds, signal in self.ends]
        lines.append((first, run))
        for number, stop in enumerate(self.stops):
            resume = "auto"
            if stop.elsewhere:
                resume, run = f"{run}/checkpoints/step-{stop.step:0{DIGITS}d}", f"{run}{number + 2}"
            else:
                lines.append((forget_later(run, stop.step, self.first.keys["steps"]), None))
            lines.append((stop.session.saving_each_step().command(keel, task, run, resume), run))
        return lines

    def command(self, keel, task, run):
        """One line to paste."""
        text = f"rm -rf {run}*"
        for line, folder in self.lines(keel, task, run):
            text += f" && {line}" if folder else f"; {line}"
        return text

    def last_run(self, run):
        return self.lines("", "", run)[-1][1]


@dataclass
class Case:
    """`excepted`: what the two sides may have otherwise, or what kinds of it. `checks`: what is asked of side a where both
    are equal, by the law's name."""
    number: int
    law: str
    task: str
    a: Side
    b: Side
    excepted: set = field(default_factory=set)
    checks: dict = field(default_factory=dict)

    @property
    def sessions(self):
        return [*self.a.sessions, *self.b.sessions]


def forget_later(run, step, last):
    """The line that removes checkpoints after a step."""
    return f"rm -rf {run}/checkpoints/step-{{{step + 1:0{DIGITS}d}..{last:0{DIGITS}d}}}"
