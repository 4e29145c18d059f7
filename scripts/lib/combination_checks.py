"""Runs a case and says whether its law holds."""

from dataclasses import dataclass, field

from combination_questions import QUESTIONS
from combination_runs import BAD_INPUT, ENDS_WELL, NOT_FINITE

EQUAL, REFUSED = "equal", "refused by both"
OF_STEPS = ("loss", "lr", "grad_norm", "loss_scale")  # what records of steps have, beside those of evaluations
# What one side alone may refuse: what is whole of a block has to fit into the budget (docs/offload.md).
OF_ONE_SIDE = ("sharding.offload_budget is",)
SHOWN = 4  # differences that a line has


@dataclass
class Verdict:
    """`kind`: EQUAL, REFUSED, or what is wrong. `commands`: two lines to paste, one for each side."""
    kind: str
    text: str = ""
    commands: list = field(default_factory=list)

    @property
    def failed(self):
        return self.kind not in (EQUAL, REFUSED)


def run_case(runner, case):
    names = [f"run{case.number}_a", f"run{case.number}_b"]
    sides = [case.a, case.b]
    outcomes = [runner.side(side, case.task, name) for side, name in zip(sides, names)]
    verdict = judge(case, *outcomes)
    verdict.commands = [side.command(runner.keel, case.task, name) for side, name in zip(sides, names)]
    for law, asked in case.checks.items() if verdict.kind == EQUAL else ():
        text, line = QUESTIONS[law](runner, case, outcomes[0], asked)
        if text:
            verdict = Verdict(f"{law} differs", text, [verdict.commands[0], line])
            break
    for name in names:
        runner.call(f"rm -rf {name} {name}[0-9]*")
    return verdict


def judge(case, a, b):
    for outcome in (a, b):
        wrong = wrong_end(outcome)
        if wrong:
            return wrong
    if a.code != b.code:
        message = (a if a.code else b).message()
        return Verdict(REFUSED if any(text in message for text in OF_ONE_SIDE) else "refused by one", message)
    if a.code:
        return Verdict(REFUSED, a.message())
    different = differences(a, b, case.excepted) + [f"left behind: {name}" for name in a.left + b.left]
    if not different:
        return Verdict(EQUAL)
    more = f"; {len(different) - SHOWN} more" if len(different) > SHOWN else ""
    return Verdict("differs", "; ".join(different[:SHOWN]) + more)


def wrong_end(outcome):
    """What no side may come to, whatever the other does."""
    if outcome.code == "hang":
        return Verdict("hangs")
    if outcome.code not in (ENDS_WELL, BAD_INPUT, NOT_FINITE):
        return Verdict("a defect" if outcome.code == 1 else f"ends with code {outcome.code}", outcome.message())
    if outcome.code == BAD_INPUT and outcome.resumed:
        return Verdict("refuses to go on", outcome.message())
    if outcome.code == BAD_INPUT and outcome.wrote:
        return Verdict("refused when it had begun to write", outcome.message())
    return None


def differences(a, b, excepted):
    found = [] if a.model == b.model else ["model.safetensors"]
    for name in sorted({*a.tensors, *b.tensors}):
        if name not in a.tensors or name not in b.tensors:
            if "sections" not in excepted:
                found.append(f"only one has {name}")
        elif a.tensors[name] != b.tensors[name]:
            found.append(name)
    if "state" not in excepted:
        found += [f"state {key}: {a.state.get(key)} and {b.state.get(key)}" for key in sorted({*a.state, *b.state})
                  if a.state.get(key) != b.state.get(key)]
    for step in sorted({*a.records, *b.records}):
        found += of_records(step, a.records.get(step), b.records.get(step), excepted)
    return found


def of_records(step, a, b, excepted):
    if a is None or b is None:
        return [] if "records" in excepted else [f"step {step} has records of one alone"]
    names = sorted({*a, *b})
    if "evaluations" in excepted:
        names = [name for name in names if name in OF_STEPS]
    return [f"step {step} {name}: {a.get(name)} and {b.get(name)}" for name in names if a.get(name) != b.get(name)]
