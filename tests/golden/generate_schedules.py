#!/usr/bin/env python3
"""Writes schedules.json: learning rates and momenta of the libraries whose schedules keel has.

Each case is a section `scheduler` as keel reads it, and the same schedule made by its library: PyTorch's
and Hugging Face's classes and functions, DeepSpeed's classes; those of transformers-framework by their
formulas. A library's scheduler is stepped once a training step, and the rate is what the optimizer's
group has before each. Of 1000 steps about 40 are stored: the ends, and both sides of every break.

`--program KEEL` compares every one of the 1000 steps with what `keel schedule --json` prints, and says
the largest difference; `--check FILE` compares a stored file with a fresh computation. Cases whose
library is not installed are named and left out of a comparison; writing needs all of them.
"""

import json
import os
import subprocess
import sys
import tempfile

import golden
from schedule_cases import LR, STEPS, cases

TOLERANCE = 1e-12


def chosen_steps(rates):
    """The ends, an even spread, and both sides of the sharpest bends."""
    steps = {0, 1, 2, STEPS - 2, STEPS - 1, *range(0, STEPS, 83)}
    bend = lambda t: abs(rates[t - 1] - 2 * rates[t] + rates[t + 1])
    sharpest = sorted(range(1, STEPS - 1), key=lambda t: (-round(bend(t), 15), t))[:8]
    for t in sharpest:
        steps.update((t - 1, t, t + 1))
    return sorted(steps)


def generate():
    """name -> case; and the names of those whose library is missing."""
    found, missing = {}, []
    for library, name, text, compute in cases():
        if compute is None:
            missing.append(f"{name} ({library})")
            continue
        rates, momenta = compute()
        skip_first = library == "DeepSpeed"
        steps = chosen_steps(rates)
        case = {"scheduler": "{" + text + "}", "steps": steps, "rates": [rates[t] for t in steps]}
        if momenta is not None:
            # DeepSpeed's OneCycle starts with the momentum of the cycle's other end; keel's is continuous.
            case["momentum"] = [None if skip_first and t == 0 else momenta[t] for t in steps]
        found[name] = {"stored": case, "rates": rates, "momenta": momenta, "skip_first": skip_first}
    return found, missing


def difference(expected, actual):
    pairs = [(a, b) for a, b in zip(expected, actual) if a is not None]
    return max(abs(a - b) for a, b in pairs) / max(abs(a) for a, _ in pairs)


def compare_program(program, found):
    worst = ("", 0.0)
    with tempfile.TemporaryDirectory() as folder:
        for name, case in found.items():
            path = os.path.join(folder, "c.yaml")
            with open(path, "w") as file:
                file.write(f"steps: {STEPS}\ndata: {{path: none}}\noptimizer: {{lr: {LR}}}\n")
                file.write(f"scheduler: {case['stored']['scheduler']}\n")
            output = subprocess.run([program, "schedule", path, "--json"], capture_output=True, text=True)
            if output.returncode != 0:
                raise SystemExit(f"{name}: {output.stderr.strip()}")
            actual = json.loads(output.stdout)
            assert len(actual["rates"]) == STEPS and ("momentum" in actual) == (case["momenta"] is not None), name
            apart = difference(case["rates"], actual["rates"])
            if case["momenta"] is not None:
                first = 1 if case["skip_first"] else 0
                apart = max(apart, difference(case["momenta"][first:], actual["momentum"][first:]))
            print(f"{name}: {apart:.2g}")
            if not apart <= worst[1]:
                worst = (name, apart)
    print(f"{len(found)} schedules, {STEPS} steps each: the largest difference is {worst[1]:.3g}, in {worst[0]}")
    return 0 if worst[1] <= TOLERANCE else 1


def main():
    parser = golden.parser(__doc__, "schedules.json")
    parser.add_argument("--program", metavar="KEEL", help="compare this program at every step, write nothing")
    options = parser.parse_args()
    found, missing = generate()
    if missing:
        print("left out, as their library is not installed: " + ", ".join(missing))
    if options.program:
        return compare_program(options.program, found)
    if options.check:
        with open(options.check) as file:
            stored = {case["name"]: case for case in json.load(file)["cases"]}
        wrong = []
        for name, case in found.items():
            other, fresh = stored.get(name), case["stored"]
            if other is None or other["scheduler"] != fresh["scheduler"]:
                wrong.append(f"{name} is missing or another schedule")
                continue
            worst = difference([case["rates"][t] for t in other["steps"]], other["rates"])
            if "momentum" in fresh:
                expected = [None if case["skip_first"] and t == 0 else case["momenta"][t] for t in other["steps"]]
                worst = max(worst, difference(expected, other["momentum"]))
            if not worst <= TOLERANCE:
                wrong.append(f"{name} differs by {worst:.3g}")
        for sentence in wrong:
            print(f"{options.check}: {sentence}")
        print(f"{options.check}: {len(found) - len(wrong)} of {len(found)} schedules agree")
        return 1 if wrong else 0
    if missing:
        raise SystemExit("every library is needed to write the file")
    with open(options.output, "w") as file:
        file.write(f'{{"lr": {LR}, "steps": {STEPS}, "cases": [\n')
        lines = [json.dumps({"name": name, **case["stored"]}, separators=(",", ":")) for name, case in found.items()]
        file.write(",\n".join(lines) + "\n]}\n")
    print(f"{options.output}: {len(found)} schedules, {os.path.getsize(options.output)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
